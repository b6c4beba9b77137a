"""What `lethe check` checks.

Nothing here writes.
"""
