"""The commit protocol of docs/commit.md, and nothing else: one commit, one record.

The log is the truth; the store is a view of it. May import `consumers.service` and what stands
below.

From a decision to the log (step 6):

- `commit`: a commit as a value, everything that one decision about a model changes
- `record`: its record in ``lethe.commits``, encoded and opened
- `frame`: the bytes of that: an open part, a sealed part, a signature
- `sealed_part`: the bytes that are sealed
- `journal`: appending, and the rule that says whether a record counts

From the log to the store and to readers (steps 7 to 9):

- `apply`: what a commit changes in the store, and the state after it
- `shred`: dropping the keys of erased rows, where row records are encrypted
- `publish`: the messages that others read, made from commits alone
- `publisher`: sending them, and noting that one poll later
- `newest`: sending the newest parameters again where older ones may have landed last
- `packed_receipt`: a receipt as the store keeps it
- `receipt_index`: the receipts that the store keeps of a model
- `state_cache`: states of models in memory

The way back:

- `recovery`: after a crash or a loss, the log is read again, and steps 7 to 9 are repeated
"""
