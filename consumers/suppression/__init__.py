"""Who is erased: subjects whose rows must not be registered or inserted again.

May import `service`, `contract` and `log`.
"""
