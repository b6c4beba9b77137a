"""What `lethe check` looks at.

Nothing here writes.
"""
