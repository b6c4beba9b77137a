"""Transformers that are fitted anew at every change, to the rows that are there then.

What a model has inside (`engine.preprocess.transformation`) follows a change by algebra. Any other
transformer can be fitted again. Its features are then those of a transformer that has never seen a
deleted row, and the model of them is what a Pipeline is that is fitted to the remaining rows. This
costs a fit of the transformer a change, and the rows are kept as they were given beside their
features.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from copy import deepcopy
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, cast

import numpy as np
from numpy.typing import ArrayLike, NDArray

from lethe.engine.errors import InvalidData
from lethe.engine.fit.objective import Array, Rows, check_finite
from lethe.engine.preprocess.input.as_given import (
    copied,
    copied_array,
    stacked,
    stacked_arrays,
    taken,
)
from lethe.engine.preprocess.input.frozen import FrozenTransformer
from lethe.engine.rows import numbers

if TYPE_CHECKING:
    from lethe.engine.fitted import Fitted

_SAME = 1.5e-8
"""Largest distance, of a feature's size, between two fits to the same rows: the root of the
precision. Rounding leaves less; a fit that draws at random leaves more."""

_UNDERFLOW = 2.0**-500
"""Of the largest number of a feature: what a kernel makes of rows that are far apart is 0 below it,
which no sum in float64 could tell, and exact sums need not hold."""


class Refitted:
    """A model's ``preprocess``: transformers that it fits anew at every change.

    Parameters
    ----------
    transformer
        A transformer of scikit-learn's kind, or a Pipeline of several, fitted or not. A copy of it
        is taken, without what it has learnt of rows and without its caches (``memory``), which
        would keep what was made of deleted ones. Two fits to the same rows must make the same
        features: one that draws needs its ``random_state``.

    Raises
    ------
    InvalidData
        It cannot be copied.
    """

    def __init__(self, transformer: Any) -> None:
        from sklearn.base import clone  # noqa: PLC0415 (not to import it with the library)

        try:
            unfitted = clone(transformer)
            parts = {"": unfitted, **unfitted.get_params()}
            unfitted.set_params(**{name: None for name in parts if _last(name) == "memory"})
            kept = [one for one in parts.values() if hasattr(one, "fit") and clone(one) is one]
            _ = unfitted.fit
        except Exception as error:  # a transformer may raise anything
            raise InvalidData(
                f"Refitted takes a transformer that scikit-learn can clone: {_said(error)}"
            ) from error
        if kept:
            raise InvalidData(
                f"a {type(kept[0]).__name__} stays as it is fitted, and what it has learnt of rows "
                "with it; give what is in it, or a fitted transformer without Refitted"
            )
        self.transformer = unfitted

    def __repr__(self) -> str:
        return f"Refitted({self.transformer!r})"


@dataclass(frozen=True, slots=True)
class RawRows(Rows):
    """Rows of a change, with what they were given as.

    Their features are 0: they are known once the transformer is fitted to these rows, too.
    """

    given_X: Any
    given_y: ArrayLike


@dataclass(frozen=True, slots=True)
class RefittedRows:
    """Live rows as they were given, and the transformer that is fitted to them.

    Attributes
    ----------
    unfitted
        What is cloned for each fit: a fit may use up a ``random_state``.
    transformer
        The one that is fitted to these rows and no others.
    frame
        Names of the columns of the data frame that it makes, if it makes one.
    ids
        (n,) in the order of the rows: as they were given at first, and new ones below.
    X, y
        n rows of a pandas data frame, an array or a CSR matrix; (n,) or (n, m) targets as given.
    refit
        Makes a fitted model of other features of rows (`BaseModel._fitted_rows`).
    """

    unfitted: Any
    transformer: FrozenTransformer
    frame: tuple[str, ...] | None
    ids: tuple[str, ...]
    X: Any
    y: NDArray[Any]
    refit: Callable[..., Fitted]

    @property
    def width(self) -> int:
        """Number of columns of X."""
        return 1 if self.X.ndim == 1 else int(self.X.shape[1])

    def read(self, X: Any) -> Any:
        """Return a copy of new rows, which are to be like these.

        Raises
        ------
        InvalidData
            X is of another kind, or has other columns.
        """
        rows = copied(X)
        if type(rows) is not type(self.X) or rows.ndim != self.X.ndim:
            raise InvalidData(
                f"X is a {rows.ndim}-dimensional {type(rows).__name__}, and the model was fitted "
                f"on a {self.X.ndim}-dimensional {type(self.X).__name__}"
            )
        if rows.shape[1:] != self.X.shape[1:]:
            raise InvalidData(
                f"X has {rows.shape[1]} columns; the model was fitted on {self.width}"
            )
        if hasattr(rows, "columns") and list(rows.columns) != list(self.X.columns):
            raise InvalidData(
                f"X has the columns {list(rows.columns)}, and the model was fitted on "
                f"{list(self.X.columns)}"
            )
        return rows

    def names(self, p: int) -> tuple[str, ...]:
        """Return the names of the p features, as the transformer gives them, or x0, x1, ..."""
        found: tuple[str, ...] = ()
        with suppress(Exception):  # it has none, or does not know them
            found = tuple(map(str, cast("Any", self.transformer).get_feature_names_out()))
        known = len(found) == p == len(set(found))
        return found if known else tuple(f"x{j}" for j in range(p))

    def changed(
        self, names: tuple[str, ...], new: RawRows | None, old: tuple[str, ...]
    ) -> tuple[RefittedRows, Array, NDArray[np.intp]]:
        """Return the rows after a change, features by a transformer fitted to them, and origins.

        Parameters
        ----------
        names, new
            k ids and their rows: of live ones they are put in place of these, others below.
        old
            Ids of rows that leave; those among ``names`` are corrected.

        Returns
        -------
        rows, features, origin
            n' rows, n' x p, and (n',) which row each was: of these n, or n + j for the new row j.

        Raises
        ------
        InvalidData
            No row would be left, or the transformer cannot be fitted to those that would be.
        """
        n, arriving = len(self.ids), {name: j for j, name in enumerate(names)}
        leaving = set(old) - arriving.keys()
        kept = [
            n + arriving.pop(name) if name in arriving else i
            for i, name in enumerate(self.ids)
            if name not in leaving
        ]
        origin = np.array([*kept, *(n + j for j in arriving.values())], dtype=np.intp)
        if not len(origin):
            raise InvalidData(
                "no row would be left to fit the steps of preprocess to, so nothing was changed; "
                "discard the model, or insert another row before"
            )
        X, y, everyone = self.X, self.y, (*self.ids, *names)
        if new is not None:
            targets = copied_array(new.given_y, "y").reshape(len(new), *y.shape[1:])
            if targets.dtype.kind != y.dtype.kind and "U" in (targets.dtype.kind, y.dtype.kind):
                with suppress(ValueError):  # which is refused below
                    targets = targets.astype(y.dtype)  # a label of the fit in another spelling
            X, y = stacked(X, new.given_X), stacked_arrays("y", y, targets)
        X, y = taken(X, origin), y[origin]
        transformer, features, frame = _fitted_to(self.unfitted, X, y)
        ids = tuple(everyone[i] for i in origin.tolist())
        after = replace(self, transformer=transformer, frame=frame, ids=ids, X=X, y=y)
        return after, features, origin


def begun(
    given: Refitted, X: Any, y: ArrayLike, refit: Callable[..., Fitted]
) -> tuple[RefittedRows, Array]:
    """Return rows of a fit, without their ids yet, and their features. Two fits of the transformer.

    Raises
    ------
    InvalidData
        The rows are of a kind that is not known, or the transformer cannot be fitted to them, or
        makes something else of them in a second fit.
    """
    rows, targets = copied(X), copied_array(y, "y")
    if targets.shape[:1] != rows.shape[:1]:
        raise InvalidData(f"X has {rows.shape[0]} rows, but y has shape {targets.shape}")
    transformer, features, frame = _fitted_to(given.transformer, rows, targets)
    _, again, _ = _fitted_to(given.transformer, rows, targets)
    size = np.abs(features).max(axis=0, initial=0.0)
    if again.shape != features.shape or not (np.abs(again - features) <= _SAME * size).all():
        raise InvalidData(
            "the steps of preprocess make other features of the same rows each time they are "
            "fitted, so no refit could be told from another; set their random_state"
        )
    return RefittedRows(given.transformer, transformer, frame, (), rows, targets, refit), features


def _fitted_to(
    transformer: Any, X: Any, y: NDArray[Any]
) -> tuple[FrozenTransformer, Array, tuple[str, ...] | None]:
    """Return a clone that is fitted to rows, what it makes of them, n x p, and names of a frame.

    Raises
    ------
    InvalidData
        It cannot be fitted, or makes no numbers.
    """
    from sklearn.base import clone  # noqa: PLC0415 (not to import it with the library)

    try:
        fresh = clone(transformer)
        made = fresh.fit_transform(deepcopy(X), y.copy())  # with copy=False it writes into it
    except Exception as error:  # a transformer may raise anything
        raise InvalidData(
            f"the steps of preprocess cannot be fitted to these {X.shape[0]} rows "
            f"({type(error).__name__}: {_said(error)}); nothing was changed"
        ) from error
    dense = made.toarray() if hasattr(made, "toarray") else made
    features = numbers(dense, "what the steps of preprocess make of X", (2,))
    if not features.shape[1]:
        raise InvalidData("the steps of preprocess make no feature of X; nothing was changed")
    check_finite("feature that the steps of preprocess make", features)
    features[np.abs(features) < _UNDERFLOW * np.abs(features).max(axis=0, initial=0.0)] = 0.0
    frame = tuple(map(str, made.columns)) if hasattr(made, "columns") else None
    return fresh, features, frame


def _last(parameter: str) -> str:
    """Return the name of a parameter without those of the steps that it is of."""
    return parameter.rpartition("__")[2]


def _said(error: Exception) -> str:
    return " ".join(str(error).split())
