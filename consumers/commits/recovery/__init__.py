"""The way back, after a crash or a loss: a fold reads the log again, and repeats steps 7 to 9.

- `follower`: when a partition of the log must be folded
- `fold`: folds it, as often as the store goes back meanwhile
- `fold_lease`: one worker at a time does so where that is long
- `partition_fold`: one try to fold one partition
- `counted`: which of the records that were read count
- `opener`: opens them
- `replay`: what each changes in the store
- `catch_up`: V and Q, recomputed from the store's own rows
- `changed_rows`: rows that requests insert or correct, whose values the log has
- `unapplied`: what the log has of one model beyond the store, for its replacement
"""
