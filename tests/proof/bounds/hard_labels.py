"""Hard logistic families: what is left by the second order matters, or nearly separates.

Labels are 0 and 1. The sizes go past 256 rows in some, so that the estimate is sampled.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.random import Generator

from tests.proof.bounds.case import Array, Case, Families, early, power

HARD = Families()


def _size(rng: Generator) -> tuple[int, int]:
    d = int(rng.integers(1, 9))
    most = 700 if rng.random() < 0.1 else 120
    return int(rng.integers(max(20, 3 * d), most)), d


def _labels(rng: Generator, margin: Array) -> Array:
    """Return labels drawn by their chances, of both classes."""
    ones = rng.random(len(margin)) < 1.0 / (1.0 + np.exp(-np.clip(margin, -500, 500)))
    y = ones.astype(np.float64)
    y[0], y[1] = 0.0, 1.0
    return y


def _case(rng: Generator, X: Array, y: Array, ridge: float) -> Case:
    return Case(X, y, ridge, intercept=bool(rng.random() < 0.5), deletions=5)


@HARD
def plain(rng: Generator) -> Case:
    n, d = _size(rng)
    X = rng.normal(size=(n, d))
    return _case(rng, X, _labels(rng, X @ rng.normal(size=d)), power(rng, -4, 0))


@HARD
def near_separable(rng: Generator) -> Case:
    n, d = _size(rng)
    X = rng.normal(size=(n, d))
    margin = X @ rng.normal(size=d)
    return _case(rng, X, _labels(rng, margin * power(rng, 0.5, 2)), power(rng, -6, -2))


@HARD
def saturated_rows(rng: Generator) -> Case:
    n, d = _size(rng)
    X = rng.normal(size=(n, d)) * 10.0 ** rng.uniform(-1, 2, size=(n, 1))
    return _case(rng, X, _labels(rng, X @ rng.normal(size=d)), power(rng, -6, 0))


@HARD
def mislabelled(rng: Generator) -> Case:
    """Rows with wrong labels are what holds theta down; all of them go."""
    n, d = _size(rng)
    X = rng.normal(size=(n, d))
    y = _labels(rng, X @ rng.normal(size=d) * 50.0)
    wrong = rng.permutation(np.arange(2, n))[: max(1, int(n * rng.uniform(0.02, 0.1)))]
    y[wrong] = 1.0 - y[wrong]
    parts = int(rng.integers(1, 4))
    batches = (-(-len(wrong) // parts),) * parts
    ridge = 1e-6 if rng.random() < 0.7 else power(rng, -8, -2)
    return replace(_case(rng, X, y, ridge), order=tuple(wrong.tolist()), batches=batches)


@HARD
def few_of_one_class(rng: Generator) -> Case:
    n, d = _size(rng)
    X = rng.normal(size=(n, d))
    y = np.zeros(n)
    few = int(rng.integers(2, 6))
    y[:few] = 1.0
    X[:few] += rng.normal(size=d)
    order = early(rng, list(range(few - 1)), n, among=6)
    return replace(_case(rng, X, y, power(rng, -5, 0)), order=order)


@HARD
def a_class_is_lost(rng: Generator) -> Case:
    n, d = _size(rng)
    X = rng.normal(size=(n, d))
    y = np.ones(n)
    few = int(rng.integers(1, 4))
    y[:few] = 0.0
    case = _case(rng, X, y, power(rng, -4, 0))
    return replace(case, intercept=True, order=early(rng, list(range(few)), n))


@HARD
def outliers(rng: Generator) -> Case:
    n, d = _size(rng)
    X = rng.normal(size=(n, d))
    y = _labels(rng, X @ rng.normal(size=d))
    several = int(rng.integers(1, 5))
    X[:several] *= 10.0 ** rng.uniform(0.5, 3, size=(several, 1))
    order = early(rng, list(range(several)), n)
    return replace(_case(rng, X, y, power(rng, -4, 0)), order=order)


@HARD
def near_copies(rng: Generator) -> Case:
    """Groups of rows that are nearly the same, labelled alike, and deleted together."""
    n, d = _size(rng)
    X = rng.normal(size=(n, d))
    y = _labels(rng, 3.0 * X @ rng.normal(size=d))
    group = int(rng.integers(2, min(12, n // 2)))
    X[2 : group + 2] = X[2] * power(rng, 0, 1) + power(rng, -6, -1) * rng.normal(size=(group, d))
    y[2 : group + 2] = 1.0 - y[2]
    order = tuple(range(2, group + 2))
    batches = (group,) if rng.random() < 0.5 else (1,) * group
    return replace(_case(rng, X, y, power(rng, -5, -1)), order=order, batches=batches)


@HARD
def weights(rng: Generator) -> Case:
    n, d = _size(rng)
    X = rng.normal(size=(n, d))
    y = _labels(rng, 2.0 * X @ rng.normal(size=d))
    weight = 10.0 ** rng.uniform(-3, 3, size=n)
    order = tuple(np.argsort(-weight)[:10].tolist())
    return replace(_case(rng, X, y, power(rng, -4, 0)), weight=weight, order=order)


@HARD
def a_feature_of_few_rows(rng: Generator) -> Case:
    """Nearly all rows that have a feature go: the few that remain decide its coordinate."""
    n, d = _size(rng)
    X = rng.normal(size=(n, d + 1))
    having = int(rng.integers(4, max(5, n // 3)))
    X[having:, 0] = 0.0
    X[:having, 0] = np.abs(X[:having, 0]) * power(rng, 0, 1.5)
    y = _labels(rng, X @ rng.normal(size=d + 1))
    order = tuple(range(having - int(rng.integers(0, 3))))
    sizes = (max(1, having // 2), max(1, having // 4), 2, 1)
    return replace(_case(rng, X, y, power(rng, -5, -1)), order=order, batches=sizes)


@HARD
def large_share(rng: Generator) -> Case:
    """Between a fifth and three quarters of all rows go at once."""
    n, d = _size(rng)
    X = rng.normal(size=(n, d))
    y = _labels(rng, X @ rng.normal(size=d) * power(rng, 0, 1))
    sizes = tuple(int(n * rng.uniform(0.2, 0.5)) for _ in range(2))
    return replace(_case(rng, X, y, power(rng, -4, 0)), batches=sizes)


@HARD
def ill_conditioned(rng: Generator) -> Case:
    n, d = _size(rng)
    d = max(2, d)
    X = rng.normal(size=(n, d)) * np.logspace(0, -rng.uniform(1, 4), d)
    rotation, _ = np.linalg.qr(rng.normal(size=(d, d)))
    X = X @ rotation
    y = _labels(rng, X @ rng.normal(size=d) * power(rng, 0, 1))
    return _case(rng, X, y, power(rng, -6, -2))


@HARD
def against_one_side(rng: Generator) -> Case:
    """All rows on one side of a plane that is not the true one: theta turns."""
    n, d = _size(rng)
    d = max(2, d)
    X = rng.normal(size=(n, d))
    y = _labels(rng, 4.0 * X @ rng.normal(size=d))
    side = np.argsort(-(X @ rng.normal(size=d)) * (2 * y - 1))
    sizes = (max(1, n // 6), max(1, n // 8), 2)
    return replace(_case(rng, X, y, power(rng, -4, -1)), order=tuple(side.tolist()), batches=sizes)


@HARD
def columns_off_centre(rng: Generator) -> Case:
    """Columns with means up to 1e3 times their spread: the intercept's own scale is far away."""
    n, d = int(rng.integers(20, 120)), int(rng.integers(1, 5))
    X = rng.normal(size=(n, d))
    y = _labels(rng, X @ rng.normal(size=d) * 2.0)
    X = X + power(rng, 0, 3) * rng.normal(size=d)
    return replace(_case(rng, X, y, power(rng, -3, 0)), intercept=True)
