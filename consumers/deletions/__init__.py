"""A request, from bytes to a transition: validated, authenticated, batched, processed.

Deletions are decided in `decide` and become a commit in `transition`; inserts and corrections in
`row_changes` and `change_transition`.


May import `consumers.refresh` and the packages below it.
"""
