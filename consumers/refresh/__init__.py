"""Refresh jobs: queued, computed, swapped in.

May import `consumers.versions` and what stands below.
"""
