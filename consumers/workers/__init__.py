"""The processes: the deletion worker with its nine steps, those for refreshes and erasures, their supervisor.

May import everything but `audit`, `cli`, `demo` and `subscriber`.
"""
