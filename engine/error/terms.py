"""The terms of certified removal: what is promised, and by noise at which place.

`ObjectiveNoise` is drawn once a fit and added to the objective (Guo et al. 2020); `OutputNoise` is
drawn for each version and added to what it publishes. Both limit the same quantity, the gradient
residual at theta_exact, of which `engine.error.certified` keeps a bound. docs/certified.md has the
theorems, their proofs and their limits.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TypeAlias

from lethe.engine.error.gaussian import draw_noise_within, epsilon_of, longest, mu_of
from lethe.engine.errors import InvalidData
from lethe.engine.fit.objective import Array, Objective

MAX_VERSIONS = 1_000_000
"""More versions than any model publishes: the noise grows with the root of their number."""

MIN_EPSILON = 1e-6
"""Below it delta alone decides how much noise is needed."""

MIN_DELTA = 1e-12
"""Noise is drawn by 52 bits a number: chances much smaller than this are not drawn at all."""

_MILLS = 1.5 * math.sqrt(2.0 * math.pi)
_EXPONENT = 50.0  # of the theorem's condition: e^50 is past what it allows
_TOO_LONG = 2.0**-50
"""Chance that noise is drawn again because it is too long for the published bound."""


@dataclass(frozen=True, slots=True)
class ObjectiveNoise:
    """(epsilon, delta) for one version, by noise of standard deviation sigma in the objective."""

    epsilon: float
    delta: float
    sigma: float

    def check(self) -> None:
        """Raise `InvalidData` unless the theorem covers these numbers (docs/certified.md)."""
        _check_epsilon_and_delta(self.epsilon, self.delta)
        if not 0.0 < self.sigma < math.inf:
            raise InvalidData(f"certify: sigma must be above 0 and finite, not {self.sigma:g}")
        c = self.c
        if not math.exp(min(self.epsilon / 2, _EXPONENT)) <= _MILLS * (c - self.epsilon / (2 * c)):
            raise InvalidData(
                f"certify: the theorem does not hold for epsilon {self.epsilon:g} with delta "
                f"{self.delta:g}; choose a smaller epsilon (1 is always covered)"
            )

    @property
    def c(self) -> float:
        """sqrt(2 ln(1.5 / delta)), so that delta = 1.5 exp(-c^2 / 2)."""
        return math.sqrt(2.0 * math.log(1.5 / self.delta))

    @property
    def budget(self) -> float:
        """Gradient residual norm that the noise hides: sigma epsilon / sqrt(2 ln(1.5 / delta))."""
        return self.sigma * self.epsilon / self.c


@dataclass(frozen=True, slots=True)
class OutputNoise:
    """(epsilon, delta) for all versions together, by fresh noise on each.

    Attributes
    ----------
    epsilon, delta
        The total over ``versions``.
    alpha
        The distance from theta_exact to retraining that no version may pass, fixed beforehand: a
        proved bound is compared with it, so that sigma does not depend on the data.
    versions
        Versions with other live rows than the one before; after as many the model publishes
        nothing new.
    """

    epsilon: float
    delta: float
    alpha: float
    versions: int

    def check(self) -> None:
        """Raise `InvalidData` unless there is a sigma for these numbers."""
        _check_epsilon_and_delta(self.epsilon, self.delta)
        if not 0.0 < self.alpha < math.inf:
            raise InvalidData(
                f"certify-output: alpha must be above 0 and finite, not {self.alpha:g}"
            )
        if not 0 < self.versions <= MAX_VERSIONS:
            raise InvalidData(
                f"certify-output: versions must be from 1 to {MAX_VERSIONS:,}, not {self.versions}"
            )
        if not (self.mu > 0.0 and 0.0 < self.sigma < math.inf):
            raise InvalidData(
                f"certify-output: no noise gives delta {self.delta:g} with epsilon "
                f"{self.epsilon:g} over {self.versions} versions; choose a larger delta"
            )

    @property
    def mu(self) -> float:
        """Alpha / sigma of one version; 0 if there is no noise for these terms."""
        total = mu_of(self.epsilon, self._delta) if self._delta > 0.0 else 0.0
        return total / math.sqrt(self.versions)

    @property
    def sigma(self) -> float:
        """Standard deviation a coordinate: alpha over `mu`."""
        return self.alpha / self.mu

    @property
    def _delta(self) -> float:
        """What is left of delta once noise that is too long was drawn again in each version.

        Leaving out a part of that chance moves either distribution by no more than it, and moving
        the second costs e^epsilon times as much.
        """
        return self.delta - self.versions * _TOO_LONG * (1.0 + math.exp(min(self.epsilon, 50.0)))

    def epsilon_after(self, versions: int) -> float:
        """Return the epsilon that so many versions amount to, at the delta of the total."""
        return epsilon_of(self.mu * math.sqrt(versions), self._delta)

    def radius(self, shape: tuple[int, int]) -> float:
        """Return the length that no noise of this shape exceeds."""
        return self.sigma * longest(shape[0] * shape[1], _TOO_LONG)

    def draw(self, shape: tuple[int, int]) -> Array:
        """Return noise for one version, from the operating system's randomness."""
        return draw_noise_within(shape, self.sigma, self.radius(shape))


Terms: TypeAlias = ObjectiveNoise | OutputNoise


def gradient_limit(terms: Terms, objective: Objective) -> float:
    """Return the largest norm of the gradient residual with which theta_exact may be published.

    With noise on the output it is what keeps theta_exact within alpha of retraining. The loss is
    convex, so the objective is at least as strongly convex as its penalty: |theta - theta*| <=
    |gradient| / min(penalty).
    """
    if isinstance(terms, ObjectiveNoise):
        return terms.budget
    return terms.alpha * float(objective.penalty.min())


def _check_epsilon_and_delta(epsilon: float, delta: float) -> None:
    if not MIN_EPSILON <= epsilon < math.inf:
        raise InvalidData(
            f"certify: epsilon must be at least {MIN_EPSILON:g} and finite, not {epsilon:g}; 1 is "
            "usual"
        )
    if not MIN_DELTA <= delta < 0.5:
        raise InvalidData(
            f"certify: delta must be at least {MIN_DELTA:g} and below 0.5, not {delta:g}; 1e-4 is "
            "usual"
        )
