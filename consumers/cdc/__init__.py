"""Change data capture: rows that a database deletes or changes become requests (docs/cdc.md).

- `mapping`: the TOML file: which table feeds which models, and how its rows are named.
- `change`: a record of Debezium, in any of its forms, becomes one change of a row.
- `naming`: the values of columns become the id of a row or a subject; the id of a request.
- `translate`: one change becomes requests, a refusal, or nothing. Pure.
- `reconcile`: a whole table against a model, for deletions that no change told of. Pure.

`consumers.workers.intake_worker` reads the records and sends the requests.
"""
