"""The four sizes of a refresh, and which one is due.

Imports `engine.fit`, `engine.deletion` and `engine.error`. `size` imports nothing: a command line
need not wait for NumPy.

- `size`: the names of the four
- `policy`: which one is due, the smallest that suffices
- `refreshes`: what each of them does
- `blockwise`: precomputation, polish and compacting of every block, one after another
- `coupled`: fit, polish, compact and rebuild of a softmax model
- `kinds`: polish, compact and rebuild of a model of any kind
- `folding`: V folded into factor and dual rows, for a compact
- `polish`: back to the optimum of the live rows without a new factor
- `live`: the live rows as a polish sees them
- `reweighted`: the stale Hessian with a few rows brought up to date
- `subspace`: minimising the loss over the span of a few directions
- `proving`: the certificates of a polish
"""
