"""What a model's state is, and how it lies in the store: names and bytes, and no connection.

May import the rest of the engine; nothing of `engine.store` outside of this package.

- `keys`: the names of all keys, the version of the format, the partition of a key
- `codec`: arrays and row records as bytes
- `reading`: small values, each valid or CORRUPT_STATE
- `records`: small records that heads and events share; the receipt log
- `disclosed`: what versions have disclosed of a row
- `columns`: the same, of columns of a model with preprocessing
- `config`: the configuration of a model, which registration fixes
- `meta`: what each commit replaces
- `state`: all of it, `ModelState`
- `preprocessing`: columns, base and rows as given of a model with preprocessing
- `pipeline_sums`: the sums over its live rows
- `exact_sums`: the exact sums of a linear model, and the rows beside them
- `fitted_columns`: its columns as a version publishes them
- `stored_rows`: row records as rows of a model
"""
