"""From rows to a fitted model: objective, minimiser, factored Hessian, precomputation.

The lowest package of the engine: `precompute` imports `engine.error.certificate`, and `fit` imports
`engine.exact` for a correctly rounded minimiser; nothing else here imports another package.

- `losses`: square, logistic and Poisson loss, with their derivatives in the margin
- `multinomial`: the softmax objective, of coupled classes
- `objective`: the regularised loss and its derivatives
- `classes`: from labels to targets, and from margins to probabilities
- `class_weights`: weights of classes, given or balanced
- `counts`: what is asked of the rows of a Poisson model
- `blocks`: outputs that share one Hessian, and how their arrays lie
- `factor`: A = L L^T, and bounds of its spectrum
- `magnitude`: numbers too large or too small for float64 are refused
- `total`: the loss of rows in memory, or of rows that are read in passes
- `fit`: the minimiser from scratch
- `precompute`: everything that a deletion needs, computed offline
"""
