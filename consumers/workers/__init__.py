"""The processes: the deletion worker with its nine steps, and the refresh worker.

May import all but `audit`, `cli`, `demo` and `subscriber`.
"""
