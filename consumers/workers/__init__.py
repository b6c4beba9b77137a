"""The processes: workers for deletions (nine steps), refreshes, erasures, and their supervisor.

May import everything but `audit`, `cli`, `demo` and `subscriber`.
"""
