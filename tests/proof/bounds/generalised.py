"""Hostile families of counts (Poisson) and of classes that share a softmax."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.random import Generator

from tests.proof.bounds.case import Array, Case, Families, early, power

COUNTS = Families()
CLASSES = Families()

_LARGEST = 25.0  # of a log mean that counts are drawn from: 7e10


def _size(rng: Generator, rows: int = 60, columns: int = 6) -> tuple[int, int]:
    d = int(rng.integers(1, columns + 1))
    return int(rng.integers(max(3 * d, 12), rows)), d


def _either(rng: Generator) -> bool:
    return bool(rng.random() < 0.5)


def _counts(rng: Generator, margin: Array) -> Array:
    y = rng.poisson(np.exp(np.clip(margin, -_LARGEST, _LARGEST))).astype(np.float64)
    y[0] = max(y[0], 1.0)
    return y


def _counted(rng: Generator, X: Array, margin: Array) -> Case:
    return Case(X, _counts(rng, margin), power(rng, -3, 1), intercept=_either(rng), deletions=5)


@COUNTS
def mild_counts(rng: Generator) -> Case:
    n, d = _size(rng)
    X = rng.normal(size=(n, d))
    return _counted(rng, X, X @ rng.normal(size=d) / 2)


@COUNTS
def large_counts(rng: Generator) -> Case:
    n, d = _size(rng)
    X = rng.normal(size=(n, d))
    case = _counted(rng, X, X @ rng.normal(size=d) / 2 + rng.uniform(5, 18))
    return replace(case, intercept=True)


@COUNTS
def large_margins(rng: Generator) -> Case:
    """Log means from -25 to 25: a few rows hold all of the curvature, and they go first."""
    n, d = _size(rng)
    X = rng.normal(size=(n, d))
    margin = X @ rng.normal(size=d) * power(rng, 0.3, 1.2)
    order = tuple(np.argsort(-margin)[: int(rng.integers(1, 4))].tolist())
    return replace(_counted(rng, X, margin), order=order, ridge=power(rng, -2, 2))


@COUNTS
def rare_events(rng: Generator) -> Case:
    """Nearly all counts are 0, and those that are not go one after another."""
    n, d = _size(rng)
    X = rng.normal(size=(n, d))
    case = _counted(rng, X, X @ rng.normal(size=d) / 2 - rng.uniform(2, 6))
    seen = np.flatnonzero(case.y).tolist()
    return replace(case, order=early(rng, seen[: max(len(seen) - 1, 1)], n))


@COUNTS
def outlying_count(rng: Generator) -> Case:
    case = mild_counts(rng)
    case.y[0] = np.floor(power(rng, 2, 7))
    return replace(case, order=early(rng, [0], len(case.y)))


@COUNTS
def high_leverage_counts(rng: Generator) -> Case:
    case = mild_counts(rng)
    case.X[0] *= power(rng, 0.5, 2)
    case.y[0] = np.floor(power(rng, 0, 5))
    return replace(case, order=early(rng, [0], len(case.y)))


@COUNTS
def scaled_columns_counts(rng: Generator) -> Case:
    case = mild_counts(rng)
    sizes = 10.0 ** rng.uniform(-3, 3, size=case.X.shape[1])
    return replace(case, X=case.X * sizes)


@COUNTS
def sparse_counts(rng: Generator) -> Case:
    case = mild_counts(rng)
    kept = rng.random(case.X.shape) < 0.2
    return replace(case, X=case.X * kept)


@COUNTS
def dependent_columns_counts(rng: Generator) -> Case:
    case = mild_counts(rng)
    X = np.hstack([case.X, case.X @ rng.normal(size=(case.X.shape[1], 2))])
    return replace(case, X=X, ridge=power(rng, -6, 0))


@COUNTS
def rates(rng: Generator) -> Case:
    """Counts over their exposures, weighted by these."""
    case = mild_counts(rng)
    exposure = 10.0 ** rng.uniform(-2, 3, size=len(case.y))
    return replace(case, y=case.y / exposure, weight=exposure)


# -- classes ---------------------------------------------------------------------------------


def _labels(rng: Generator, margin: Array) -> Array:
    """Return labels drawn by their chances, each class at least once."""
    gumbel = -np.log(-np.log(rng.random(margin.shape)))
    y = np.argmax(margin + gumbel, axis=1)
    C = margin.shape[1]
    y[:C] = np.arange(C)
    return np.asarray(y, dtype=np.float64)


def _classed(rng: Generator, scale: float = 1.0) -> Case:
    n, d = _size(rng, columns=4)
    C = int(rng.integers(3, 6))
    X = rng.normal(size=(n, d))
    y = _labels(rng, scale * (X @ rng.normal(size=(d, C))))
    return Case(X, y, power(rng, -3, 1), intercept=_either(rng), deletions=4)


@CLASSES
def mild_classes(rng: Generator) -> Case:
    return _classed(rng)


@CLASSES
def separable_classes(rng: Generator) -> Case:
    return replace(_classed(rng, power(rng, 0.5, 2)), ridge=power(rng, -5, -1))


@CLASSES
def saturated_classes(rng: Generator) -> Case:
    case = _classed(rng)
    return replace(case, X=case.X * 10.0 ** rng.uniform(-1, 2, size=(len(case.X), 1)))


@CLASSES
def rare_class(rng: Generator) -> Case:
    """All rows of one class but one go first, then that one."""
    case = _classed(rng)
    y = case.y.copy()
    y[(y == 0.0) & (rng.random(len(y)) < 0.9)] = 1.0
    y[:3] = [0.0, 1.0, 2.0]
    return replace(case, y=y, order=tuple(np.flatnonzero(y == 0.0)[::-1].tolist()))


@CLASSES
def mislabelled_classes(rng: Generator) -> Case:
    case = _classed(rng, 20.0)
    C = int(case.y.max()) + 1
    wrong = rng.permutation(np.arange(C, len(case.y)))[: int(rng.integers(1, 4))]
    case.y[wrong] = (case.y[wrong] + 1) % C
    return replace(case, order=tuple(wrong.tolist()), ridge=power(rng, -5, -1))


@CLASSES
def high_leverage_class_row(rng: Generator) -> Case:
    case = _classed(rng)
    case.X[0] *= power(rng, 1, 4)
    return replace(case, order=early(rng, [0], len(case.y)))


@CLASSES
def scaled_columns_classes(rng: Generator) -> Case:
    case = _classed(rng)
    return replace(case, X=case.X * 10.0 ** rng.uniform(-3, 3, size=case.X.shape[1]))


@CLASSES
def sparse_classes(rng: Generator) -> Case:
    case = _classed(rng)
    return replace(case, X=case.X * (rng.random(case.X.shape) < 0.2))


@CLASSES
def dependent_columns_classes(rng: Generator) -> Case:
    case = _classed(rng)
    X = np.hstack([case.X, case.X @ rng.normal(size=(case.X.shape[1], 2))])
    return replace(case, X=X, ridge=power(rng, -6, 0))


@CLASSES
def weighted_classes(rng: Generator) -> Case:
    case = _classed(rng)
    return replace(case, weight=10.0 ** rng.uniform(-4, 4, size=len(case.y)))
