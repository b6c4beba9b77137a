"""Pipelines as practitioners build them: how many become models, and whether these are right.

- `corpus`, `second`: the pipelines, with where each structure is from, in two halves
- `table`: the table that they are fitted to
- `judging`: one of them, through deletions, inserts and corrections
- `moved`: how far an import moves ordinary models
- `__main__`: `make pipelines`
"""
