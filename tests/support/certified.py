"""Random states with their certificates and their true errors, by an independent oracle.

Of logistic models, and of Poisson models (`POISSON`).

A *state* is a theta, a factor (that of the Hessian at theta, or a stale one with deletions) and
live rows. Used by `tests/proof/properties/test_certificates.py` and by `scripts/certificates`.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass

import numpy as np

from lethe.engine.deletion.generation import Generation, Stream, begin
from lethe.engine.deletion.methods import method_named
from lethe.engine.deletion.stream import delete
from lethe.engine.error.certificate import Certificate, roundoff_allowance
from lethe.engine.errors import IllConditioned, NotConverged
from lethe.engine.fit.objective import Kind, Objective, Rows, norm
from lethe.engine.fit.precompute import Precomputation, certify_afresh, precompute
from lethe.engine.refresh.polish import polish
from tests.support.families import Array, families, make
from tests.support.oracles import Wide, distance, retrain_wide

DRAWN = ("benign", "near_separable", "saturated", "tiny_ridge")
POISSON = ("counts", "rare", "large", "wide_margins", "flat_ridge")
TARGETS = (1e-2, 1e-5, 1e-8)
"""Relative targets of the polished states."""


@dataclass(frozen=True, slots=True)
class State:
    """One certified state. ``how`` is fresh, stale, audited or polished.

    ``true`` is the error by the oracle, ``allowance`` what rounding is granted, ``size`` |theta*|.
    """

    family: str
    how: str
    certificate: Certificate
    true: float
    allowance: float
    size: float
    free_intercept: bool
    passes: int = 0

    @property
    def above_rounding(self) -> bool:
        """Whether the error is one that rounding does not hide."""
        return self.true > 10 * self.allowance

    @property
    def below(self) -> bool:
        """Whether its bound is below its error, which no certificate may be."""
        bound = self.certificate.bound
        return bound is not None and bound < self.true


@dataclass(frozen=True, slots=True)
class Problem:
    """All rows, of which the first ``gone`` are deleted, and the minimiser over the others."""

    family: str
    objective: Objective
    rows: Rows
    gone: int
    truth: Wide

    @property
    def live(self) -> Rows:
        return self.rows.take(slice(self.gone, None))


def drawn_problem(rng: np.random.Generator, family: str) -> Problem:
    """Draw a small problem of a family; half have a free intercept, a third have weights."""
    n, d = int(rng.integers(24, 90)), int(rng.integers(2, 7))
    X = rng.standard_normal((n, d)) * 10 ** rng.uniform(-1, 0.7, d)
    free = bool(rng.random() < 0.5)
    if free:
        X[:, -1] = 1.0
    strength = {"benign": 1.0, "near_separable": 20.0, "saturated": 100.0, "tiny_ridge": 4.0}
    ridge = {"benign": 1.0, "near_separable": 1e-2, "saturated": 0.1, "tiny_ridge": 1e-4}
    u = X @ rng.standard_normal(d) * strength[family] / math.sqrt(d)
    y = (rng.random(n) < 1 / (1 + np.exp(-np.clip(u, -50, 50)))).astype(np.float64)
    y[-2:] = 0.0, 1.0
    penalty = np.full(d, ridge[family] * 10 ** rng.uniform(-0.5, 0.5))
    if free:
        penalty[-1] = 0.0
    weight = rng.uniform(0.3, 3.0, n) if rng.random() < 0.3 else np.ones(n)
    return _problem(family, X, y[:, None], weight, penalty, int(rng.integers(0, 9)))


def poisson_problem(rng: np.random.Generator, family: str) -> Problem:
    """Draw a small problem of counts; half have a free intercept, a third have weights."""
    n, d = int(rng.integers(24, 90)), int(rng.integers(2, 7))
    X = rng.standard_normal((n, d)) * 10 ** rng.uniform(-1, 0.3, d)
    free = bool(rng.random() < 0.5)
    if free:
        X[:, -1] = 1.0
    mean = {"counts": 3.0, "rare": 0.03, "large": 1e5, "wide_margins": 2.0, "flat_ridge": 3.0}
    spread = {"wide_margins": 4.0}.get(family, 0.7)
    u = X @ rng.standard_normal(d) * spread / math.sqrt(d) + math.log(mean[family])
    y = rng.poisson(np.exp(np.clip(u, -30, 30))).astype(np.float64)
    y[-1] += 1.0
    ridge = {"flat_ridge": 1e-5}.get(family, 0.3) * 10 ** rng.uniform(-1, 1)
    penalty = np.full(d, ridge)
    if free:
        penalty[-1] = 0.0
    weight = rng.uniform(0.3, 3.0, n) if rng.random() < 0.3 else np.ones(n)
    gone = int(rng.integers(0, 9))
    return _problem(family, X, y[:, None], weight, penalty, gone, Kind.POISSON)


def named_problem(name: str, seed: int) -> Problem:
    """Return a family of `tests.support.families` with its deleted rows in front."""
    data = make(name, "logistic", seed)
    order = np.concatenate([data.deleted, np.setdiff1d(np.arange(len(data.X)), data.deleted)])
    X, y, weight = data.design[order], data.y[order], data.weight[order]
    return _problem(name, X, y, weight, data.penalty, 4 + (8 * seed) % (len(data.deleted) - 4))


def _problem(
    family: str,
    X: Array,
    y: Array,
    weight: Array,
    penalty: Array,
    gone: int,
    kind: Kind = Kind.LOGISTIC,
) -> Problem:
    truth = retrain_wide(kind.value, X[gone:], y[gone:], weight[gone:], penalty)
    objective = Objective(kind, penalty)
    return Problem(family, objective, Rows(X, y, weight), gone, truth)


def states(rng: np.random.Generator, problem: Problem, points: int) -> Iterator[State]:
    """Yield states of one problem: ``points`` fresh and ``points`` stale ones, and the stream's.

    States for which the engine refuses to factor (far out every row is saturated) are left out.
    """
    for _ in range(points):
        theta = near(rng, problem.truth)
        try:
            certificate = certify_afresh(problem.objective, problem.live, theta)
            yield _state(problem, "fresh", theta, certificate)
        except IllConditioned:
            continue
    try:
        made = precompute(problem.objective, problem.rows)
        generation, stream = begin(0, problem.objective, made)
        out = problem.rows.take(slice(0, problem.gone))
        W = made.dual_rows[: problem.gone]
        stream = delete(generation, stream, out, W, method_named("exact")).stream
    except (IllConditioned, NotConverged):
        return
    attempts = [(near(rng, problem.truth), "stale", 0.0, 1) for _ in range(points)]
    attempts.append((stream.theta_exact, "audited", 0.0, 1))
    size = norm(problem.truth.astype(np.float64))
    attempts += [(stream.theta_exact, "polished", target * size, 60) for target in TARGETS]
    for theta, how, target, limit in attempts:
        with suppress(IllConditioned):  # a Poisson model's predictions overflow there
            yield _polished(problem, made, generation, stream, theta, how, target, limit)


def near(rng: np.random.Generator, truth: Wide) -> Array:
    """Return a point at a random distance from the minimiser, near to far."""
    plain: Array = truth.astype(np.float64)
    size = 10 ** rng.uniform(-9, 0.3) * (0.1 + norm(plain))
    step = rng.standard_normal(plain.shape)
    return plain + size * step / np.linalg.norm(step)


def _polished(
    problem: Problem,
    made: Precomputation,
    generation: Generation,
    stream: Stream,
    theta: Array,
    how: str,
    target: float,
    limit: int,
) -> State:
    done = polish(
        problem.objective,
        problem.live,
        made.dual_rows[problem.gone :],
        factor=made.factor,
        V=stream.V,
        theta=theta,
        theta_b=generation.theta_b,
        target=target,
        limit=limit,
    )
    return _state(problem, how, done.theta, done.certificate, done.passes)


def _state(
    problem: Problem, how: str, theta: Array, certificate: Certificate, passes: int = 0
) -> State:
    objective, rows = problem.objective, problem.live
    plain = problem.truth.astype(np.float64)
    smallest = max(float(np.linalg.eigvalsh(objective.hessian(rows, plain))[0]), 1e-300)
    allowance = roundoff_allowance(objective.gradient_scale(rows, plain), smallest, plain)
    return State(
        problem.family,
        how,
        certificate,
        distance(theta, problem.truth),
        allowance,
        norm(plain),
        bool(objective.penalty.min() == 0),
        passes,
    )


def many(seed: int, drawn: int, named: int, points: int) -> Iterator[State]:
    """Yield the states of ``drawn`` problems a drawn family and ``named`` a named one."""
    rng = np.random.default_rng(seed)
    for family in DRAWN:
        for _ in range(drawn):
            yield from states(rng, drawn_problem(rng, family), points)
    for name in families("logistic"):
        for number in range(named):
            yield from states(rng, named_problem(name, number), points)


def many_poisson(seed: int, drawn: int, points: int) -> Iterator[State]:
    """Yield the states of ``drawn`` problems of each family of counts."""
    rng = np.random.default_rng(seed)
    for family in POISSON:
        for _ in range(drawn):
            yield from states(rng, poisson_problem(rng, family), points)
