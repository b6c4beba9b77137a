"""Models' state in Redis or Valkey: a view of the commits in the log (docs/state.md).

It reads, stages and applies, and decides nothing. It may import the rest of the engine, which does
not import it; every package of `consumers` may import it. `lethe delete` must not wait for NumPy,
so `membership`, `cursors`, `topics`, `log_view`, `server`, and of `layout` `columns`, `keys`,
`reading` and `records` do without.

- `layout`: what a state is, and its bytes; without I/O
- `server`: connections, round trips, encrypted rows
- `offline`: whole models: snapshots, staged generations

The live state of a model, between those two and `offline`:

- `store`: `ModelStore`: load states, look up, apply changes
- `generation`: a generation, its stream and its thetas as they are stored
- `factors`: factored Hessians in memory, and the dual rows that they make
- `membership`: which models there are, and which rows they had, without loading one
- `lookup`: many models in one round trip: what requests refer to, heads, versions, summaries
- `apply`: step 7, a commit's change of the store, with ``apply.lua``
- `counts`: whether keys hold as many entries as the head counts, with ``counts.lua``
- `row_files`: rows of models that are in files (`engine.rowstore`), and what commits leave of them
- `sums`: sums of a model with preprocessing, written whole again
- `cursors`: how far the store has come, with ``cursors.lua``
- `sizes`: what a model takes of the server's memory
- `topics`: which topics of the log the state belongs to, and what was lost of them
- `log_view`: a hash that is a view of a topic, with ``log_view.lua``
"""
