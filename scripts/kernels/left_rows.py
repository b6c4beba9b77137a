"""Which rows leave, for section ``recomputed``: mild tables, and what makes V lose digits."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import numpy as np
from numpy.random import Generator

from harness.results import ROOT
from lethe.engine.fit.objective import Array, Kind, Rows

sys.path.insert(0, str(ROOT))  # families that are hostile to bounds are the tests' own

from tests.proof.bounds import families, hard_labels, held_out
from tests.proof.bounds.case import Case, Families, power
from tests.proof.bounds.stream import batches

Table = tuple[Array, float, int]
"""Rows, the ridge, and how many of the first rows leave."""


@dataclass(frozen=True, slots=True)
class Drawn:
    """Rows of a model, and the places of those that leave, request by request.

    The last row is not among those of the fit: somebody typed it too large.
    """

    rows: Rows
    penalty: Array
    requests: list[list[int]]


def tables(kind: Kind) -> dict[str, Callable[[Generator], Drawn]]:
    """Return what to draw, by name; the tests' families are in two sets."""
    own: dict[str, Callable[[Generator], Drawn]] = {}
    own |= {name: partial(_own, kind, draw) for name, draw in _OWN.items()}
    if kind is Kind.LOGISTIC:
        sets = {"hard labels": hard_labels.HARD, "labels held out": held_out.LABELS}
    else:
        sets = {"hostile": families.HOSTILE, "held out": held_out.LINEAR}
    return own | {name: partial(_any_of, chosen) for name, chosen in sets.items()}


def _any_of(chosen: Families, rng: Generator) -> Drawn:
    """Draw one of the tests' families, and a case of it."""
    names = list(chosen.named)
    case = chosen.named[names[int(rng.integers(len(names)))]](rng)
    return _drawn(rng, case, list(batches(case, rng)))


def _own(kind: Kind, draw: Callable[[Generator], Table], rng: Generator) -> Drawn:
    """Give rows targets; the first and a quarter of the others leave, one by one or by seven."""
    X, ridge, first = draw(rng)
    n, d = X.shape
    scale = np.maximum(np.linalg.norm(X, axis=0), 1e-300) / np.sqrt(n)
    signal = np.clip(X @ (rng.standard_normal(d) / scale) / np.sqrt(d), -30.0, 30.0)
    y = signal + 0.3 * rng.standard_normal(n)
    if kind is Kind.LOGISTIC:
        y = (rng.random(n) < 1.0 / (1.0 + np.exp(-signal))).astype(np.float64)
    leaving = [*range(first), *(first + rng.permutation(n - first)[: (n - first) // 4])]
    order = [int(leaving[i]) for i in rng.permutation(len(leaving))]
    k = int(rng.choice([1, 7]))
    return _drawn(rng, Case(X, y, ridge), [order[i : i + k] for i in range(0, len(order), k)])


def _drawn(rng: Generator, case: Case, requests: list[list[int]]) -> Drawn:
    n = len(case.X)
    X = np.asarray(case.X, dtype=np.float64)
    X = np.vstack([X, X[-1] * power(rng, 2, 6)])
    penalty = np.full(X.shape[1], case.ridge)
    if case.intercept:
        X = np.hstack([X, np.ones((n + 1, 1))])
        penalty = np.append(penalty, case.ridge if case.penalise_intercept else 0.0)
    y = case.y.reshape(n, -1)
    weight = np.ones(n) if case.weight is None else case.weight
    rows = Rows(X, np.vstack([y, y[-1:]]), np.append(weight, 1.0))
    return Drawn(rows, penalty, requests)


def _sizes(rng: Generator) -> tuple[int, int]:
    return int(rng.integers(60, 301)), int(rng.integers(4, 41))


def _benign(rng: Generator) -> Table:
    return rng.standard_normal(_sizes(rng)), 1.0, 0


def _scaled(rng: Generator, decades: float) -> Table:
    """Return rows with a Hessian of condition 10^decades, along the axes or turned."""
    n, d = _sizes(rng)
    least = 10.0 ** (-decades / 2)
    X = rng.standard_normal((n, d)) * np.logspace(0.0, np.log10(least), d)
    if rng.integers(2):
        X = X @ np.linalg.qr(rng.standard_normal((d, d)))[0]
    return X, n * least**2 * 0.01, 0


def _leveraged(rng: Generator, left: float) -> Table:
    """Three rows of leverage 1 - ``left``, in directions of their own."""
    X = rng.standard_normal(_sizes(rng))
    d = X.shape[1]
    turn = np.linalg.qr(rng.standard_normal((d, d)))[0]
    inverse = np.linalg.inv(X[3:].T @ X[3:] + np.eye(d))
    for row, u in enumerate(turn[:3]):
        X[row] = u * np.sqrt((1.0 / left - 1.0) / (u @ inverse @ u))
    return X, 1.0, 3


def _duplicates(rng: Generator) -> Table:
    """Almost copies of three rows, all of which leave."""
    X = rng.standard_normal(_sizes(rng))
    for i in range(3, 15):
        X[i] = X[i % 3] + power(rng, -14, -4) * rng.standard_normal(X.shape[1])
    return X, power(rng, -4, 0), 15


def _injected(rng: Generator) -> Table:
    """Sparse rows, and a column that only five rows have, which leave: feature injection."""
    n, d = _sizes(rng)
    X = rng.standard_normal((n, d)) * (rng.random((n, d)) < 0.2)
    X[:, 0] = np.arange(n) < 5
    return X, power(rng, -7, 0), 5


def _low_ridge(rng: Generator) -> Table:
    """Little more rows than columns, next to no ridge, ten long rows."""
    d = int(rng.integers(4, 41))
    X = rng.standard_normal((max(60, d + 20), d))
    X[:10] *= power(rng, 0, 3)
    return X, power(rng, -12, -6), 10


_OWN: dict[str, Callable[[Generator], Table]] = {
    "benign": _benign,
    **{f"condition 1e{n}": partial(_scaled, decades=n) for n in (6, 8, 10, 12, 14)},
    **{f"1 - h = 1e-{n}": partial(_leveraged, left=10.0**-n) for n in (4, 6, 8, 9)},
    "near duplicates": _duplicates,
    "injected": _injected,
    "low ridge": _low_ridge,
}
