"""The algorithms as the paper prints them; each function names its algorithm or equation.

Inputs are what the paper hands its procedures: all of X and y, the parameters theta of the full
model, the numbers of the rows to delete, and the precomputation. Where the pseudo-code leaves a
choice, the choice is that of the authors' released program, on which the paper's times rest:
residuals from rows of the hat matrix, T entry by entry, sums over rows as loops, Gram-Schmidt by
a QR factorisation. `reproduction.ours` holds what we would do instead.
"""

from __future__ import annotations

from typing import Protocol

import numpy as np

from paper.data import Array, Index

EIGENVALUE_CUT = 1e-10
"""Eigenvalues of C under this count as 0. The pseudo-code inverts all of them, which fails as soon
as two deleted rows are dependent (sparse data, k above the number of their columns)."""


class Inverse(Protocol):
    """Whatever multiplies a vector by A^-1: the d x d matrix, or a linear operator."""

    def __matmul__(self, vector: Array, /) -> Array:
        """Return A^-1 vector."""
        ...


def projective_residual_update(
    X: Array, y: Array, theta: Array, deleted: Index, hat_rows: Array, *, as_printed: bool = False
) -> Array:
    """Return theta_res, shape (d,): Algorithm 1 (PRU). Cost O(k^2 d + k n).

    Parameters
    ----------
    hat_rows
        k x n: the rows of the hat matrix that belong to ``deleted``. The paper stores all n of
        them; nothing else of it is read, so the rest need not exist here.
    as_printed
        See `leave_k_out_predictions`.
    """
    predictions = leave_k_out_predictions(y, deleted, hat_rows, as_printed=as_printed)
    weights, vectors = pseudo_inverse(X[deleted])
    gradient: Array = np.zeros(X.shape[1])
    for i, row in enumerate(deleted):
        gradient += float(X[row] @ theta - predictions[i]) * X[row]
    return theta - fast_multiplication(weights, vectors, gradient)


def leave_k_out_predictions(
    y: Array, deleted: Index, hat_rows: Array, *, as_printed: bool = False
) -> Array:
    """Return what the retrained model predicts for the deleted rows: Algorithm 2 (LKO).

    Erratum: the paper prints T_ij = h_ij / (1 - h_jj). Its own derivation (appendix, proof of
    Theorem 4) has 1 - h_ii in the denominator, and so has the authors' program. ``as_printed``
    takes the printed form. Cost O(k n + k^3).
    """
    k = len(deleted)
    leverage = hat_rows[np.arange(k), deleted]
    residuals = np.zeros(k)
    for i, row in enumerate(deleted):
        residuals[i] = y[row] - hat_rows[i] @ y
    T = np.zeros((k, k))
    for i in range(k):
        for j in range(k):
            if i != j:
                T[i, j] = hat_rows[i, deleted[j]] / (1 - leverage[j if as_printed else i])
    left_out = np.linalg.solve(np.eye(k) - T, residuals / (1 - leverage))
    predictions: Array = np.asarray(y[deleted] - left_out, dtype=np.float64)
    return predictions


def pseudo_inverse(rows: Array) -> tuple[Array, Array]:
    """Return the pseudo-inverse of sum x_i x_i^T in low-rank form: Algorithm 4 (PseudoInv).

    Returns
    -------
    tuple
        Inverse eigenvalues (k,) and eigenvectors, k x d in rows. Cost O(k^2 d).

    Notes
    -----
    Step I is Gram-Schmidt, x_i = sum_j c_ij u_j; step II the eigenvectors a_i of
    C = sum c_i c_i^T, and v_i = sum_j a_ij u_j.
    """
    orthonormal, triangle = np.linalg.qr(rows.T)
    coefficients = triangle.T
    values, a = np.linalg.eigh(coefficients.T @ coefficients)
    inverse = np.zeros(len(values))
    for i, value in enumerate(values):
        if value > EIGENVALUE_CUT:
            inverse[i] = 1 / value
    return inverse, a.T @ orthonormal.T


def fast_multiplication(weights: Array, vectors: Array, gradient: Array) -> Array:
    """Return sum_i (lambda_i^-1 (v_i . gradient)) v_i: Algorithm 5 (FastMult). Cost O(k d)."""
    step: Array = np.zeros(len(gradient))
    for weight, vector in zip(weights, vectors, strict=True):
        step += float(weight * (vector @ gradient)) * vector
    return step


def influence(X: Array, y: Array, theta: Array, deleted: Index, inverse: Inverse) -> Array:
    """Return theta_inf = theta - [grad^2 L_full]^-1 grad L_minus_k (section "Influence method").

    The gradient of the remaining rows is minus that of the deleted ones, at the minimum. The
    inverse Hessian is precomputed; cost O(d^2). The sum over rows is one product here: faster
    than the loop of the authors' program, in favour of the influence method.
    """
    rows = X[deleted]
    return theta + inverse @ (rows.T @ (rows @ theta - y[deleted]))


def newton(theta: Array, gradient: Array, inverse: Inverse) -> Array:
    """Return theta - [grad^2 L_minus_k]^-1 grad L_minus_k (section "Newton's method").

    For a linear model this is retraining.
    """
    return theta - inverse @ gradient


def exact(X: Array, y: Array, theta: Array, deleted: Index, inverse: Array) -> Array:
    """Return the Newton step by Sherman-Morrison-Woodbury, the new inverse being formed.

    The baseline of the paper's Table 2 ("a Newton step with the Sherman-Morrison formula"), in
    the O(k d^2) that its Table 1 gives: (A - U^T U)^-1 = A^-1 + (A^-1 U^T) (I - U A^-1 U^T)^-1
    (U A^-1), then times the gradient.
    """
    rows = X[deleted]
    solved = rows @ inverse
    updated = inverse + solved.T @ np.linalg.solve(np.eye(len(rows)) - solved @ rows.T, solved)
    return theta + updated @ (rows.T @ (rows @ theta - y[deleted]))


def exact_as_timed(X: Array, y: Array, theta: Array, deleted: Index, inverse: Array) -> Array:
    """Return the same step with the products in the order of the authors' program: O(d^3).

    There the correction is A^-1 (U^T S) with S = (I - U A^-1 U^T)^-1 U A^-1, k x d: first a
    d x d matrix U^T S of rank k, then the product of two d x d matrices. The seconds that the
    paper prints (its appendix) grow as d^3 and not with k: this order is what they measure.
    """
    rows = X[deleted]
    solved = rows @ inverse
    S = np.linalg.solve(np.eye(len(rows)) - solved @ rows.T, solved)
    updated = inverse + inverse @ (rows.T @ S)
    return theta + updated @ (rows.T @ (rows @ theta - y[deleted]))
