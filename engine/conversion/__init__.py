"""From scikit-learn's estimators to models that can forget, and back. Imports scikit-learn.

- `steps`: an estimator where it stands in a Pipeline, and refusals that name it
- `converters`: the table of estimators that minimise an objective of ours, and what is refused
- `parameters`: every parameter of the classes that are read, and what is known of it
- `pipelines`: what a Pipeline does to its columns, and whether it does that
- `importing`: `from_sklearn`, which refits and measures how far the given estimator was
- `exporting`: plain fitted estimators that predict the same
"""

from __future__ import annotations

from lethe.engine.conversion.exporting import PublishedFit, logistic_of, plain_estimator, ridge_of
from lethe.engine.conversion.importing import from_sklearn

__all__ = ["PublishedFit", "from_sklearn", "logistic_of", "plain_estimator", "ridge_of"]
