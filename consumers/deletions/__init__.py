"""Requests to delete, insert and correct rows, from bytes to a commit (docs/commit.md, steps 2-5).

- `validate`: step 2, each record alone: a request, a refused request, or an unreadable record
- `authenticate`: who may ask
- `batching`: requests wait so that one version leaves out several rows
- `load`: step 3, what the first records of each model need
- `rounds`: what is loaded for a round of a poll, and what comes of it
- `batch_processor`: steps 4 and 5 for what was loaded
- `decide`: step 4, each request in the order of the log; `decisions` has what may be decided
- `compute`: step 5, the rows that leave and arrive; `out_of_range` judges those that arrive
- `batch_commit`: the commit of a batch, with its receipts
- `report`: metrics and log lines
- `dead_letters`: records that could not be read or believed

May import `consumers.refresh` and the packages below it.
"""
