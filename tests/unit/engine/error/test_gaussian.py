"""The Gaussian mechanism against its definition: integrals of the two densities."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy.integrate import quad
from scipy.special import gammaincc
from scipy.stats import norm

from lethe.engine.error.gaussian import delta_of, draw_noise_within, epsilon_of, longest, mu_of

TERMS = [(1.0, 1e-4), (0.1, 1e-6), (0.5, 1e-12), (3.0, 1e-5), (10.0, 1e-3), (0.01, 0.3)]


def delta_by_integration(mu: float, epsilon: float) -> float:
    """Return the integral of max(0, f(x) - e^epsilon f(x - mu)) for the standard normal f.

    The integrand is positive where x < mu / 2 - epsilon / mu.
    """
    edge = mu / 2 - epsilon / mu
    integral, _ = quad(
        lambda x: norm.pdf(x) - math.exp(epsilon) * norm.pdf(x - mu),
        edge - 12, edge, epsabs=1e-18, epsrel=1e-12, limit=400,
    )  # fmt: skip
    return float(integral)


@pytest.mark.parametrize("mu", [0.01, 0.3, 1.0, 4.0])
@pytest.mark.parametrize("epsilon", [0.01, 0.5, 1.0, 4.0])
def test_delta_is_the_integral_of_what_one_density_has_beyond_the_other(
    mu: float, epsilon: float
) -> None:
    expected = delta_by_integration(mu, epsilon)
    assert delta_of(mu, epsilon) == pytest.approx(expected, rel=1e-8, abs=1e-16)


@pytest.mark.parametrize(("epsilon", "delta"), TERMS)
def test_the_calibration_is_exact_and_errs_on_the_safe_side(epsilon: float, delta: float) -> None:
    mu = mu_of(epsilon, delta)
    assert delta_of(mu, epsilon) <= delta < delta_of(mu * (1 + 1e-9), epsilon)
    assert epsilon_of(mu, delta) == pytest.approx(epsilon, rel=1e-9)
    assert delta_of(mu, epsilon_of(mu, delta)) <= delta


@pytest.mark.parametrize("epsilon", [1e-12, 1e-8, 1e-6, 1e-3, 1.0, 15.0])
@pytest.mark.parametrize("delta", [1e-15, 1e-12, 1e-9, 1e-4, 0.3])
def test_the_calibration_is_never_above_the_integral(epsilon: float, delta: float) -> None:
    """Small terms cancel in the formula; the integrand in this form does not."""
    mu = mu_of(epsilon, delta)
    edge = mu / 2 - epsilon / mu
    exact, _ = quad(
        lambda x: norm.pdf(x) * -math.expm1(mu * (x - edge)),
        edge - 24, edge, points=[edge - 12], epsabs=0.0, epsrel=1e-13, limit=2000,
    )  # fmt: skip
    assert exact <= delta * (1 + 1e-12)


@pytest.mark.parametrize("mu", [1e4, 1e8, 1e12, 1e100])
@pytest.mark.parametrize("delta", [1e-12, 1e-5, 0.3])
def test_means_that_are_far_apart_have_an_epsilon(mu: float, delta: float) -> None:
    """There delta is Phi(mu / 2 - epsilon / mu); the second term changes epsilon by about 1."""
    expected = mu * mu / 2 - mu * float(norm.ppf(delta))
    found = epsilon_of(mu, delta)
    assert found == pytest.approx(expected, rel=1e-4)
    assert found >= expected * (1 - 1e-15) - 2


def test_it_needs_less_noise_than_the_classical_calibration() -> None:
    """sigma = alpha sqrt(2 ln(1.25 / delta)) / epsilon is for epsilon up to 1 (Dwork and Roth)."""
    classical = math.sqrt(2 * math.log(1.25e4))
    assert classical * mu_of(1.0, 1e-4) == pytest.approx(1.363, abs=1e-3)


def test_many_releases_together_are_as_far_apart_as_one_of_their_root() -> None:
    """The log-likelihood ratio of T releases is a normal variable: simulated, T = 7."""
    rng, count, mu, epsilon = np.random.default_rng(5), 7, 0.6, 1.5
    draws = rng.standard_normal((400_000, count))
    ratio = -np.sum(mu * draws - mu**2 / 2, axis=1)  # of f(x) over f(x - mu), drawn from f
    beyond = np.maximum(0.0, 1.0 - np.exp(epsilon - ratio))
    assert delta_of(mu * math.sqrt(count), epsilon) == pytest.approx(
        float(beyond.mean()), abs=4 * float(beyond.std()) / math.sqrt(len(beyond))
    )


@pytest.mark.parametrize("numbers", [1, 5, 100, 4000])
def test_noise_is_never_longer_than_its_radius(numbers: int) -> None:
    chance = 2.0**-50
    radius = longest(numbers, chance)
    assert float(gammaincc(numbers / 2, radius**2 / 2)) == pytest.approx(chance, rel=1e-6)
    near = longest(numbers, 0.3)  # three draws of ten are too long, and drawn again
    drawn = [draw_noise_within((numbers, 1), 2.0, 2.0 * near) for _ in range(100)]
    assert max(float(np.linalg.norm(one)) for one in drawn) <= 2.0 * near
    assert not np.array_equal(drawn[0], drawn[1])
