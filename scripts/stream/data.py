"""Training sets for the stream study, and the rows that leave them, in order.

Four families. Features of unit scale, margins and noise of unit variance, no intercept; what is
special about each is in its function. Everything follows from one seed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from lethe.engine.fit.objective import Array, Kind, Objective, Rows

Record: TypeAlias = dict[str, Any]
"""A flat mapping: where it was measured (part, kind, data, method, k, deleted), then figures.

Errors are relative to |retrained theta|; times are wall clock, one BLAS thread.
"""

_SPREAD = 3.0  # decades of the features' scales: the Hessian's condition is their square
_OUTLIER_EVERY = 20  # one in so many of the deleted rows
_OUTLIER_SIZE = 10.0  # the paper's middle outlier factor
_DENSITY = 0.05  # the paper's sparsest case
_MOST_FREQUENT = 0.5
_LOGISTIC_STRENGTH = 2.0  # standard deviation of the margins


@dataclass(frozen=True, slots=True)
class StreamData:
    """A training set and its stream.

    Attributes
    ----------
    kind, family
        ``linear`` or ``logistic``; a name in `FAMILIES`.
    X, y
        n x d, (n,).
    ridge
        Penalty strength, on every coordinate.
    order
        Rows that are deleted, in order.
    """

    kind: str
    family: str
    X: Array
    y: Array
    ridge: float
    order: NDArray[np.intp]

    @property
    def n(self) -> int:
        """Number of rows before any deletion."""
        return int(self.X.shape[0])

    @property
    def d(self) -> int:
        """Number of features."""
        return int(self.X.shape[1])

    def live(self, deleted: int) -> NDArray[np.bool_]:
        """Return which rows remain after so many deletions."""
        mask = np.ones(self.n, dtype=np.bool_)
        mask[self.order[:deleted]] = False
        return mask

    @property
    def rows(self) -> Rows:
        """All rows as the engine has them."""
        return Rows(self.X, self.y[:, None], np.ones(self.n))

    @property
    def objective(self) -> Objective:
        """The engine's objective for these data."""
        return Objective(Kind(self.kind), np.full(self.d, self.ridge))


def _isotropic(rng: np.random.Generator, n: int, d: int) -> tuple[Array, float]:
    """Independent features of one scale."""
    return rng.standard_normal((n, d)), 1.0


def _anisotropic(rng: np.random.Generator, n: int, d: int) -> tuple[Array, float]:
    """Scales over three decades, turned off the axes: Hessian condition about 1e6."""
    turn = np.linalg.qr(rng.standard_normal((d, d)))[0]
    return (rng.standard_normal((n, d)) * np.logspace(0, -_SPREAD, d)) @ turn, 1e-3


def _sparse(rng: np.random.Generator, n: int, d: int) -> tuple[Array, float]:
    """Few entries a row, features as uneven as words: the j-th occurs with odds 1/j."""
    odds = 1.0 / np.arange(1, d + 1)
    odds = np.minimum(odds * _DENSITY * d / odds.sum(), _MOST_FREQUENT)
    return rng.standard_normal((n, d)) * (rng.random((n, d)) < odds), 1.0


FAMILIES: Mapping[str, Callable[[np.random.Generator, int, int], tuple[Array, float]]] = (
    MappingProxyType(
        {
            "isotropic": _isotropic,
            "anisotropic": _anisotropic,
            "sparse": _sparse,
            "outlier": _isotropic,
        }
    )
)


def make(kind: str, family: str, *, n: int, d: int, deletions: int, seed: int) -> StreamData:
    """Return the family's training set and stream for one seed.

    In the outlier family one in twenty of the deleted rows is ten times as large: features and
    target, as in the paper's L2 experiment; in a logistic model features, with the label wrong.
    """
    rng = np.random.default_rng([seed, list(FAMILIES).index(family), n, d])
    X, ridge = FAMILIES[family](rng, n, d)
    beta = rng.standard_normal(d)
    signal = X @ beta
    signal = signal / signal.std()
    order = rng.permutation(n)[:deletions]
    large = order[::_OUTLIER_EVERY] if family == "outlier" else order[:0]
    if kind == "linear":
        y = signal + rng.standard_normal(n)
        y[large] *= _OUTLIER_SIZE
    else:
        margin = _LOGISTIC_STRENGTH * signal
        y = (rng.random(n) < 1 / (1 + np.exp(-margin))).astype(np.float64)
        y[large] = (margin[large] < 0).astype(np.float64)
    X[large] *= _OUTLIER_SIZE
    return StreamData(kind, family, X, y, ridge, order)
