"""The losses of the margin u = x . theta, each with its derivatives.

    square     (u - y)^2 / 2                      error u - y         curvature 1
    logistic   log(1 + e^u) - y u                 error sigma(u) - y  curvature sigma(u) sigma(-u)
    Poisson    e^u - y u  (log link; no log y!)   error e^u - y       curvature e^u

The first two are the paper's. "Error" and "curvature" are the first and the second derivative. All
three satisfy |s'| <= s for the curvature s (for Poisson s' = s, for every u), on which the
certificates rest (`engine.error.certificate`).
"""

from __future__ import annotations

from typing import Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit

Array: TypeAlias = NDArray[np.float64]


class Loss(Protocol):
    """A loss and its derivatives in the margin ``u``; ``y`` is the target. Of the same shape."""

    def mean(self, u: Array) -> Array:
        """Return the predicted mean."""

    def value(self, u: Array, y: Array) -> Array:
        """Return the loss, up to a term that depends on y alone."""

    def error(self, u: Array, y: Array) -> Array:
        """Return the first derivative, mean(u) - y."""

    def error_size(self, u: Array, y: Array) -> Array:
        """Return what rounding in `error` is relative to, where u is given."""

    def curvature(self, u: Array) -> Array:
        """Return the second derivative s, above or equal to 0.

        It must not depend on y: a loss for which it does (Gamma with the log link) needs y here and
        in `engine.fit.objective.Objective.curvature_at`.
        """

    def skewness(self, u: Array) -> Array:
        """Return s' / s: how fast the curvature changes."""

    def at(self, u: float, y: float) -> tuple[float, float, float]:
        """Return error, its size, and curvature of one number."""


class SquareLoss:
    """(u - y)^2 / 2."""

    def mean(self, u: Array) -> Array:
        """Return u."""
        return u

    def value(self, u: Array, y: Array) -> Array:
        """Return (u - y)^2 / 2."""
        loss: Array = 0.5 * (u - y) ** 2
        return loss

    def error(self, u: Array, y: Array) -> Array:
        """Return u - y."""
        return u - y

    def error_size(self, u: Array, y: Array) -> Array:
        """Return |y|, in the shape of u: what rounding in u adds is counted with the margin."""
        return np.broadcast_to(np.abs(y), u.shape)

    def curvature(self, u: Array) -> Array:
        """Return 1."""
        return np.ones_like(u)

    def skewness(self, u: Array) -> Array:
        """Return 0."""
        return np.zeros_like(u)

    def at(self, u: float, y: float) -> tuple[float, float, float]:
        """Return u - y, |y| and 1."""
        return u - y, abs(y), 1.0


class LogisticLoss:
    """log(1 + e^u) - y u, for y from 0 to 1.

    (The appendix of the paper prints the cross-entropy without the minus sign; its gradient is
    right.)
    """

    def mean(self, u: Array) -> Array:
        """Return sigma(u)."""
        mean: Array = expit(u)
        return mean

    def value(self, u: Array, y: Array) -> Array:
        """Return (1 - y) log(1 + e^u) + y log(1 + e^-u)."""
        loss: Array = (1.0 - y) * np.logaddexp(0.0, u) + y * np.logaddexp(0.0, -u)
        return loss

    def error(self, u: Array, y: Array) -> Array:
        """Return (1 - y) sigma(u) - y sigma(-u).

        A row that fits well has an error far below 1, which 1 - sigma(u) would lose to
        cancellation.
        """
        error: Array = (1.0 - y) * expit(u) - y * expit(-u)
        return error

    def error_size(self, u: Array, y: Array) -> Array:
        """Return |error|: nothing cancels in it."""
        return np.abs(self.error(u, y))

    def curvature(self, u: Array) -> Array:
        """Return sigma(u) sigma(-u)."""
        curvature: Array = expit(u) * expit(-u)
        return curvature

    def skewness(self, u: Array) -> Array:
        """Return 1 - 2 sigma(u)."""
        skewness: Array = 1.0 - 2.0 * expit(u)
        return skewness

    def at(self, u: float, y: float) -> tuple[float, float, float]:
        """Return error, its length, and curvature, with two sigmoids in place of four."""
        up, down = float(expit(u)), float(expit(-u))
        error = (1.0 - y) * up - y * down
        return error, abs(error), up * down


class PoissonLoss:
    """e^u - y u, for y >= 0; infinite where e^u overflows, for u above 709."""

    def mean(self, u: Array) -> Array:
        """Return e^u."""
        return _exp(u)

    def value(self, u: Array, y: Array) -> Array:
        """Return e^u - y u."""
        return _exp(u) - y * u

    def error(self, u: Array, y: Array) -> Array:
        """Return e^u - y."""
        return _exp(u) - y

    def error_size(self, u: Array, y: Array) -> Array:
        """Return e^u + y: they cancel where the row fits well."""
        return _exp(u) + y

    def curvature(self, u: Array) -> Array:
        """Return e^u."""
        return _exp(u)

    def skewness(self, u: Array) -> Array:
        """Return 1."""
        return np.ones_like(u)

    def at(self, u: float, y: float) -> tuple[float, float, float]:
        """Return e^u - y, e^u + y and e^u."""
        mean = float(_exp(np.asarray(u)))
        return mean - y, mean + y, mean


def _exp(u: Array) -> Array:
    """Return e^u; infinities are detected in the results, and are no reason to warn."""
    with np.errstate(over="ignore"):
        return np.exp(u)
