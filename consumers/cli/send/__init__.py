"""Commands that send requests to the log, and wait for receipts. Imports, of `cli`, `terminal`.

- `delete`, `deletion`: delete rows, or those of a subject: its options, its work
- `erase`, `erasure`: erase a person from every model: its options, its work
- `change`: insert or correct the rows of a file
- `unplaced`: rows of such a file for which a model has no place
- `reconcile`: delete the rows that a table no longer has
- `lines`: files of ids
- `receipts`: a model's receipts, and a receipt in words
"""
