"""The commit protocol of docs/commit.md, and nothing else: one commit, one record.

The log is the truth; the store is a view of it. `record` defines the bytes of a commit in
``lethe.commits``, `journal` appends commits and judges which records count, `apply` changes the
store, `publish` sends what others read, and `fold` is the one way back.
"""
