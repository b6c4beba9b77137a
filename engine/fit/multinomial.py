"""The softmax (multinomial logistic) objective: C classes with one Hessian of d C coordinates.

    L(theta) = sum_i weight_i (log sum_c e^(u_ic) - u_i,y_i) + 1/2 sum_jc penalty_j theta_jc^2
               + gauge / 2 sum_j (sum_c theta_jc)^2,          u_i = x_i . theta, theta d x C

Row i has the error p_i - y_i and the curvature S_i = diag(p_i) - p_i p_i^T, C x C, p_i its
probabilities: classes are coupled, and the Hessian is sum_i weight_i S_i kron x_i x_i^T.

The loss does not change when the same vector is added to every class. The minimiser without the
last term therefore has sum_c theta_jc = 0 where coordinate j is penalised, and can be chosen so for
a free intercept (scikit-learn's is that one). There the last term is 0, so it moves nothing; it
only makes the minimiser unique and the Hessian definite (docs/algebra.md, Softmax).

vec(theta) stacks the classes: coordinates c d .. (c + 1) d belong to class c.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.special import log_softmax, softmax

from lethe.engine.errors import InvalidData
from lethe.engine.fit.objective import Array, Kind, Objective, Rows, lengths

LARGEST_HESSIAN = 4000
"""Coordinates d C of a softmax model: its Hessian and the factor are (d C)^2 numbers, 128 MB each
at the limit, and a fit factors it some ten times."""


@dataclass(frozen=True, slots=True)
class SoftmaxObjective(Objective):
    """The softmax objective; see the module. ``gauge`` is above 0, and its size moves nothing."""

    gauge: float = 1.0

    @classmethod
    def of(cls, penalty: Array, rows: Rows) -> SoftmaxObjective:
        """Return the objective of these rows, the gauge of the size of their curvature.

        Raises
        ------
        InvalidData
            More coordinates than `LARGEST_HESSIAN`.
        """
        d, C = len(penalty), rows.y.shape[1]
        if d * C > LARGEST_HESSIAN:
            raise InvalidData(
                f"a softmax model of {d} coefficients and {C} classes has a Hessian of {d * C} "
                f"coordinates, at most {LARGEST_HESSIAN}; fit each class against the rest "
                "(LogisticModel) or reduce the features"
            )
        with np.errstate(over="ignore"):  # fit refuses such rows
            size = float(rows.weight @ np.einsum("ij,ij->i", rows.X, rows.X)) / (d * C * C)
        usable = 0.0 < size < np.inf
        return cls(Kind.SOFTMAX, penalty, gauge=size if usable else float(penalty.max()))

    def blocks(self, m: int) -> int:
        """Return 1: all classes share one Hessian."""
        del m
        return 1

    def mean(self, margin: Array) -> Array:
        """Return the probabilities, k x C."""
        return np.asarray(softmax(margin, axis=1))

    def error_at(self, rows: Rows, margin: Array) -> Array:
        """Return e = weight (p - y), k x C.

        At the row's own class it is minus the sum of the others: 1 - p would lose to cancellation.
        """
        others = self.mean(margin) * (1.0 - rows.y)
        error: Array = others - rows.y * others.sum(axis=1, keepdims=True)
        return rows.weight[:, None] * error

    def curvature_at(self, rows: Rows, margin: Array) -> Array:
        """Refuse: a row's curvature is a matrix (`curvature_roots`)."""
        C = margin.shape[1]
        raise ValueError(f"the curvatures of {len(rows)} softmax rows are {C} x {C} matrices")

    def curvature_times(self, rows: Rows, theta_b: Array, change: Array) -> Array:
        """Return weight S_i u_i, k x C, for changes u (k x C) of margins; S_i is at ``theta_b``."""
        p = self.mean(rows.X @ theta_b)
        centred = change - np.sum(p * change, axis=1, keepdims=True)
        curved: Array = rows.weight[:, None] * (p * centred)
        return curved

    def value_at(self, rows: Rows, margin: Array, theta: Array) -> float:
        """Return L(theta) where the margins are known. Cost O((k + d) C)."""
        losses = -np.sum(rows.y * log_softmax(margin, axis=1), axis=1)
        ridge = np.sum(self.penalty[:, None] * theta**2)
        gauge = self.gauge * np.sum(theta.sum(axis=1) ** 2)
        return float(rows.weight @ losses + 0.5 * (ridge + gauge))

    def base_gradient(self, theta: Array) -> Array:
        """Return the part of the gradient that no row adds, d x C."""
        gauge: Array = self.gauge * theta.sum(axis=1, keepdims=True)
        pulled: Array = self.penalty[:, None] * theta + gauge
        return pulled

    def base_scale(self, theta: Array) -> float:
        """Return what rounding in `base_gradient` is proportional to."""
        sizes = np.abs(theta)
        gauge = self.gauge * sizes.sum(axis=1, keepdims=True)
        return float(np.linalg.norm(self.penalty[:, None] * sizes + gauge))

    def error_scale(self, rows: Rows, theta: Array) -> float:
        """Return what rounding in sum_i x_i e_i is proportional to (`Objective.error_scale`).

        A margin that is wrong by r_c changes the errors by S r, and the entries of |S| in column c
        add up to 2 p_c (1 - p_c).
        """
        margin = rows.X @ theta
        p, row_lengths = self.mean(margin), lengths(rows.X)
        reach = row_lengths[:, None] * lengths(theta.T)
        own = np.abs(self.error_at(rows, margin)).sum(axis=1)
        moved = rows.weight * np.sum(2.0 * p * (1.0 - p) * reach, axis=1)
        return float(row_lengths @ (own + moved))

    def hessian(self, rows: Rows, theta: Array) -> Array:
        """Return the Hessian over vec(theta), d C x d C. Cost O(n d^2 C^2)."""
        d, C = theta.shape
        p = self.mean(rows.X @ theta)
        A = np.zeros((d * C, d * C))
        for c in range(C):
            for b in range(c + 1):
                own = p[:, c] * (p.sum(axis=1) - p[:, c]) if b == c else -p[:, c] * p[:, b]
                part = rows.X.T @ ((rows.weight * own)[:, None] * rows.X)
                A[c * d : (c + 1) * d, b * d : (b + 1) * d] = part
                A[b * d : (b + 1) * d, c * d : (c + 1) * d] = part.T
        A += self.gauge * np.kron(np.ones((C, C)), np.eye(d))
        A[np.diag_indices_from(A)] += np.tile(self.penalty, C)
        return A

    def hessian_times(self, rows: Rows, theta: Array, v: Array) -> Array:
        """Return H v, d x C, at ``theta`` for v of shape d x C. Cost O(n d C)."""
        pulled = rows.X.T @ self.curvature_times(rows, theta, rows.X @ v)
        return self.base_gradient(v) + pulled


def check_classes(count: int) -> None:
    """Refuse fewer than three classes.

    Raises
    ------
    InvalidData
        There are two classes at most.
    """
    if count < 3:
        raise InvalidData(
            "a softmax model needs at least 3 classes; two are a logistic model (`LogisticModel`, "
            "--kind logistic)"
        )


def vec(theta: Array) -> Array:
    """Return the classes of a d x C array one below the other, d C x 1."""
    return theta.reshape(-1, 1, order="F")


def unvec(stacked: Array, d: int) -> Array:
    """Return the d x C array that `vec` stacked."""
    return stacked.reshape(d, -1, order="F")


def curvature_roots(p: Array) -> Array:
    """Return R_i, C x (C - 1), with S_i = diag(p_i) - p_i p_i^T = R_i R_i^T, as k x C x (C - 1).

    In closed form, without a factorisation (Tanabe and Sagae 1992): with t_j = p_(j+1) + .. + p_C,

        R_ij = 0 (i < j),  (p_j t_j / t_(j-1))^1/2 (i = j),  -p_i (p_j / (t_j t_(j-1)))^1/2 (i > j).

    Tails are summed from the end, so nothing cancels; where a tail is 0 so is its column.
    Cost O(k C^2).
    """
    k, C = p.shape
    tails = np.cumsum(p[:, ::-1], axis=1)[:, ::-1]  # t_(j-1) for j = 1 .. C
    roots = np.zeros((k, C, C - 1))
    for j in range(C - 1):
        before, after = tails[:, j], tails[:, j + 1]
        share = np.divide(p[:, j], before, out=np.zeros(k), where=before > 0)
        roots[:, j, j] = np.sqrt(share * after)
        rest = np.divide(
            p[:, j + 1 :], after[:, None], out=np.zeros((k, C - 1 - j)), where=after[:, None] > 0
        )
        roots[:, j + 1 :, j] = -rest * roots[:, j, j][:, None]
    return roots
