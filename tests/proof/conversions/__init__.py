"""scikit-learn's estimators and pipelines by setting: converted rightly, or refused by name.

What is right is what scikit-learn itself gives: after deletions the converted model must predict as
`clone(estimator)` does, fitted to the rows that remain. Nothing here knows which settings the
product accepts.
"""
