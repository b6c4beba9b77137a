"""From scikit-learn's estimators to models that can forget, and back. Imports scikit-learn.

- `steps`: an estimator where it stands in a Pipeline, and refusals that name it
- `converters`: the table of estimators that minimise an objective of ours, and what is refused
- `parameters`: every parameter of the classes that are read, and what is known of it
- `stateless`: transformers that learn nothing, as what they compute
- `flow`: each feature's way through a Pipeline
- `pipelines`: what a Pipeline does to its columns, and whether it does that
- `comparing`: whether it makes the features that a model makes
- `targets`: what learns a function of its target, read and made
- `moved`: how far the given estimator was from its own optimum, in parameters and predictions
- `importing`: `from_sklearn`, which refits
- `natures`: what becomes of each step of a Pipeline
- `exporting`: plain fitted estimators that predict the same
"""

from __future__ import annotations

from lethe.engine.conversion.exporting import (
    PublishedFit,
    logistic_of,
    plain_estimator,
    poisson_of,
    ridge_of,
    softmax_of,
)
from lethe.engine.conversion.importing import (
    EstimatorTerms,
    from_sklearn,
    read_terms,
)
from lethe.engine.conversion.natures import Nature, StepNature, natures
from lethe.engine.conversion.targets import final_of

__all__ = [
    "EstimatorTerms",
    "Nature",
    "PublishedFit",
    "StepNature",
    "final_of",
    "from_sklearn",
    "logistic_of",
    "natures",
    "plain_estimator",
    "poisson_of",
    "read_terms",
    "ridge_of",
    "softmax_of",
]
