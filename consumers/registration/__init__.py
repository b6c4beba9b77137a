"""Models that begin, are replaced, end, or go on after a loss.

May import `consumers.versions` and what stands below.
"""
