"""Hostile linear families, on which the engine may be improved; and mild ones to compare with.

Each draws data of a size at which a state takes a millisecond or two. What they have in common is
that some deletion loses digits: the rows that go stand out, or the matrix that stays is nearly
singular.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.random import Generator

from tests.proof.bounds.case import Array, Case, Families, early, power

HOSTILE = Families()
MILD = Families()


def _size(rng: Generator, rows: int = 60, columns: int = 12) -> tuple[int, int]:
    d = int(rng.integers(1, columns + 1))
    return int(rng.integers(max(d + 3, 8), max(rows, d + 6))), d


def _plain(rng: Generator, n: int, d: int, noise: float = 1.0) -> tuple[Array, Array]:
    X = rng.normal(size=(n, d))
    return X, X @ rng.normal(size=d) + noise * rng.normal(size=n)


def _ridge(rng: Generator) -> float:
    return power(rng, -4, 1)


def _either(rng: Generator) -> bool:
    return bool(rng.random() < 0.5)


def _with_singular_values(rng: Generator, X: Array, smallest: float, *, rotated: bool) -> Array:
    """Return X with columns graded down to ``smallest``, along the axes or rotated."""
    d = X.shape[1]
    graded = X * np.logspace(0.0, np.log10(smallest), d)
    if not rotated:
        return np.asarray(graded[:, rng.permutation(d)])
    rotation, _ = np.linalg.qr(rng.normal(size=(d, d)))
    return np.asarray(graded @ rotation)


@HOSTILE
def smallest(rng: Generator) -> Case:
    """Four rows, two columns, one row far longer: the smallest case that was found."""
    X, y = rng.normal(size=(4, 2)), rng.normal(size=4)
    size = power(rng, 1, 3)
    X[0] *= size
    y[0] *= size
    return Case(X, y, 1.0, order=(0,), keep=1)


@HOSTILE
def one_outlier(rng: Generator) -> Case:
    n, d = _size(rng)
    X, y = _plain(rng, n, d)
    size = power(rng, 1, 5)
    X[0] *= size
    y[0] *= size
    return Case(X, y, _ridge(rng), intercept=_either(rng), order=early(rng, [0], n))


@HOSTILE
def outlier_in_features(rng: Generator) -> Case:
    n, d = _size(rng)
    X, y = _plain(rng, n, d)
    X[0] *= power(rng, 1, 5)
    return Case(X, y, _ridge(rng), intercept=_either(rng), order=early(rng, [0], n))


@HOSTILE
def outlier_in_target(rng: Generator) -> Case:
    n, d = _size(rng)
    X, y = _plain(rng, n, d)
    y[0] *= power(rng, 1, 5)
    return Case(X, y, _ridge(rng), intercept=_either(rng), order=early(rng, [0], n))


@HOSTILE
def several_outliers(rng: Generator) -> Case:
    n, d = _size(rng)
    X, y = _plain(rng, n, d)
    several = int(rng.integers(2, 6))
    sizes = 10.0 ** rng.uniform(1, 5, size=several)
    X[:several] *= sizes[:, None]
    y[:several] *= sizes
    order = early(rng, list(range(several)), n)
    return Case(X, y, _ridge(rng), intercept=_either(rng), order=order)


@HOSTILE
def near_copies(rng: Generator) -> Case:
    """An outlier and up to three rows that are nearly the same, deleted one after another."""
    n, d = _size(rng)
    X, y = _plain(rng, n, d)
    copies = int(rng.integers(1, 4))
    X[0] *= power(rng, 0, 4)
    for i in range(1, copies + 1):
        X[i] = X[0] * (1.0 + power(rng, -12, -2) * rng.normal(size=d))
        y[i] = y[0] * (1.0 + power(rng, -12, -2) * rng.normal())
    order = early(rng, list(range(copies + 1)), n)
    return Case(X, y, _ridge(rng), intercept=_either(rng), order=order, batches=(1,) * 4)


@HOSTILE
def near_copies_and_compacts(rng: Generator) -> Case:
    return replace(near_copies(rng), refreshing=0.9)


@HOSTILE
def weights(rng: Generator) -> Case:
    n, d = _size(rng)
    X, y = _plain(rng, n, d)
    weight = 10.0 ** rng.uniform(-6, 6, size=n)
    return Case(X, y, _ridge(rng), intercept=_either(rng), weight=weight)


@HOSTILE
def heavy_weights_first(rng: Generator) -> Case:
    n, d = _size(rng)
    X, y = _plain(rng, n, d)
    weight = 10.0 ** rng.uniform(-6, 6, size=n)
    order = tuple(np.argsort(-weight).tolist())
    return Case(X, y, _ridge(rng), intercept=_either(rng), weight=weight, order=order)


@HOSTILE
def condition_rotated(rng: Generator) -> Case:
    """A Hessian of condition 1e4 to 1e12, its axes in general position."""
    n, d = _size(rng)
    d = max(d, 2)
    X, y = _plain(rng, n, d)
    least = power(rng, -6, -2)
    X = _with_singular_values(rng, X, least, rotated=True)
    return Case(X, y, least**2 * power(rng, -2, 0), intercept=_either(rng))


@HOSTILE
def condition_axes(rng: Generator) -> Case:
    n, d = _size(rng)
    d = max(d, 2)
    X, y = _plain(rng, n, d)
    least = power(rng, -6, -2)
    X = _with_singular_values(rng, X, least, rotated=False)
    return Case(X, y, least**2 * power(rng, -2, 0), intercept=_either(rng))


@HOSTILE
def condition_and_outlier(rng: Generator) -> Case:
    n, d = _size(rng)
    d = max(d, 2)
    X, y = _plain(rng, n, d)
    least = power(rng, -4, -1)
    X = _with_singular_values(rng, X, least, rotated=_either(rng))
    X[0] *= power(rng, 1, 3)
    order = early(rng, [0], n)
    return Case(X, y, least**2 * power(rng, -2, 1), intercept=_either(rng), order=order)


@HOSTILE
def fewer_rows_than_columns(rng: Generator) -> Case:
    d = int(rng.integers(6, 16))
    n = int(rng.integers(6, d + 1))
    X, y = _plain(rng, n, d)
    if _either(rng):
        X[0] *= power(rng, 1, 4)
    ridge = power(rng, -6, 1)
    return Case(X, y, ridge, intercept=_either(rng), order=early(rng, [0], n), keep=1)


@HOSTILE
def constant_columns(rng: Generator) -> Case:
    n, d = _size(rng)
    X, y = _plain(rng, n, d + 2)
    X[:, 0] = power(rng, -2, 2)
    X[:, -1] = 0.0
    return Case(X, y, power(rng, -6, 0), intercept=_either(rng))


@HOSTILE
def duplicated_columns(rng: Generator) -> Case:
    n, d = _size(rng, columns=7)
    X, y = _plain(rng, n, d)
    X = np.hstack([X, X + (0.0 if _either(rng) else power(rng, -10, -5)) * rng.normal(size=(n, d))])
    X[0] *= power(rng, 0, 3)
    ridge = power(rng, -6, 0)
    return Case(X, y, ridge, intercept=_either(rng), order=early(rng, [0], n))


@HOSTILE
def down_to_a_few(rng: Generator) -> Case:
    """Nearly all rows go, in a few large batches, where an outlier may be among them."""
    n, d = _size(rng)
    X, y = _plain(rng, n, d)
    if _either(rng):
        X[0] *= power(rng, 1, 4)
    parts = int(rng.integers(1, 4))
    batches = (max(1, (n - 5) // parts),) * parts + (n,)
    return Case(X, y, power(rng, -6, 1), intercept=_either(rng), batches=batches)


@HOSTILE
def single_precision(rng: Generator) -> Case:
    case = one_outlier(rng) if _either(rng) else several_outliers(rng)
    return replace(case, X=case.X.astype(np.float32))


@HOSTILE
def tiny_ridge(rng: Generator) -> Case:
    n, d = _size(rng)
    X, y = _plain(rng, n, d)
    X[0] *= power(rng, 0, 3)
    ridge = power(rng, -14, -6)
    return Case(X, y, ridge, intercept=_either(rng), order=early(rng, [0], n))


@HOSTILE
def huge_ridge(rng: Generator) -> Case:
    n, d = _size(rng)
    X, y = _plain(rng, n, d)
    X[0] *= power(rng, 0, 6)
    ridge = power(rng, 3, 10)
    return Case(X, y, ridge, intercept=_either(rng), order=early(rng, [0], n))


@HOSTILE
def penalised_intercept(rng: Generator) -> Case:
    return replace(one_outlier(rng), intercept=True, penalise_intercept=True)


@HOSTILE
def several_targets(rng: Generator) -> Case:
    n, d = _size(rng)
    X = rng.normal(size=(n, d))
    y = X @ rng.normal(size=(d, 3)) + rng.normal(size=(n, 3)) * 10.0 ** rng.uniform(-3, 3, size=3)
    size = power(rng, 0, 4)
    X[0] *= size
    y[0] *= size
    return Case(X, y, _ridge(rng), intercept=_either(rng), order=early(rng, [0], n))


@HOSTILE
def large_targets(rng: Generator) -> Case:
    n, d = _size(rng)
    X, y = _plain(rng, n, d)
    y = y * power(rng, 0, 6) + power(rng, 0, 8)
    X[0] *= power(rng, 0, 3)
    return Case(X, y, _ridge(rng), intercept=_either(rng), order=early(rng, [0], n))


@HOSTILE
def columns_off_centre(rng: Generator) -> Case:
    n, d = _size(rng)
    X, y = _plain(rng, n, d)
    X += power(rng, 0, 4) * rng.normal(size=d)
    return Case(X, y, _ridge(rng), intercept=True)


@HOSTILE
def vanishing_columns(rng: Generator) -> Case:
    """Columns that only the rows have that are deleted: 1 - leverage is about the ridge."""
    n, d = _size(rng)
    X, y = _plain(rng, n, d + 1)
    having = int(rng.integers(1, 4))
    X[having:, 0] = 0.0
    X[:having, 0] = rng.normal(size=having) * power(rng, 0, 3)
    order = early(rng, list(range(having)), n)
    return Case(X, y, power(rng, -8, 0), intercept=_either(rng), order=order)


@HOSTILE
def leverage_near_one(rng: Generator) -> Case:
    """About as many rows as columns and little ridge: each row holds a direction alone."""
    d = int(rng.integers(3, 13))
    n = d + int(rng.integers(0, 4))
    X, y = _plain(rng, n, d)
    return Case(X, y, power(rng, -10, -2), intercept=_either(rng), keep=1)


# -- mild: what the looseness of the bound is compared on -----------------------------------------


@MILD
def isotropic(rng: Generator) -> Case:
    n, d = int(rng.integers(40, 81)), int(rng.integers(2, 13))
    X, y = _plain(rng, n, d)
    return Case(X, y, power(rng, -1, 1))


@MILD
def isotropic_with_intercept(rng: Generator) -> Case:
    return replace(isotropic(rng), intercept=True)


@MILD
def correlated(rng: Generator) -> Case:
    n, d = int(rng.integers(40, 81)), int(rng.integers(2, 13))
    X = rng.normal(size=(n, d)) + rng.normal(size=(n, 1))
    return Case(X, X @ rng.normal(size=d) + rng.normal(size=n), power(rng, -1, 1))


@MILD
def correlated_with_intercept(rng: Generator) -> Case:
    return replace(correlated(rng), intercept=True)
