"""The terms of noise on the output: what is accepted, and what they add up to."""

from __future__ import annotations

import math

import numpy as np
import pytest

from lethe.engine.error.gaussian import delta_of
from lethe.engine.error.terms import MAX_VERSIONS, ObjectiveNoise, OutputNoise, gradient_limit
from lethe.engine.errors import InvalidData
from lethe.engine.fit.objective import Kind, Objective


@pytest.mark.parametrize("versions", [1, 10, 1000])
def test_all_versions_together_keep_epsilon_and_delta(versions: int) -> None:
    terms = OutputNoise(1.0, 1e-4, 1e-8, versions)
    terms.check()
    mu = terms.alpha / terms.sigma
    assert delta_of(mu * math.sqrt(versions), 1.0) <= 1e-4
    assert terms.epsilon_after(versions) == pytest.approx(1.0, rel=1e-9)
    spent = [terms.epsilon_after(count) for count in range(0, versions + 1, max(1, versions // 5))]
    assert spent[0] == 0.0
    assert spent == sorted(spent)


def test_more_versions_need_more_noise_by_the_root_of_their_number() -> None:
    few, many = OutputNoise(1.0, 1e-4, 1e-8, 4), OutputNoise(1.0, 1e-4, 1e-8, 400)
    assert many.sigma == pytest.approx(10 * few.sigma, rel=1e-6)


def test_what_is_drawn_again_is_charged_to_delta() -> None:
    terms = OutputNoise(1.0, 1e-9, 1.0, 1000)
    assert delta_of(terms.mu * math.sqrt(1000), 1.0) < 1e-9 - 1000 * 2.0**-50


@pytest.mark.parametrize(
    ("terms", "message"),
    [
        ((0.0, 1e-4, 1e-8, 10), "epsilon must be at least 1e-06"),
        ((1e-7, 1e-4, 1e-8, 10), "epsilon must be at least 1e-06 and finite, not 1e-07; 1 is"),
        ((math.inf, 1e-4, 1e-8, 10), "epsilon must be at least 1e-06 and finite"),
        ((math.nan, 1e-4, 1e-8, 10), "epsilon must be at least 1e-06 and finite"),
        ((1.0, 0.0, 1e-8, 10), "delta must be at least 1e-12"),
        ((1.0, 1e-13, 1e-8, 10), "delta must be at least 1e-12 and below 0.5, not 1e-13; 1e-4 is"),
        ((1.0, 0.5, 1e-8, 10), "delta must be at least 1e-12 and below 0.5"),
        ((1.0, 1e-4, 0.0, 10), "alpha must be above 0"),
        ((1.0, 1e-4, math.nan, 10), "alpha must be above 0"),
        ((1.0, 1e-4, 1e-8, 0), "versions must be from 1"),
        ((1.0, 1e-4, 1e-8, MAX_VERSIONS + 1), "versions must be from 1"),
        ((1.0, 1e-12, 1e-8, 1000), "choose a larger delta"),
    ],
)
def test_terms_that_no_noise_can_keep_are_refused(
    terms: tuple[float, float, float, int], message: str
) -> None:
    with pytest.raises(InvalidData, match=message):
        OutputNoise(*terms).check()


@pytest.mark.parametrize("kind", [Kind.LINEAR, Kind.LOGISTIC])
def test_a_gradient_within_the_limit_is_within_alpha_of_the_minimiser(kind: Kind) -> None:
    """Strong convexity, by random points around the minimiser of random problems."""
    rng = np.random.default_rng(3)
    terms = OutputNoise(1.0, 1e-4, 0.05, 10)
    for _ in range(200):
        d, penalty = int(rng.integers(1, 5)), 10 ** rng.uniform(-2, 1)
        X = rng.standard_normal((20, d)) * 10 ** rng.uniform(-1, 1)
        objective = Objective(kind, np.full(d, penalty))

        def gradient(theta: np.ndarray, X: np.ndarray = X, penalty: float = penalty) -> np.ndarray:
            margin = X @ theta
            mean = margin if kind is Kind.LINEAR else 1 / (1 + np.exp(-margin))
            slope: np.ndarray = X.T @ mean + penalty * theta
            return slope

        # With targets of which the minimiser is `best`, the gradient is the difference of two.
        best = rng.standard_normal(d)
        theta = best + rng.standard_normal(d) * 10 ** rng.uniform(-4, 0)
        left = float(np.linalg.norm(gradient(theta) - gradient(best)))
        if left <= gradient_limit(terms, objective):
            assert float(np.linalg.norm(theta - best)) <= terms.alpha * (1 + 1e-12)


def test_noise_in_the_objective_has_one_limit() -> None:
    terms = ObjectiveNoise(1.0, 1e-4, 10.0)
    assert gradient_limit(terms, Objective(Kind.LINEAR, np.array([0.1]))) == terms.budget
