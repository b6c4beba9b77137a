from __future__ import annotations

import logging
import math
from dataclasses import dataclass

import numpy as np
import pytest

from lethe.engine.deletion.correction import Correction
from lethe.engine.deletion.downdate import leave_out
from lethe.engine.error.certificate import (
    Certificate,
    Measured,
    certify_with_stale_factor,
    roundoff_allowance,
)
from lethe.engine.errors import IllConditioned
from lethe.engine.fit.factor import factorise
from lethe.engine.fit.objective import Array, Kind, Objective, Rows
from lethe.engine.fit.precompute import certify_afresh, dual_rows
from lethe.engine.refresh.polish import polish
from tests.support.certified import near
from tests.support.oracles import Wide, distance, retrain_logistic_wide

LOG = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Problem:
    objective: Objective
    rows: Rows
    truth: Wide


def _problem(rng: np.random.Generator) -> Problem:
    """Draw a logistic problem: mild, nearly separable, saturated, tiny ridge, free intercept."""
    n, d = int(rng.integers(20, 80)), int(rng.integers(2, 6))
    X = rng.standard_normal((n, d)) * 10 ** rng.uniform(-1, 0.7, d)
    free = bool(rng.random() < 0.5)
    if free:
        X[:, -1] = 1.0
    strength = 10 ** rng.uniform(-0.5, 1.5)
    u = X @ rng.standard_normal(d) * strength / np.sqrt(d)
    y = (rng.random(n) < 1 / (1 + np.exp(-u))).astype(np.float64)
    y[:2] = 0.0, 1.0
    penalty = np.full(d, 10 ** rng.uniform(-3, 1))
    if free:
        penalty[-1] = 0.0
    weight = rng.uniform(0.3, 3.0, n) if rng.random() < 0.3 else np.ones(n)
    objective = Objective(Kind.LOGISTIC, penalty)
    truth = retrain_logistic_wide(X, y, weight, penalty)
    return Problem(objective, Rows(X, y[:, None], weight), truth)


def _stale(problem: Problem, all_rows: Rows, theta_b: Array, theta: Array) -> Certificate:
    """Certify with the factor made at theta_b over all rows, the first few of them deleted."""
    gone = len(all_rows) - len(problem.rows)
    objective = problem.objective
    factor = factorise(objective.hessian(all_rows, theta_b))
    W = dual_rows(factor, all_rows.X)
    out = all_rows.take(slice(0, gone))
    V = leave_out(
        out.X, W[:gone], objective.error(out, theta_b), objective.curvature(out, theta_b)
    ).V
    # A limit of one pass: measure and certify, nothing moves.
    return polish(
        objective,
        problem.rows,
        W[gone:],
        factor=factor,
        V=Correction.of(V),
        theta=theta,
        theta_b=theta_b,
        target=0.0,
        limit=1,
    ).certificate


def test_at_the_hessian_the_bound_is_never_below_the_error() -> None:
    rng = np.random.default_rng(0)
    arguments: dict[str, int] = {}
    tightness = []
    for _ in range(250):
        problem = _problem(rng)
        for _ in range(8):
            theta = near(rng, problem.truth)
            try:
                certificate = certify_afresh(problem.objective, problem.rows, theta)
            except IllConditioned:  # far out every row is saturated: nothing to certify with
                continue
            arguments[certificate.argument] = arguments.get(certificate.argument, 0) + 1
            true = distance(theta, problem.truth)
            if certificate.bound is not None:
                assert true <= certificate.bound
            if certificate.argument == "self-concordant" and true > 1e-7:
                assert certificate.bound is not None
                tightness.append(certificate.bound / true)
    LOG.info("at the Hessian: %s, %s", arguments, np.percentile(tightness, [0, 50, 90, 99]))
    assert sum(arguments.values()) > 1800
    assert min(arguments.get(a, 0) for a in ("self-concordant", "strong-convexity", "none")) > 20
    assert np.percentile(tightness, 50) < 1.2


def test_with_a_stale_factor_the_bound_is_never_below_the_error() -> None:
    rng = np.random.default_rng(1)
    arguments: dict[str, int] = {}
    for _ in range(200):
        problem = _problem(rng)
        d = problem.objective.d
        gone = int(rng.integers(1, 8))
        X = np.vstack([rng.standard_normal((gone, d)), problem.rows.X])
        y = np.vstack([rng.integers(0, 2, (gone, 1)).astype(np.float64), problem.rows.y])
        all_rows = Rows(X, y, np.concatenate([np.ones(gone), problem.rows.weight]))
        for _ in range(6):
            theta_b, theta = near(rng, problem.truth), near(rng, problem.truth)
            try:
                certificate = _stale(problem, all_rows, theta_b, theta)
            except IllConditioned:
                continue
            arguments[certificate.argument] = arguments.get(certificate.argument, 0) + 1
            if certificate.bound is not None:
                assert distance(theta, problem.truth) <= certificate.bound
    LOG.info("with a stale factor: %s", arguments)
    assert sum(arguments.values()) > 1000
    assert arguments["stale-factor"] > 300


def test_scaling_nu_rho_and_mu_alone_would_be_wrong() -> None:
    """The counter-example that the design reports: without the term in e^m - 1."""
    rng = np.random.default_rng(2)
    below = 0
    for _ in range(400):
        problem = _problem(rng)
        objective, rows = problem.objective, problem.rows
        theta_b, theta = near(rng, problem.truth), near(rng, problem.truth)
        try:
            factor = factorise(objective.hessian(rows, theta_b))
        except IllConditioned:
            continue
        g = objective.gradient(rows, theta)
        true = distance(theta, problem.truth)
        change = float(np.max(np.abs(rows.X @ (theta - theta_b))))
        wrong = certify_with_stale_factor(
            objective,
            Measured(theta, g, 0.0),
            newton=factor.solve(g),
            reach=0.0,
            margin_change=0.0,
            smallest=factor.smallest,
        ).bound
        assert wrong is not None
        below += bool(change < 3.0 and wrong < true)
    assert below > 20


def test_an_unpenalised_intercept_far_out_has_no_bound_but_an_estimate() -> None:
    objective = Objective(Kind.LOGISTIC, np.array([1e-3, 0.0]))
    X = np.column_stack([np.linspace(-1, 1, 20), np.ones(20)])
    y = (np.arange(20) % 2).astype(np.float64)[:, None]
    rows = Rows(X, y, np.ones(20))
    certificate = certify_afresh(objective, rows, np.array([[0.0], [6.0]]))
    assert certificate.bound is None
    assert certificate.argument == "none"
    assert certificate.left == certificate.estimate > 1.0


def test_for_a_linear_model_the_certificate_is_exact() -> None:
    rng = np.random.default_rng(3)
    X, y = rng.standard_normal((30, 4)), rng.standard_normal((30, 2))
    objective = Objective(Kind.LINEAR, np.ones(4))
    rows = Rows(X, y, np.ones(30))
    truth = np.linalg.solve(X.T @ X + np.eye(4), X.T @ y)
    theta = truth + rng.standard_normal((4, 2))
    certificate = certify_afresh(objective, rows, theta)
    assert certificate.bound == pytest.approx(float(np.linalg.norm(theta - truth)), rel=1e-9)


def test_a_stale_factor_stretches_every_term_as_documented() -> None:
    objective = Objective(Kind.LOGISTIC, np.array([1.0]))
    g, newton, rho, mu, m = 0.02, 0.01, 0.8, 2.0, 0.3
    nu = math.sqrt(g * newton)
    e = math.exp(m)
    nu_m, rho_m, mu_m = nu * math.sqrt(e), rho * math.sqrt(e), mu / e
    a = -math.log(1 - rho_m * nu_m) / rho_m
    r = rho_m * a
    expected = (
        newton + (e - 1) * nu / math.sqrt(mu) + (math.exp(r) - 1 - r) / r * a / math.sqrt(mu_m)
    )
    certificate = certify_with_stale_factor(
        objective,
        Measured(np.zeros((1, 1)), np.array([[g]]), 0.0),
        newton=np.array([[newton]]),
        reach=rho,
        margin_change=m,
        smallest=mu,
    )
    assert certificate.bound == pytest.approx(expected, rel=1e-10)


def test_the_rounding_allowance_is_stated_as_documented() -> None:
    eps = float(np.finfo(np.float64).eps)
    theta = np.array([[3.0], [4.0]])
    assert roundoff_allowance(10.0, 0.5, theta) == pytest.approx(4 * eps * (20 + 5), rel=1e-12)
