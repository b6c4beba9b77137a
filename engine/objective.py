"""The regularised loss that a model minimises, and its derivatives.

    L(theta) = sum_i weight_i loss(x_i . theta, y_i) + 1/2 sum_j penalty_j |theta_j|^2 + b . theta

Two losses, both from the paper: the square loss (section 2) and the logistic loss (section 3.2;
its appendix prints the cross-entropy without the minus sign, the gradient there is right). The
vector ``penalty`` holds the ridge strength, and 0 for an intercept that is not penalised. The
linear term b is there for certified removal only (`engine.certified`).

Conventions of the whole package: ``X`` is n x d and float64, its last column the constant 1 when
the model has an intercept; ``theta`` is d x m; targets ``y`` are n x m; ``weight`` has length n.
"Error" and "curvature" are the first and second derivative of the weighted loss in the margin
x . theta, so sample weights never appear in the algebra of deletion.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit

from engine.errors import InvalidData

Array: TypeAlias = NDArray[np.float64]

_SUMMED = 1024  # rows summed at once: BLAS adds them one after another


class Kind(StrEnum):
    """The loss: ``linear`` (square loss, any m) or ``logistic`` (targets 0 and 1, m = 1)."""

    LINEAR = "linear"
    LOGISTIC = "logistic"


@dataclass(frozen=True, slots=True)
class Rows:
    """Training rows: features ``X`` (k x d), targets ``y`` (k x m), ``weight`` (k,)."""

    X: Array
    y: Array
    weight: Array

    def __post_init__(self) -> None:
        k = self.X.shape[0]
        if self.X.ndim != 2 or self.y.ndim != 2 or self.weight.shape != (k,) or len(self.y) != k:
            raise InvalidData(
                f"rows do not fit together: X {self.X.shape}, y {self.y.shape}, "
                f"weight {self.weight.shape}"
            )

    def __len__(self) -> int:
        return int(self.X.shape[0])

    def take(self, index: NDArray[np.intp] | NDArray[np.bool_] | slice) -> Rows:
        """Return the rows at ``index``."""
        return Rows(self.X[index], self.y[index], self.weight[index])

    def check_finite(self) -> None:
        """Raise `InvalidData` on NaN or infinity: one such row would spoil the whole inverse."""
        for name, values in (("feature", self.X), ("target", self.y), ("weight", self.weight)):
            finite = np.isfinite(values)
            if not finite.all():
                row = int(np.argwhere(~finite)[0][0])
                raise InvalidData(f"a {name} of row {row} is not a finite number; correct the row")


@dataclass(frozen=True, slots=True)
class Objective:
    """A loss and its ridge penalty.

    Parameters
    ----------
    kind
        Which loss.
    penalty
        Ridge strength of each of the d coordinates of theta, >= 0.
    linear
        The noise b of certified removal, d x m, or None for none.
    """

    kind: Kind
    penalty: Array
    linear: Array | None = None

    @property
    def d(self) -> int:
        """Length of theta, the intercept included."""
        return int(self.penalty.shape[0])

    def mean(self, margin: Array) -> Array:
        """Return the predicted mean of a margin: itself, or its sigmoid."""
        if self.kind is Kind.LINEAR:
            return margin
        mean: Array = expit(margin)
        return mean

    def error(self, rows: Rows, theta: Array) -> Array:
        """Return e = weight (mean(x . theta) - y), shape k x m. Cost O(k d m).

        The logistic one is taken as (1 - y) sigma(u) - y sigma(-u): a row that is fitted well has
        an error far below 1, which 1 - sigma(u) would lose to cancellation.
        """
        margin = rows.X @ theta
        if self.kind is Kind.LINEAR:
            return rows.weight[:, None] * (margin - rows.y)
        error: Array = (1.0 - rows.y) * expit(margin) - rows.y * expit(-margin)
        return rows.weight[:, None] * error

    def curvature(self, rows: Rows, theta: Array) -> Array:
        """Return s = weight times the second derivative of the loss, shape (k,). Cost O(k d)."""
        if self.kind is Kind.LINEAR:
            return rows.weight
        margin = rows.X @ theta[:, 0]
        curvature: Array = rows.weight * expit(margin) * expit(-margin)
        return curvature

    def value(self, rows: Rows, theta: Array) -> float:
        """Return L(theta). Cost O(n d m)."""
        margin = rows.X @ theta
        if self.kind is Kind.LINEAR:
            losses = 0.5 * np.sum((margin - rows.y) ** 2, axis=1)
        else:
            up, down = np.logaddexp(0.0, margin), np.logaddexp(0.0, -margin)
            losses = np.sum((1.0 - rows.y) * up + rows.y * down, axis=1)
        tilt = 0.0 if self.linear is None else float(np.sum(self.linear * theta))
        return float(rows.weight @ losses + 0.5 * np.sum(self.penalty[:, None] * theta**2)) + tilt

    def gradient(self, rows: Rows, theta: Array) -> Array:
        """Return the gradient of L, shape d x m. Cost O(n d m)."""
        gradient = _summed(rows.X, self.error(rows, theta)) + self.penalty[:, None] * theta
        return gradient if self.linear is None else gradient + self.linear

    def error_scale(self, rows: Rows, theta: Array) -> float:
        """Return what rounding in sum_i x_i e_i is proportional to, with eps and a small factor.

        Row i adds |x_i| times the rounding of its error, which is relative to |e_i| and to what
        went into the margin. The plain sum is taken, not the root of the sum of squares: partial
        sums reach it when rows are sorted by target (measured: the root is too small by 2.5). It
        does not vanish with theta, as eps |A| |theta| would. Cost O(k d m).
        """
        lengths = np.linalg.norm(rows.X, axis=1)[:, None]
        reach = lengths * np.linalg.norm(theta, axis=0)
        if self.kind is Kind.LINEAR:
            parts = rows.weight[:, None] * (reach + np.abs(rows.y))
        else:
            parts = np.abs(self.error(rows, theta)) + self.curvature(rows, theta)[:, None] * reach
        return float(np.sum(lengths * parts))

    def gradient_scale(self, rows: Rows, theta: Array) -> float:
        """Return what rounding in `gradient` is proportional to. Cost O(n d m)."""
        tilt = 0.0 if self.linear is None else norm(self.linear)
        return self.error_scale(rows, theta) + norm(self.penalty[:, None] * theta) + tilt

    def hessian(self, rows: Rows, theta: Array) -> Array:
        """Return A = X^T S X + diag(penalty), shape d x d. Cost O(n d^2)."""
        root = np.sqrt(self.curvature(rows, theta))
        scaled = rows.X * root[:, None]
        A = scaled.T @ scaled
        A[np.diag_indices_from(A)] += self.penalty
        return A


def _summed(X: Array, e: Array) -> Array:
    """Return X^T e in blocks of rows: rounding then grows with their size, not with n."""
    total = np.zeros((X.shape[1], e.shape[1]))
    for start in range(0, len(X), _SUMMED):
        block = slice(start, start + _SUMMED)
        total += X[block].T @ e[block]
    return total


def ridge_penalty(ridge: float, d: int, *, intercept: bool, penalise_intercept: bool) -> Array:
    """Return the penalty vector of length d; the intercept, if any, is the last coordinate."""
    if not (np.isfinite(ridge) and ridge > 0):
        raise InvalidData(f"ridge must be a finite number above 0, not {ridge}")
    penalty = np.full(d, float(ridge))
    if intercept and not penalise_intercept:
        penalty[-1] = 0.0
    return penalty


def with_intercept(X: Array) -> Array:
    """Return X with the constant column appended."""
    return np.hstack([X, np.ones((X.shape[0], 1))])


def norm(theta: Array) -> float:
    """Return the Euclidean norm over all of theta, intercept and outputs included."""
    return float(np.linalg.norm(theta))
