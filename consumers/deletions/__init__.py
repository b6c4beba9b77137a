"""A request, from bytes to a transition: validated, authenticated, batched, processed.

They are decided in `decide`, `compute` changes the rows, and `batch_commit` makes the commit.

May import `consumers.refresh` and the packages below it.
"""
