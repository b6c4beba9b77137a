"""Features from arrays, sparse matrices and data frames; and the names of their columns.

A data frame is anything with ``columns`` or ``column_names`` and rows below them: of pandas,
polars or pyarrow. The messages about names begin as scikit-learn's do, which its users know.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from scipy.sparse import issparse

from lethe.engine.errors import InvalidData
from lethe.engine.fit.objective import Array, check_finite
from lethe.engine.rows import numbers

_SHOWN = 5  # names in a message


@dataclass(frozen=True, slots=True)
class MadeFeatures:
    """Features, n x p, that a model with preprocessing has made of a table; it predicts from them.

    In the place of the table: reading one takes longer than predicting.
    """

    values: Array


def dense_features(X: Any) -> ArrayLike:
    """Return X; a sparse matrix as an array, n x p.

    Nothing is gained by keeping training rows sparse: the dual rows beside them are dense, and so
    large.
    """
    if not issparse(X):
        return X  # type: ignore[no-any-return]
    if X.dtype.kind == "c":
        raise InvalidData("X is not an array of numbers: Complex data not supported")
    dense: ArrayLike = X.toarray()
    return dense


def features_to_predict(X: Any) -> Any:
    """Return X as a float64 array or, if it is sparse, as a float64 CSR matrix: n x p, finite.

    Predictions of sparse rows cost O(nnz): they stay sparse.

    Raises
    ------
    InvalidData
        Not numbers, not n x p, or not finite.
    """
    if not issparse(X):
        features = numbers(X, "X", (2,))
        check_finite("feature", features)
        return features
    if X.dtype.kind == "c":
        raise InvalidData("X is not an array of numbers: Complex data not supported")
    sparse = X.tocsr().astype(np.float64)
    bad = np.flatnonzero(~np.isfinite(sparse.data))
    if len(bad):
        row = np.searchsorted(sparse.indptr, bad[0], side="right") - 1
        raise InvalidData(f"a feature of row {row} is not a finite number; correct the row")
    return sparse


def column_names(X: Any) -> tuple[str, ...] | None:
    """Return the names of a data frame's columns; None for an array, or if no name is text.

    Raises
    ------
    InvalidData
        Some names are text, and others are not.
    """
    columns = getattr(X, "column_names", None)  # pyarrow, whose ``columns`` are the values
    if columns is None:
        columns = getattr(X, "columns", None)
    if columns is None or isinstance(X, np.ndarray):
        return None
    names = list(columns)
    text = [isinstance(name, str) for name in names]
    if not any(text):
        return None
    if not all(text):
        other = names[text.index(False)]
        raise InvalidData(
            f"some column names of X are text, but {other!r} is not; make them all text"
        )
    return tuple(names)


def check_columns(X: Any, fitted: Sequence[str] | None, model: str) -> None:
    """Compare the names of X's columns with those that a model was fitted on.

    Parameters
    ----------
    X
        Features of any kind.
    fitted
        Names of the columns at the fit, in order, or None for an array.
    model
        Name of the model's class, for messages.

    Warns
    -----
    UserWarning
        Only one of X and the fit had names: their order cannot be checked.

    Raises
    ------
    InvalidData
        Columns are missing, unknown or in another order; the message names them.
    """
    names = column_names(X)
    if names is not None and fitted is not None:
        if names != tuple(fitted):
            raise InvalidData(_difference(names, fitted))
    elif fitted is not None:
        warnings.warn(
            f"X does not have valid feature names, but {model} was fitted with feature names",
            stacklevel=_CALLER,
        )
    elif names is not None:
        warnings.warn(
            f"X has feature names, but {model} was fitted without feature names",
            stacklevel=_CALLER,
        )


_CALLER = 4  # frames up from `check_columns`: whoever called the model's method


def _difference(names: Sequence[str], fitted: Sequence[str]) -> str:
    message = "The feature names should match those that were passed during fit.\n"
    unseen, missing = sorted(set(names) - set(fitted)), sorted(set(fitted) - set(names))
    if unseen:
        message += "Feature names unseen at fit time:\n" + _listed(unseen)
    if missing:
        message += "Feature names seen at fit time, yet now missing:\n" + _listed(missing)
    if unseen or missing:
        return message
    message += "Feature names must be in the same order as they were in fit.\n"
    if len(names) != len(fitted):
        return message + "A name occurs twice.\n"
    moved = [
        f"{now} in place of {then}" for now, then in zip(names, fitted, strict=True) if now != then
    ]
    return message + _listed(moved)


def _listed(names: Sequence[str]) -> str:
    more = ["- ...\n"] if len(names) > _SHOWN else []
    return "".join([*(f"- {name}\n" for name in names[:_SHOWN]), *more])
