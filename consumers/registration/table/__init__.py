"""Training rows from files: Parquet or CSV, checked value by value.

May import `consumers.registration` and the engine.

- `source`: the files that a path or a URL names
- `parquet`, `delimited`: files of one form, in blocks of rows
- `file`: a table of either form, and places in it
- `foreseen`: what is known, and refused, before rows are read
- `numeric`: numbers into one array
- `reader`: the training rows
- `in_blocks`: those of tables too large for memory
- `values`, `class_column`, `typed`: columns of numbers and names, of classes, for preprocessing
- `preprocess_file`, `frozen`, `skops_file`, `packed`: the files of --preprocess and --from
"""
