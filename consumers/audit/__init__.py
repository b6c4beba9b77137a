"""What an auditor needs. Everything here only reads, and takes nothing that it reads on trust.

- `published`: a history against itself, by code of its own
- `request`: the report on one request (`lethe receipt`)
- `health`: `lethe check`

A model's history (`lethe audit`) against everything else:

- `auditor`: one audit, of what the servers hold or of an exported file alone
- `reading`: the records and the receipts that it judges
- `commits`: which commits count, as workers judge that
- `commit_checks`: their chain, and what is published against them
- `state`: the store against what was published
- `refit`: the newest version's bound against a refit

One model (`lethe verify`):

- `verify`: what is published beside a refit
- `oracle`: the refit, by independent code
- `digest_check`, `rational_refit`: a linear model to the last bit (`--digest`)
- `pipeline_refit`: the same of a pipeline with exact sums
- `pipeline_rows`: the rows of a refit whose preprocessing is fitted anew, too

Its coefficients (`lethe summary`):

- `summaries`: standard errors, tests and intervals

An erasure (`lethe erasures --bundle`):

- `erasure`: gathering its evidence, for a file that `auditor` checks

The rows of a model (`lethe disclosure`):

- `disclosures`: what published versions have disclosed of them
"""
