"""The sentinels' estimate against the true error, over families, orders of deletion and samples."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

from lethe.engine.error.estimate import remainder_estimate
from lethe.engine.error.sentinels import sample_sentinels
from tests.support.families import Array, Data
from tests.support.oracles import retrain
from tests.support.states import start

N, P = 1200, 20
MANY = 8000
"""Rows of the larger data sets: a sentinel stands for 31 of them."""

DONE = (5, 20, 60, 200)
"""Rows deleted when the estimate is taken."""


@dataclass(frozen=True, slots=True)
class Estimated:
    """One estimate of a model of so many rows: estimate over truth."""

    family: str
    rows: int
    order: str
    deleted: int
    ratio: float


def _data(rng: np.random.Generator, X: Array, strength: float, ridge: float) -> Data:
    u = X @ rng.standard_normal(X.shape[1])
    u = u / u.std() * strength
    y = (rng.random((len(X), 1)) < 1 / (1 + np.exp(-u[:, None]))).astype(np.float64)
    return Data("", "logistic", X, y, np.ones(len(X)), ridge, True, rng.permutation(len(X))[:200])


def _weighted(rng: np.random.Generator) -> Data:
    plain = _data(rng, rng.standard_normal((N, P)), 2.0, 1.0)
    weight = rng.uniform(0.2, 5.0, N)
    return Data("", "logistic", plain.X, plain.y, weight, 1.0, True, plain.deleted)


def _high_leverage(rng: np.random.Generator) -> Data:
    X = rng.standard_normal((N, P))
    X[rng.permutation(N)[:60]] *= 10.0
    return _data(rng, X, 2.0, 1.0)


FAMILIES: dict[str, Callable[[np.random.Generator], Data]] = {
    "benign": lambda g: _data(g, g.standard_normal((N, P)), 1.5, 1.0),
    "strong signal": lambda g: _data(g, g.standard_normal((N, P)), 5.0, 1.0),
    "nearly separable": lambda g: _data(g, g.standard_normal((N, P)), 15.0, 1e-2),
    "anisotropic": lambda g: _data(
        g, g.standard_normal((N, P)) * np.logspace(0.5, -2, P), 2.0, 1e-3
    ),
    "sparse": lambda g: _data(g, g.standard_normal((N, P)) * (g.random((N, P)) < 0.1), 2.0, 0.5),
    "many features": lambda g: _data(g, g.standard_normal((N, 120)), 3.0, 1.0),
    "weighted": _weighted,
    "high leverage": _high_leverage,
    "duplicated": lambda g: _data(
        g, np.repeat(g.standard_normal((N // 4, P)), 4, axis=0), 2.0, 1.0
    ),
}


def _rare(rng: np.random.Generator) -> Data:
    X = rng.standard_normal((MANY, P))
    X[rng.permutation(MANY)[:30]] *= 10.0
    return _data(rng, X, 2.0, 1.0)


def _heavy_tails(rng: np.random.Generator) -> Data:
    X = rng.standard_normal((MANY, P)) * rng.standard_t(3, (MANY, 1))
    return _data(rng, X, 3.0, 1.0)


LARGER: dict[str, Callable[[np.random.Generator], Data]] = {
    "rare long rows": _rare,
    "heavy tails": _heavy_tails,
    "log-normal": lambda g: _data(g, np.exp(g.standard_normal((MANY, P))), 2.0, 1.0),
    "zeros and ones": lambda g: _data(g, (g.random((MANY, P)) < 0.03).astype(np.float64), 2.0, 0.1),
    "anisotropic, larger": lambda g: _data(
        g, g.standard_normal((MANY, P)) * np.logspace(0.5, -2, P), 2.0, 1e-3
    ),
}
"""Of the estimate only the number of standard errors was chosen with these in view."""


def measure(family: str, number: int, samples: int) -> Iterator[Estimated]:
    """Yield estimates of one data set: every order, 4 counts of deletions, ``samples`` samples.

    A sample is drawn as the engine draws it, when the generation begins; deleted rows leave it.
    """
    source = FAMILIES if family in FAMILIES else LARGER
    data = source[family](np.random.default_rng([11, number, sorted(source).index(family)]))
    for order, done, ratio in ratios(data, samples):
        yield Estimated(family, len(data.X), order, done, ratio)


def ratios(data: Data, samples: int) -> Iterator[tuple[str, int, float]]:
    """Yield order, count of deletions, and estimate over true error of a data set."""
    state = start(data)
    names = tuple(map(str, range(len(data.X))))
    drawn = [
        sample_sentinels(state.generation, names, state.rows, state.made.dual_rows, seed)
        for seed in range(samples)
    ]
    orders = {
        "random": data.deleted,
        "one class": np.flatnonzero(data.y[:, 0] == 1)[:200],
        "one corner": np.argsort(-data.X[:, 0])[:200],
    }
    for order, rows in orders.items():
        stream, first = state.stream, 0
        for done in DONE:
            stream = state.delete(stream, rows[first:done], "exact")
            first = done
            live = np.ones(len(data.X), dtype=np.bool_)
            live[rows[:done]] = False
            truth = retrain(
                "logistic", data.design[live], data.y[live], data.weight[live], data.penalty
            )
            true = float(np.linalg.norm(stream.theta_exact - truth))
            if true < 1e-9 * float(np.linalg.norm(truth)):
                continue  # nothing to estimate: rounding
            gone = frozenset(map(str, rows[:done]))
            for sentinels in drawn:
                left, number_left = sentinels.without(gone), int(np.count_nonzero(live))
                estimate = remainder_estimate(state.generation, stream, left, number_left)
                yield order, done, estimate / true
