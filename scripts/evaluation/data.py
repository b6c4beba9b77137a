"""The data sets of the evaluation, and which of their rows are hard to delete."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray
from sklearn.datasets import load_breast_cancer, load_diabetes, load_digits

from lethe.engine.fit.objective import Kind
from reproduction.data import gaussian_rows, logistic_labels

Array: TypeAlias = NDArray[np.float64]
Index: TypeAlias = NDArray[np.intp]

_SPOILT = 0.03  # share of rows with a wrong label, or a target moved
_MOVED = 4.0  # standard deviations that a spoilt target is moved by


@dataclass(frozen=True, slots=True)
class Table:
    """Features X (n x d, standardised, the last column 1), targets y (n,), and the ridge."""

    kind: Kind
    X: Array
    y: Array
    ridge: float

    def margins(self, theta: Array, rows: Index) -> Array:
        """Return y - x.theta, or for labels the signed logit: above 0 where the label is right."""
        fitted: Array = self.X[rows] @ theta
        return self.y[rows] - fitted if self.kind is Kind.LINEAR else fitted * self.signs[rows]

    @property
    def signs(self) -> Array:
        """-1 and 1 in place of the labels 0 and 1."""
        return 2.0 * self.y - 1.0


def _prepared(kind: Kind, X: Array, y: Array, rng: np.random.Generator, ridge: float) -> Table:
    """Standardise, and spoil some targets: mislabelled rows are what deletion is asked for."""
    spread = X.std(axis=0)
    X = (X - X.mean(axis=0))[:, spread > 0] / spread[spread > 0]
    y = y.astype(np.float64)
    spoilt = rng.choice(len(y), round(_SPOILT * len(y)), replace=False)
    if kind is Kind.LINEAR:
        y = (y - y.mean()) / y.std()
        y[spoilt] += _MOVED
    else:
        y[spoilt] = 1 - y[spoilt]
    return Table(kind, np.column_stack([X, np.ones(len(y))]), y, ridge)


def _breast_cancer(rng: np.random.Generator) -> Table:
    X, y = load_breast_cancer(return_X_y=True)
    return _prepared(Kind.LOGISTIC, X, y, rng, ridge=0.1)


def _digits(rng: np.random.Generator) -> Table:
    X, digit = load_digits(return_X_y=True)
    chosen = (digit == 3) | (digit == 8)
    return _prepared(Kind.LOGISTIC, X[chosen], digit[chosen] == 8, rng, ridge=1.0)


def _synthetic(n: int, d: int, rng: np.random.Generator) -> Table:
    """Return rows and labels of the paper's recipe (its appendix), with its inferred ridge."""
    X = gaussian_rows(rng, n, d)
    return _prepared(Kind.LOGISTIC, X, logistic_labels(rng, X), rng, ridge=0.15)


def _diabetes(rng: np.random.Generator) -> Table:
    X, y = load_diabetes(return_X_y=True)
    return _prepared(Kind.LINEAR, X, y, rng, ridge=1.0)


DATA: Mapping[str, Callable[[np.random.Generator], Table]] = {
    "breast cancer": _breast_cancer,
    "digits 3 and 8": _digits,
    "synthetic": partial(_synthetic, 1000, 30),
    "diabetes": _diabetes,
    "synthetic, 5000 x 100": partial(_synthetic, 5000, 100),
}


def hardest(table: Table, theta: Array) -> Index:
    """Return all rows, the one with the largest Cook's distance first.

    With error e, curvature s and leverage h it is e^2 h / (s (1 - h)^2), up to a factor that all
    rows share: large for rows that are mislabelled, or fitted badly, or of high leverage.
    """
    fitted = table.X @ theta
    if table.kind is Kind.LINEAR:
        error, s = table.y - fitted, np.ones(len(fitted))
    else:
        mean = 1 / (1 + np.exp(-fitted))
        error, s = table.y - mean, np.maximum(mean * (1 - mean), 1e-12)
    A = table.X.T @ (s[:, None] * table.X) + table.ridge * np.eye(table.X.shape[1])
    h = s * np.einsum("ij,ij->i", table.X @ np.linalg.inv(A), table.X)
    order: Index = np.argsort(-(error**2) * h / (s * (1 - h) ** 2), kind="stable")
    return order
