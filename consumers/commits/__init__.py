"""The commit protocol of docs/commit.md, and nothing else: one commit, one record.

The log is the truth; the store is a view of it. May import `consumers.service` and what stands
below.

From a decision to the log (step 6):

- `commit`: a commit as a value, everything that one decision about a model changes
- `record`: its bytes in ``lethe.commits``: an open part, a sealed part, a signature
- `journal`: appending, and the rule that says whether a record counts

From the log to the store and to readers (steps 7 to 9):

- `apply`: what a commit changes in the store, and the state after it
- `shred`: dropping the keys of erased rows, where row records are encrypted
- `publish`: the messages that others read, made from commits alone
- `publisher`: sending them, and noting that one poll later
- `packed`: a receipt as the store keeps it
- `receipt_index`: the receipts that the store keeps of a model
- `state_cache`: states of models in memory

The way back, after a crash or a loss:

- `follower`: when a partition of the log must be read again
- `fold`: reads it, and repeats steps 7 to 9
- `fold_lease`: one worker at a time does so where that is long
- `partition_fold`: one try to fold one partition
- `counted`: which of the records that were read count
- `opener`: opens them
- `replay`: what each changes in the store
- `catch_up`: V and Q, recomputed from the store's own rows
- `changed_rows`: rows that requests insert or correct, whose values the log has
- `unapplied`: what the log has of one model beyond the store, for its replacement
"""
