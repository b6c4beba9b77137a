"""A model as a scikit-learn estimator that can forget: the layers of `engine.models`.

Each layer adds one subject to the one below it.

- `protocol`: parameters, tags and representation, as scikit-learn's tools ask for them
- `columns`: features from arrays, sparse matrices and data frames, whose names are checked
- `base`: parameters, fitting, and reading what was fitted
- `targets`: functions that targets are learnt by, and their inverses
- `changing`: deleting, inserting, correcting, refreshing
- `refitting`: changes of a model whose transformers are fitted anew
- `converting`: a model of a fitted estimator of scikit-learn
- `classifying`: labels and probabilities of models of classes
- `diagnosing`: leverage, Cook's distance, leaving one or a group of rows out
- `unfitted`: the error of a model that is not fitted
"""
