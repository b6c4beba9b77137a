"""What is sent to the log, and waiting for its receipt. Imports, of `consumers.cli`, `terminal`.

- `receipts`: a model's receipts, and a receipt in words
- `lines`: files of ids
- `deletion`: of ``lethe delete``
- `erasure`: of ``lethe erase``, a person, with the combined receipt
"""
