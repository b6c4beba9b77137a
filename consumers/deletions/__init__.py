"""A deletion request, from bytes to a transition: validated, authenticated, batched, processed.

May import `consumers.refresh` and the packages below it.
"""
