"""A published history against itself, by nothing that decides, commits or publishes.

So a fault of the code that makes a history cannot hide itself here. May import, of `consumers`,
only `subscriber`, `contract` and `log`.

- `history`: what an audit keeps of the records and receipts
- `checks`: the history against itself
- `receipts`: receipts against versions, and in the receipt log
- `erasure`: the evidence of one erasure: its combined receipt against the models' own
- `witnesses`: what witnesses have seen of a receipt log
- `finding`: one finding per check, and the faults behind it
- `bundle`: an exported history, or the evidence of an erasure, as a file
- `evidence`: JSON that can be read in one way only
- `checkpoint`: what an auditor remembers until the next audit
"""
