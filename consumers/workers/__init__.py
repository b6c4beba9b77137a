"""The processes: the deletion worker with its nine steps, the refresh worker, and their supervisor.

May import everything but `audit`, `cli`, `demo` and `subscriber`.
"""
