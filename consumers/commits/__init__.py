"""One commit, one record: docs/commit.md, and nothing else.

The log is the truth, the store a view of it. `record` is what a commit looks like in
``lethe.commits``, `journal` appends and judges, `apply` changes the store, `publish` sends what
others read, `fold` is the one way back.
"""
