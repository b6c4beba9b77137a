"""A deletion request, from bytes to a transition: validated, authenticated, batched, decided.

May import `consumers.refresh` and what stands below.
"""
