"""The processes: the deletion worker with its nine steps, and the refresh worker.

May import everything but `audit`, `cli`, `demo` and `subscriber`.
"""
