"""A transformer that stays as it is: its statistics keep what they were trained on.

Anything with scikit-learn's ``transform`` will do, fitted. What it was trained on does not leave
it: deletion is then exact for a model of its features, and not for the whole pipeline.
"""

from __future__ import annotations

from copy import deepcopy
from typing import Any, Protocol, runtime_checkable

from lethe.engine.errors import InvalidData


@runtime_checkable
class FrozenTransformer(Protocol):
    """What scikit-learn's fitted transformers are."""

    def transform(self, X: Any) -> Any:
        """Return the features of a table, n x p."""
        ...


def kept_copy(preprocess: object) -> FrozenTransformer:
    """Return a copy of a model's ``preprocess`` that is not a mapping of columns.

    Raises
    ------
    InvalidData
        It has no ``transform``, or cannot be copied.
    """
    if not isinstance(preprocess, FrozenTransformer):
        raise InvalidData(
            "preprocess must be a mapping from columns to what is done to them, Refitted(...), or "
            f"a fitted transformer, not {type(preprocess).__name__}"
        )
    try:
        return deepcopy(preprocess)
    except Exception as error:  # a transformer may raise anything
        raise InvalidData(f"the frozen transformer cannot be copied: {error}") from error


def transformed(transformer: FrozenTransformer, X: Any) -> Any:
    """Return what a fitted transformer makes of a table, as a plain array.

    Raises
    ------
    InvalidData
        The transformer refuses the table, or is not fitted.
    """
    try:
        features = transformer.transform(X)
    except Exception as error:  # a transformer may raise anything
        raise InvalidData(f"the transformer of preprocess refuses the table: {error}") from error
    return features.toarray() if hasattr(features, "toarray") else features
