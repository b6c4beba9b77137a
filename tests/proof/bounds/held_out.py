"""Families that are held out: whoever works on the engine's constants does not look here.

Different in kind from `families` and `hard_labels`: classical matrices of numerical analysis,
adversarial orders, heavy tails, cancellation, and batches past the engine's block of 256 rows.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.random import Generator

from tests.proof.bounds.case import Array, Case, Families, early, power

LINEAR = Families()
LABELS = Families()


def _coin(rng: Generator) -> bool:
    return bool(rng.integers(2))


def _by_leverage(X: Array, ridge: float, most: int = 12) -> tuple[int, ...]:
    """Return rows in the order in which each has the highest leverage of those that remain."""
    left, order = list(range(len(X))), []
    for _ in range(min(most, len(X) - 1)):
        rows = X[left]
        gram = rows.T @ rows + max(ridge, 1e-12 * float(np.sum(rows**2))) * np.eye(X.shape[1])
        leverage = np.einsum("ij,ji->i", rows, np.linalg.solve(gram, rows.T))
        order.append(left.pop(int(np.argmax(leverage))))
    return tuple(order)


@LINEAR
def graded_spectrum(rng: Generator) -> Case:
    """U diag(s) V' with geometric s, and a target mostly along the weakest direction."""
    n, d = int(rng.integers(20, 61)), int(rng.integers(4, 12))
    U, _ = np.linalg.qr(rng.normal(size=(n, d)))
    V, _ = np.linalg.qr(rng.normal(size=(d, d)))
    s = np.logspace(rng.uniform(0, 4), rng.uniform(-5, -1), d)
    y = U[:, -1] * power(rng, 0, 3) + 1e-3 * rng.normal(size=n)
    return Case((U * s) @ V.T, y, float(s[-1] ** 2) * power(rng, -2, 2), intercept=_coin(rng))


@LINEAR
def vandermonde(rng: Generator) -> Case:
    n, d = int(rng.integers(15, 50)), int(rng.integers(3, 9))
    points = np.sort(rng.uniform(-1, 1, size=n)) * power(rng, -0.5, 0.7)
    X = np.vander(points, d + 1)[:, :-1]
    ends = list(range(3)) + list(range(n - 3, n))
    y = np.cos(3 * points) + 1e-2 * rng.normal(size=n)
    ridge = power(rng, -9, -2)
    return Case(X, y, ridge, intercept=_coin(rng), order=early(rng, ends, n))


@LINEAR
def hilbert(rng: Generator) -> Case:
    n, d = int(rng.integers(10, 40)), int(rng.integers(3, 10))
    X = 1.0 / (np.arange(n)[:, None] + np.arange(d)[None, :] + 1.0)
    y = X @ rng.normal(size=d) + power(rng, -8, 0) * rng.normal(size=n)
    first = tuple(range(int(rng.integers(1, 6))))
    return Case(X, y, power(rng, -12, -4), intercept=_coin(rng), order=first)


@LINEAR
def lauchli(rng: Generator) -> Case:
    """A row of ones over a small multiple of the identity; the ones go."""
    d = int(rng.integers(3, 12))
    small = power(rng, -6, -1)
    X = np.vstack([np.ones((2, d)), small * np.eye(d), small * rng.normal(size=(6, d))])
    y = rng.normal(size=len(X))
    ridge = small**2 * power(rng, -2, 2)
    return Case(X, y, ridge, order=early(rng, [0, 1], len(X)))


@LINEAR
def by_leverage(rng: Generator) -> Case:
    n, d = int(rng.integers(15, 60)), int(rng.integers(2, 10))
    X = rng.standard_t(1.5, size=(n, d))
    y = rng.standard_t(1.5, size=n)
    ridge = power(rng, -6, 0)
    order = _by_leverage(X, ridge)
    return Case(X, y, ridge, intercept=_coin(rng), order=order, batches=(1,) * 8)


@LINEAR
def orthogonal_outliers(rng: Generator) -> Case:
    """Long rows along one axis each, of sizes that alternate between large and enormous."""
    d = int(rng.integers(3, 10))
    n = int(rng.integers(3 * d, 60))
    X, y = rng.normal(size=(n, d)), rng.normal(size=n)
    large = 10.0 ** np.where(np.arange(d) % 2, rng.uniform(1, 2), rng.uniform(3, 5))
    X[:d] = np.diag(large) + 1e-3 * rng.normal(size=(d, d))
    y[:d] = large * rng.normal(size=d)
    return Case(X, y, power(rng, -3, 1), intercept=_coin(rng), order=tuple(rng.permutation(d)))


@LINEAR
def cauchy(rng: Generator) -> Case:
    n, d = int(rng.integers(10, 70)), int(rng.integers(1, 11))
    X = rng.standard_cauchy(size=(n, d))
    y = X @ rng.normal(size=d) + rng.standard_cauchy(size=n)
    order = tuple(np.argsort(-np.abs(X).max(axis=1))[:10].tolist())
    return Case(X, y, power(rng, -4, 1), intercept=_coin(rng), order=order)


@LINEAR
def nearly_exact_fit(rng: Generator) -> Case:
    """The target is in the range of X but for its last digits."""
    n, d = int(rng.integers(10, 60)), int(rng.integers(2, 11))
    X = rng.normal(size=(n, d)) * 10.0 ** rng.uniform(-2, 2, size=(n, 1))
    y = X @ (rng.normal(size=d) * power(rng, -2, 6)) * (1.0 + 1e-14 * rng.normal(size=n))
    return Case(X, y, power(rng, -14, -6), intercept=_coin(rng))


@LINEAR
def far_from_the_origin(rng: Generator) -> Case:
    n, d = int(rng.integers(10, 60)), int(rng.integers(1, 5))
    X = rng.normal(size=(n, d)) + power(rng, 0, 4) * rng.normal(size=d)
    y = rng.normal(size=n) + power(rng, 3, 7)
    return Case(X, y, power(rng, -2, 2), intercept=True)


@LINEAR
def graded_weights(rng: Generator) -> Case:
    n, d = int(rng.integers(10, 60)), int(rng.integers(1, 10))
    X, y = rng.normal(size=(n, d)), rng.normal(size=n)
    weight = np.logspace(rng.uniform(2, 7), rng.uniform(-7, -2), n)
    first = tuple(range(n)) if _coin(rng) else tuple(range(n))[::-1]
    return Case(X, y, power(rng, -3, 1), intercept=_coin(rng), weight=weight, order=first)


@LINEAR
def blocks_of_equal_rows(rng: Generator) -> Case:
    """Each distinct row several times over; the copies of the longest go one at a time."""
    distinct, times = int(rng.integers(3, 8)), int(rng.integers(2, 7))
    d = int(rng.integers(2, 10))
    X = np.repeat(rng.normal(size=(distinct, d)) * power(rng, 0, 3), times, axis=0)
    X[:times] *= power(rng, 0, 4)
    y = rng.normal(size=len(X))
    order = tuple(range(times + 2))
    ridge = power(rng, -6, 0)
    return Case(X, y, ridge, intercept=_coin(rng), order=order, batches=(1,) * times, keep=2)


@LINEAR
def tiny_then_huge_batches(rng: Generator) -> Case:
    n, d = int(rng.integers(320, 700)), int(rng.integers(2, 7))
    X = rng.normal(size=(n, d))
    X[rng.integers(n, size=3)] *= power(rng, 1, 4)
    y = rng.normal(size=n)
    batches = (1, 2, int(rng.integers(257, 290)), 1, n)
    ridge = power(rng, -3, 1)
    return Case(X, y, ridge, intercept=_coin(rng), batches=batches, deletions=5)


@LINEAR
def opposite_pairs(rng: Generator) -> Case:
    """Long rows in pairs x, -x that cancel in the mean but not in the Hessian."""
    n, d = int(rng.integers(12, 50)), int(rng.integers(1, 9))
    X, y = rng.normal(size=(n, d)), rng.normal(size=n)
    pairs = int(rng.integers(1, 4))
    X[:pairs] *= 10.0 ** rng.uniform(1, 5, size=(pairs, 1))
    X[pairs : 2 * pairs] = -X[:pairs]
    order = early(rng, list(range(2 * pairs)), n, among=1)
    return Case(X, y, power(rng, -4, 2), intercept=_coin(rng), order=order)


@LINEAR
def one_hot(rng: Generator) -> Case:
    """Categories, of which one vanishes; with an intercept the columns add up to it."""
    n, d = int(rng.integers(15, 70)), int(rng.integers(2, 9))
    X = np.eye(d)[rng.integers(d, size=n)] * (1.0 if _coin(rng) else power(rng, 0, 4))
    y = rng.normal(size=n) * power(rng, 0, 5)
    first = np.flatnonzero(X[:, 0])
    return Case(X, y, power(rng, -10, 0), intercept=_coin(rng), order=tuple(first.tolist()))


@LINEAR
def kahan(rng: Generator) -> Case:
    """Kahan's triangle, on which pivots say nothing of the smallest singular value."""
    d = int(rng.integers(4, 14))
    c = float(rng.uniform(0.2, 0.6))
    s = np.sqrt(1 - c * c)
    triangle = s ** np.arange(d)[:, None] * (np.eye(d) - c * np.triu(np.ones((d, d)), 1))
    X = np.vstack([triangle, 1e-3 * rng.normal(size=(8, d)), power(rng, 0, 3) * rng.normal(size=d)])
    y = rng.normal(size=len(X))
    ridge = power(rng, -10, -4)
    return Case(X, y, ridge, order=early(rng, [len(X) - 1, 0, 1], len(X)))


@LINEAR
def units_that_differ(rng: Generator) -> Case:
    """Columns in units from 1e-4 to 1e4, as raw data have them."""
    n, d = int(rng.integers(15, 60)), int(rng.integers(2, 9))
    X = rng.lognormal(size=(n, d)) * 10.0 ** rng.uniform(-4, 4, size=d)
    y = rng.lognormal(size=n, sigma=2.0)
    return Case(X, y, power(rng, -4, 2), intercept=_coin(rng))


@LINEAR
def whole_numbers_in_single_precision(rng: Generator) -> Case:
    n, d = int(rng.integers(15, 60)), int(rng.integers(1, 8))
    X = rng.integers(-(10**6), 10**6, size=(n, d)).astype(np.float32)
    X[2:] = np.round(X[2:] / 10.0 ** rng.uniform(2, 5))
    y = rng.integers(-100, 100, size=n).astype(np.float64)
    return Case(X, y, power(rng, -3, 3), intercept=_coin(rng), order=early(rng, [0, 1], n))


@LINEAR
def targets_that_differ(rng: Generator) -> Case:
    n, d, m = int(rng.integers(15, 50)), int(rng.integers(2, 8)), int(rng.integers(2, 5))
    X = rng.standard_t(2, size=(n, d))
    y = X @ rng.normal(size=(d, m)) * np.logspace(-8, 4, m) + 1e-10 * rng.normal(size=(n, m))
    ridge = power(rng, -8, 0)
    return Case(X, y, ridge, intercept=_coin(rng), order=_by_leverage(X, ridge))


@LINEAR
def chain_of_outliers(rng: Generator) -> Case:
    """Each outlier is ten times the next and nearly parallel to it: each step reveals the next."""
    n, d = int(rng.integers(16, 50)), int(rng.integers(2, 9))
    X, y = rng.normal(size=(n, d)), rng.normal(size=n)
    links = int(rng.integers(3, 6))
    along = rng.normal(size=d)
    for i in range(links):
        X[i] = 10.0 ** (links - i) * (along + power(rng, -6, -1) * rng.normal(size=d))
        y[i] = 10.0 ** (links - i) * rng.normal()
    order = tuple(range(links)) if _coin(rng) else tuple(range(links))[::-1]
    ridge = power(rng, -4, 1)
    return Case(X, y, ridge, intercept=_coin(rng), order=order, batches=(1,) * links)


# -- labels --------------------------------------------------------------------------------------


def _both(y: Array) -> Array:
    y[0], y[1] = 0.0, 1.0
    return y


def _drawn(rng: Generator, margin: Array) -> Array:
    ones = rng.random(len(margin)) < 0.5 + 0.5 * np.tanh(margin / 2)
    return _both(ones.astype(np.float64))


@LABELS
def categories(rng: Generator) -> Case:
    """One-hot features; some category becomes pure as rows go."""
    n, d = int(rng.integers(30, 200)), int(rng.integers(2, 8))
    group = rng.integers(d, size=n)
    y = _drawn(rng, 3.0 * rng.normal(size=d)[group])
    order = np.flatnonzero((group == group[0]) & (y == y[0]))
    X, ridge = np.eye(d)[group], power(rng, -5, 0)
    return Case(X, y, ridge, intercept=_coin(rng), order=tuple(order.tolist()), deletions=6)


@LABELS
def heavy_tails(rng: Generator) -> Case:
    n, d = int(rng.integers(25, 150)), int(rng.integers(1, 7))
    X = rng.standard_cauchy(size=(n, d))
    y = _drawn(rng, X @ rng.normal(size=d))
    order = tuple(np.argsort(-np.abs(X).max(axis=1))[:8].tolist())
    return Case(X, y, power(rng, -4, 0), intercept=_coin(rng), order=order, deletions=6)


@LABELS
def worst_fitted_first(rng: Generator) -> Case:
    """Rows go in the order in which the truth contradicts them, a few at a time."""
    n, d = int(rng.integers(30, 150)), int(rng.integers(1, 7))
    X = rng.normal(size=(n, d))
    margin = 2.0 * X @ rng.normal(size=d)
    y = _drawn(rng, margin)
    order = tuple(np.argsort((2 * y - 1) * margin).tolist())
    batches = tuple(rng.integers(1, 8, size=5).tolist())
    ridge = power(rng, -7, -1)
    return Case(X, y, ridge, intercept=_coin(rng), order=order, batches=batches, deletions=5)


@LABELS
def units_of_all_sizes(rng: Generator) -> Case:
    """Positive columns in units from 1e-3 to 1e3, and a free intercept beside them."""
    n, d = int(rng.integers(30, 120)), int(rng.integers(1, 6))
    X = rng.lognormal(size=(n, d))
    y = _drawn(rng, 2.0 * (X - 1.5) @ rng.normal(size=d))
    X = X * 10.0 ** rng.uniform(-3, 3, size=d)
    return Case(X, y, power(rng, -5, 0), intercept=True, deletions=5)


@LABELS
def both_labels_on_equal_rows(rng: Generator) -> Case:
    """Each row twice with either label; one label goes, row by row or at once."""
    half, d = int(rng.integers(12, 60)), int(rng.integers(1, 6))
    once = rng.normal(size=(half, d))
    X = np.vstack([once, once])
    y = np.concatenate([np.zeros(half), np.ones(half)])
    toward = np.where(once[:, 0] > 0, 0, half) + np.arange(half)
    batches = ((half + 1) // 2, half // 4, 1, 1, half) if _coin(rng) else (2,) * 6
    case = Case(X, y, power(rng, -5, -1), intercept=_coin(rng), order=tuple(toward.tolist()))
    return replace(case, batches=batches, deletions=5)


@LABELS
def graded_weights_and_labels(rng: Generator) -> Case:
    n, d = int(rng.integers(25, 120)), int(rng.integers(1, 7))
    X = rng.normal(size=(n, d))
    weight = rng.permutation(np.logspace(-4, rng.uniform(0, 4), n))
    y = _drawn(rng, 2.0 * X @ rng.normal(size=d))
    order = tuple(np.argsort(-weight)[:6].tolist())
    case = Case(X, y, power(rng, -4, 0), intercept=_coin(rng), weight=weight, order=order)
    return replace(case, deletions=6)


@LABELS
def saturated_against_the_rest(rng: Generator) -> Case:
    """A few long rows with the wrong label hold theta; then they go."""
    n, d = int(rng.integers(30, 150)), int(rng.integers(1, 7))
    X = rng.normal(size=(n, d))
    truth = rng.normal(size=d)
    y = _drawn(rng, 5.0 * X @ truth)
    few = int(rng.integers(1, 5))
    X[2 : 2 + few] *= power(rng, 0.5, 2.5)
    y[2 : 2 + few] = X[2 : 2 + few] @ truth < 0
    order = tuple(range(2, 2 + few))
    batches = (few,) if _coin(rng) else (1,) * few
    ridge = power(rng, -6, -1)
    return Case(X, y, ridge, intercept=_coin(rng), order=order, batches=batches, deletions=5)


@LABELS
def staircase(rng: Generator) -> Case:
    """Ordered by one feature with a few labels out of order: separation is a row or two away."""
    n = int(rng.integers(20, 100))
    X = np.column_stack([np.linspace(-2, 2, n), rng.normal(size=(n, int(rng.integers(0, 4))))])
    y = (np.arange(n) >= n // 2).astype(np.float64)
    out = n // 2 + rng.permutation(np.arange(-3, 3))[: int(rng.integers(1, 5))]
    y[out] = 1.0 - y[out]
    order = tuple(out.tolist())
    return Case(X, y, power(rng, -8, -2), intercept=_coin(rng), order=order, deletions=6)


@LABELS
def sampled_rows_of_one_region(rng: Generator) -> Case:
    """More rows than the estimate samples; those that go lie in one corner."""
    n, d = int(rng.integers(300, 700)), int(rng.integers(2, 6))
    X = rng.standard_t(3, size=(n, d))
    y = _drawn(rng, 2.0 * X @ rng.normal(size=d))
    order = tuple(np.argsort(-X[:, 0] - X[:, 1]).tolist())
    batches = tuple(int(n * share) for share in (0.1, 0.05, 0.2, 0.2))
    ridge = power(rng, -4, 0)
    return Case(X, y, ridge, intercept=_coin(rng), order=order, batches=batches, deletions=4)
