"""Refresh jobs: queued, computed, swapped in.

May import `consumers.versions` and the packages below it.
"""
