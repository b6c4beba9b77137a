"""What an auditor needs. Everything here only reads, and takes nothing that it reads on trust.

A model's history (`lethe audit`):

- `auditor`: one audit, of what the servers hold or of an exported file alone
- `reading`: the records and the receipts that it judges
- `history`: what it keeps of them
- `checks`: a published history against itself
- `receipts`: receipts against versions, and in the receipt log
- `commits`: which commits count, as workers judge that
- `commit_checks`: their chain, and what is published against them
- `state`: the store against what was published
- `refit`: the newest version's bound against a refit
- `finding`: one finding per check, and the faults behind it
- `bundle`: an exported history as a file
- `checkpoint`: what an auditor remembers until the next audit

One request (`lethe receipt`) and one model (`lethe verify`):

- `request_report`: how a request was sent, processed and published
- `request_rows`: its rows, and what is left of them
- `verify`: a refit by independent code
- `pipeline_rows`: the rows of a refit whose preprocessing is fitted anew, too

`audit.health` is `lethe check`.
"""
