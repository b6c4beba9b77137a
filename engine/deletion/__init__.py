"""Deleting rows from a fitted model and inserting rows: the step, the stream, the methods.

Imports `engine.fit`, and of `engine.error` the allowance for rounding. Values in, values out: no
state is kept here.

- `generation`: a generation, and the running state of its stream of deletions
- `change`: a change of rows, which is what all others call: those that arrive and those that leave
- `stream`: deleting rows from a stream, and what is published after it
- `insertion`: inserting rows into a stream
- `coupled`: deleting and inserting rows of a softmax model, whose classes share a Hessian
- `downdate`: leaving k rows out, or bringing them in: the step that every method builds on
- `correction`: V with its signs, what has changed in the inverse Hessian
- `one_row`: leaving one row out of a model of one output, in scalars
- `rounded_step`: both, of a linear model with exact sums
- `span`: orthonormal bases of row spans
- `growing`: a matrix that grows by rows
- `residual`: what a deletion adds to the bound of the gradient
- `crossover`: when V has cost as much as folding it away would
- `methods`: the deletion methods, one file each
"""
