"""The error of a model that is not fitted. Imports scikit-learn: only whoever raises it does."""

from __future__ import annotations

from sklearn.exceptions import NotFittedError

from lethe.engine.errors import InvalidData


class NotFitted(InvalidData, NotFittedError):  # type: ignore[misc] (scikit-learn has no types)
    """The model is not fitted; also scikit-learn's error of that name, which its tools expect."""

    code = "NOT_FITTED"
