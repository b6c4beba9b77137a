"""Rows as they are given, for whoever fits a transformer to them again: copied, taken, stacked.

They are pandas data frames, arrays of any type or CSR matrices, n rows each.
"""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from lethe.engine.errors import InvalidData


def copied(X: Any) -> Any:
    """Return a copy of rows in a form of which some can be taken."""
    if hasattr(X, "iloc"):
        if hasattr(X, "columns") and not X.columns.is_unique:
            raise InvalidData("two columns of X have the same name; rename one")
        return X.reset_index(drop=True).copy()
    if sparse.issparse(X):
        return X.tocsr().copy()
    if hasattr(X, "columns") or hasattr(X, "column_names"):
        raise InvalidData(
            f"preprocess=Refitted(...) keeps rows as they are given, and knows pandas data frames, "
            f"arrays and sparse matrices, not {type(X).__module__}.{type(X).__name__}; call "
            "to_pandas() on it"
        )
    rows = copied_array(X, "X")
    if rows.ndim == 0:
        raise InvalidData(f"X is not an array of rows, but one {type(X).__name__}")
    return rows


def copied_array(values: Any, name: str) -> NDArray[Any]:
    """Return a copy of values as an array of any type."""
    if np.ma.is_masked(values):  # an array of it would hold what is masked
        raise InvalidData(f"{name} has masked values; fill them in, or leave out their rows")
    try:
        return np.array(values)
    except ValueError as error:
        raise InvalidData(f"{name} is not an array of rows: {error}") from error


def taken(X: Any, places: NDArray[np.intp]) -> Any:
    """Return some rows; of categories, those that none of them has are gone."""
    if not hasattr(X, "iloc"):
        return X[places]
    rows = X.iloc[places].reset_index(drop=True)
    for name in _categorical(rows):
        rows[name] = rows[name].cat.remove_unused_categories()
    return rows


def stacked(X: Any, new: Any) -> Any:
    """Return rows and new ones below them.

    Raises
    ------
    InvalidData
        A column would have to change its type.
    """
    if sparse.issparse(X):
        return sparse.vstack([X, new], format="csr")
    if not hasattr(X, "iloc"):
        return stacked_arrays("X", X, new)
    import pandas as pd  # noqa: PLC0415 (the caller has it)

    X, new = X.copy(), new.copy()
    for name in _categorical(X):
        known = X[name].cat.categories
        more = [one for one in pd.unique(new[name].dropna()) if one not in known]
        X[name] = X[name].cat.add_categories(more)
    for name in getattr(X, "columns", ()):
        of = X[name].dtype
        if isinstance(of, pd.CategoricalDtype) or of.kind == "f":
            with suppress(TypeError, ValueError):  # which is refused below
                new[name] = new[name].astype(of)
        _check_types(f"column {name!r} of X", of, new[name].dtype)
    return pd.concat([X, new], ignore_index=True)


def stacked_arrays(name: str, held: NDArray[Any], new: NDArray[Any]) -> NDArray[Any]:
    """Return values and new ones below them."""
    _check_types(name, held.dtype, new.dtype)
    return np.concatenate([held, new])


def _check_types(name: str, held: Any, new: Any) -> None:
    """Refuse values that would change the type of those that are there."""
    numeric = held.kind in "iuf" and new.kind in "iuf"
    if not (numeric or held.kind == new.kind):
        raise InvalidData(
            f"{name} is of type {new}, and of {held} in the rows that the model was fitted on; "
            "convert it"
        )


def _categorical(X: Any) -> list[Any]:
    """Return the names of the columns of a data frame that have categories."""
    return [name for name in getattr(X, "columns", ()) if hasattr(X[name], "cat")]
