"""The Gaussian mechanism: what normal noise of a given size hides.

Two normal distributions of the same standard deviation sigma a coordinate, whose means are no
further apart than alpha, are (epsilon, delta)-indistinguishable exactly if

    delta >= Phi(mu / 2 - epsilon / mu) - e^epsilon Phi(-mu / 2 - epsilon / mu)

with mu = alpha / sigma (Balle and Wang, "Improving the Gaussian Mechanism for Differential
Privacy", ICML 2018, Theorem 8). T such pairs together, each chosen knowing what the earlier ones
yielded, are as far apart as one with mu sqrt(T) (Dong, Roth and Su, "Gaussian Differential
Privacy", 2022, Corollary 3.3).
"""

from __future__ import annotations

import math
import secrets
from collections.abc import Callable
from functools import lru_cache

import numpy as np
from scipy.special import chdtri, log_ndtr, ndtr, ndtri

from lethe.engine.fit.objective import Array, norm

_LARGEST_MU = 1e3
"""There delta is 1 for every epsilon below 4e5."""

_ROUNDING = 16.0 * 2.0**-52
"""Of `delta_of`'s terms, relative, where their arguments are about 1; it grows with the square."""


def delta_of(mu: float, epsilon: float) -> float:
    """Return the least delta for which means mu standard deviations apart are indistinguishable.

    Rounded up: two terms that are nearly equal are subtracted where mu is small.

    Parameters
    ----------
    mu
        Distance of the means over sigma, above 0.
    epsilon
        At least 0.
    """
    first = float(ndtr(mu / 2.0 - epsilon / mu))
    if first == 0.0:
        return 0.0
    second = float(log_ndtr(-mu / 2.0 - epsilon / mu))
    beyond = min(0.0, epsilon + second - _ROUNDING * (epsilon - second))
    scale = 1.0 + mu + epsilon / mu
    return min(1.0, first * (1.0 + _ROUNDING * scale * scale) - math.exp(beyond))


@lru_cache(maxsize=64)
def mu_of(epsilon: float, delta: float) -> float:
    """Return the largest mu that (epsilon, delta) allows: `delta_of` solved for mu, rounded down.

    Parameters
    ----------
    epsilon
        Above 0.
    delta
        Between 0 and 1.
    """
    mu, _ = _bisect(lambda mu: delta_of(mu, epsilon) <= delta, 0.0, _LARGEST_MU)
    return mu


@lru_cache(maxsize=1024)
def epsilon_of(mu: float, delta: float) -> float:
    """Return the least epsilon that mu gives at ``delta``: solved for epsilon, rounded up."""
    if mu <= 0.0 or delta_of(mu, 0.0) <= delta:
        return 0.0
    most = mu * mu / 2.0 + mu * math.sqrt(2.0 * math.log(1.0 / delta))  # a Chernoff bound
    _, epsilon = _bisect(lambda epsilon: delta_of(mu, epsilon) > delta, 0.0, most)
    return epsilon


def _bisect(holds: Callable[[float], bool], low: float, high: float) -> tuple[float, float]:
    """Return the last float for which a condition holds and the first for which it does not.

    It holds from ``low`` up to some point, and not from there to ``high``.
    """
    while low < (middle := (low + high) / 2.0) < high:
        low, high = (middle, high) if holds(middle) else (low, middle)
    return low, high


def longest(numbers: int, chance: float) -> float:
    """Return the length that so many standard normal numbers exceed with this chance."""
    return math.sqrt(float(chdtri(numbers, chance)))


def draw_noise(
    shape: tuple[int, int], sigma: float, source: Callable[[int], bytes] = secrets.token_bytes
) -> Array:
    """Return N(0, sigma^2) numbers from the operating system's randomness.

    Not from a seeded generator: whoever can repeat the draw can remove the noise.
    """
    count = shape[0] * shape[1]
    whole = np.frombuffer(source(8 * count), dtype=np.uint64) >> np.uint64(12)
    uniform = (whole.astype(np.float64) + 0.5) / 2.0**52  # 52 bits: neither 0 nor 1
    noise: Array = sigma * ndtri(uniform).reshape(shape)
    return noise


def draw_noise_within(shape: tuple[int, int], sigma: float, radius: float) -> Array:
    """Return `draw_noise`, drawn again until it is no longer than ``radius``."""
    while True:
        noise = draw_noise(shape, sigma)
        if norm(noise) <= radius:
            return noise
