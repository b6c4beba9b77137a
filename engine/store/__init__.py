"""Models' state in Redis or Valkey: a view of the commits in the log (docs/state.md).

It reads, stages and applies, and decides nothing. It may import the rest of the engine, which does
not import it; every package of `consumers` may import it. `lethe delete` must not wait for NumPy,
so `columns`, `connection`, `keys`, `membership`, `pipeline`, `reading`, `records`, `row_keys` and
`tls` do without.

The layout and its bytes:

- `keys`: the names of all keys, the version of the format, the partition of a key
- `codec`: arrays and row records as bytes
- `reading`: small values, each valid or CORRUPT_STATE
- `records`: small records that heads and events share; the receipt log
- `columns`: the same, of columns of a model with preprocessing
- `state`: a model's state as values: configuration, `Meta`, `ModelState`
- `preprocessing`: columns, base, sums and rows as given of a model with preprocessing
- `fitted_columns`: its columns as a version publishes them
- `stored_rows`: row records as rows of a model
- `generation`: a generation, its stream and its thetas as they are stored

The server:

- `connection`: connecting, errors that say what to do, the barrier that waits for the disk
- `tls`: certificates and password files
- `pipeline`: commands and Lua scripts in one round trip each
- `rewrite`: asking the server to rewrite its files without what was erased
- `row_keys`: row records encrypted, their keys in another store

Reading and writing models:

- `store`: `ModelStore`: load states, look up, apply changes
- `membership`: which models there are, and which rows they had, without loading one
- `lookup`: many models in one round trip: what requests refer to, heads, versions, summaries
- `apply`: step 7, a commit's change of the store, with ``apply.lua``
- `cursors`: how far the store has come, with ``cursors.lua``
- `log_view`: a hash that is a view of a topic, with ``log_view.lua``
- `staging`: a generation or a data set written beside the live one, and read back
- `catch_up`: such a generation and what became of rows while it was made
- `jobs`: results of refresh jobs
- `snapshot`: all live rows, or a new sample of them
- `touched`: the rows that commits have touched since a generation became live
- `predecessor`: the model that a --replace replaces, without trusting its state
"""
