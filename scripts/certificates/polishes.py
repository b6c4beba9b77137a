"""Polish against warm full Newton, side by side, at the size of the paper's logistic data."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import numpy as np
from scipy.linalg import cho_factor, cho_solve
from scipy.special import expit

from harness.timing import in_turns
from lethe.engine.deletion.methods import method_named
from lethe.engine.deletion.stream import begin, delete
from lethe.engine.fit.objective import Kind, Objective, Rows
from lethe.engine.fit.precompute import precompute
from lethe.engine.refresh.polish import PASS_LIMIT, polish
from tests.support.families import Array

RELATIVE = 1e-6
"""Certificate to reach, relative to |theta|."""


@dataclass(frozen=True, slots=True)
class Polished:
    """One family's figures; seconds are medians, errors relative to |theta*|."""

    family: str
    n: int
    d: int
    deleted: int
    before: float
    passes: int
    certificate: float | None
    argument: str
    true: float
    seconds: float
    newton_steps: int
    newton_seconds: float


def _rows(
    rng: np.random.Generator,
    X: Array,
    strength: float,
    ridge: float,
    *,
    free: bool = True,
    weight: Array | None = None,
) -> tuple[Objective, Rows]:
    u = X @ rng.standard_normal(X.shape[1])
    u = u / u.std() * strength
    y = (rng.random(len(X)) < 1 / (1 + np.exp(-u))).astype(np.float64)
    if free:
        X = np.hstack([X, np.ones((len(X), 1))])
    penalty = np.full(X.shape[1], ridge)
    if free:
        penalty[-1] = 0.0
    rows = Rows(X, y[:, None], np.ones(len(X)) if weight is None else weight)
    return Objective(Kind.LOGISTIC, penalty), rows


def _injected(rng: np.random.Generator, n: int, p: int) -> tuple[Objective, Rows]:
    X = rng.standard_normal((n, p))
    X[:, 3] = 0.0
    X[: n // 50, 3] = 1.0
    objective, rows = _rows(rng, X, 1.5, 1.0, free=False)
    y = rows.y.copy()
    y[: n // 50] = 1.0
    return objective, Rows(rows.X, y, rows.weight)


def _leverage(rng: np.random.Generator, n: int, p: int) -> tuple[Objective, Rows]:
    X = rng.standard_normal((n, p))
    X[: n // 50] *= 30.0
    return _rows(rng, X, 1.0, 0.1)


Maker = Callable[[np.random.Generator, int, int], tuple[Objective, Rows]]

FAMILIES: dict[str, Maker] = {
    "benign": lambda g, n, p: _rows(g, g.standard_normal((n, p)), 1.5, 1.0),
    "no intercept": lambda g, n, p: _rows(g, g.standard_normal((n, p)), 1.5, 1.0, free=False),
    "nearly separable, ridge 1": lambda g, n, p: _rows(g, g.standard_normal((n, p)), 20.0, 1.0),
    "nearly separable, ridge 0.01": lambda g, n, p: _rows(g, g.standard_normal((n, p)), 20.0, 0.01),
    "sparse": lambda g, n, p: _rows(
        g, g.standard_normal((n, p)) * (g.random((n, p)) < 0.05), 3.0, 0.5
    ),
    "anisotropic": lambda g, n, p: _rows(
        g, g.standard_normal((n, p)) * np.logspace(0.5, -2.5, p), 3.0, 1e-3
    ),
    "saturated": lambda g, n, p: _rows(g, 10 * g.standard_normal((n, p)), 50.0, 0.1),
    "weighted": lambda g, n, p: _rows(
        g, g.standard_normal((n, p)), 3.0, 1.0, weight=g.uniform(0.2, 5.0, n)
    ),
    "high leverage": _leverage,
    "injected feature": _injected,
    "separable, ridge 0.0001": lambda g, n, p: _rows(g, g.standard_normal((n, p)), 5.0, 1e-4),
}

BEYOND = ("separable, ridge 0.0001",)
"""No polish is meant for these: the deletion moves theta by half of itself."""


def warm_newton(objective: Objective, rows: Rows, start: Array, target: float) -> tuple[Array, int]:
    """Newton's method from ``start``, a new Hessian and factor a step, to steps of ``target``."""
    X, y, w, penalty = rows.X, rows.y[:, 0], rows.weight, objective.penalty
    theta = start[:, 0].copy()
    u = X @ theta

    def value(margin: Array, at: Array) -> float:
        losses = np.logaddexp(0.0, margin) - y * margin
        return float(w @ losses + 0.5 * np.sum(penalty * at * at))

    for steps in range(1, 100):
        p = expit(u)
        gradient = X.T @ (w * (p - y)) + penalty * theta
        scaled = X * np.sqrt(w * p * (1 - p))[:, None]
        A = scaled.T @ scaled
        A[np.diag_indices_from(A)] += penalty
        factor = cho_factor(A, lower=True, overwrite_a=True, check_finite=False)
        step = cho_solve(factor, gradient, check_finite=False)
        if np.linalg.norm(step) <= target:
            return theta - step, steps
        Xstep, slope, size, here = X @ step, float(gradient @ step), 1.0, value(u, theta)
        while size > 1e-6 and value(u - size * Xstep, theta - size * step) > (
            here - 1e-4 * size * slope
        ):
            size /= 2
        theta = theta - size * step
        u = X @ theta
    return theta, 100


def measure(family: str, n: int, d: int, deleted: int, repeats: int) -> Polished:
    """Delete rows, then polish and refit by warm Newton in turn, ``repeats`` times each."""
    rng = np.random.default_rng([7, sorted(FAMILIES).index(family)])
    objective, rows = FAMILIES[family](rng, n, d)
    made = precompute(objective, rows)
    generation, stream = begin(0, objective, made)
    out = rows.take(slice(0, deleted))
    stream = delete(generation, stream, out, made.dual_rows[:deleted], method_named("exact")).stream
    live, W = rows.take(slice(deleted, None)), made.dual_rows[deleted:]
    size = float(np.linalg.norm(stream.theta_exact))
    truth, _ = warm_newton(objective, live, stream.theta_exact, 1e-11 * size)
    polishing = partial(
        polish,
        objective,
        live,
        W,
        factor=made.factor,
        V=stream.V,
        theta=stream.theta_exact,
        theta_b=generation.theta_b,
        target=RELATIVE * size,
        limit=PASS_LIMIT,
    )
    refitting = partial(warm_newton, objective, live, stream.theta_exact, RELATIVE * size)
    samples = in_turns({"polish": polishing, "newton": refitting}, repeats)
    done, (_, steps) = polishing(), refitting()
    bound = done.certificate.bound
    return Polished(
        family,
        len(live),
        objective.d,
        deleted,
        float(np.linalg.norm(stream.theta_exact[:, 0] - truth)) / size,
        done.passes,
        None if bound is None else bound / size,
        done.certificate.argument,
        float(np.linalg.norm(done.theta[:, 0] - truth)) / size,
        float(np.median(samples["polish"].wall)),
        steps,
        float(np.median(samples["newton"].wall)),
    )
