"""The way back, after a crash or a loss: a fold reads the log again, and repeats steps 7 to 9.

Two modules serve the normal way, too: `follower` at every poll, `changed_rows` at every insert.

- `follower`: when a partition of the log must be folded
- `fold`: folds it, as often as the store goes back meanwhile
- `fold_lease`: one worker at a time does so where that is long
- `partition_fold`: one try to fold one partition
- `model_lists`: makes the store's lists of models again if models are missing from them
- `counted`: which of the records that were read count
- `opener`: opens them
- `replay`: what each changes in the store
- `catch_up`: V and Q, recomputed from the store's own rows
- `change_requests`: requests that insert or correct rows, read again from the log
- `changed_rows`: the rows of such requests: from values to records and to a step
- `unapplied`: what the log has of one model beyond the store, for its replacement
"""
