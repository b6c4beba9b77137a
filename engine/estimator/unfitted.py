"""The error of a model that is not fitted. Imports scikit-learn: only whoever raises it does.

scikit-learn has no types, so for a type checker its error can be anything.
"""

from __future__ import annotations

from sklearn.exceptions import NotFittedError

from lethe.engine.errors import InvalidData


class NotFitted(InvalidData, NotFittedError):  # type: ignore[misc]
    """The model is not fitted; also scikit-learn's error of that name, which its tools expect."""

    code = "NOT_FITTED"
