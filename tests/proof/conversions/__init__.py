"""The battery of conversions: settings of scikit-learn's estimators and pipelines.

Each one becomes a model that is, after deletions, what a clone fitted to the remaining rows is; or
it is refused by one line that names step, column, parameter and value. What is expected of a
setting stands in this package, from scikit-learn's documentation, and not in the product's table:
`estimators` and `transformers` have it by class, `pipelines` puts them together, `special` has what
no parameter shows. `judging` fits, deletes and compares. `make conversions` prints what came of it.
"""
