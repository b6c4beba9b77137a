"""Minimisers to 64 bits, each with a bound on the oracle's own error.

The loss, written from the mathematics and from nothing else:

    L(theta) = sum_i w_i loss(x_i . theta, y_i) + 1/2 sum_j p_j theta_j^2

with loss (u - y)^2 / 2 or log(1 + exp(u)) - y u. Every number is a NumPy longdouble.

How an answer is found: Householder QR of [sqrt(w s) X; sqrt(p)] = Q R gives G = R^-1, so that
G G^T is the inverse of the Hessian H up to rounding. Newton steps theta <- theta - G G^T g, with
the gradient g taken anew from the data each time, are repeated until they no longer become
shorter. For the square loss the first step is the solution and the others refine it.

How its error is bounded: theta* - theta = -B^-1 g with g the *true* gradient at theta and B the
mean of the Hessians between the two points. F = [sqrt(w s) X; sqrt(p)] G is formed and
e = |F^T F - I| measured, so B^-1 = G M^-1 G^T with |M - I| <= e' (which counts how far the
curvatures have moved).
The gradient that is at hand differs from the true one by X^T W S a + b, with

    |a| <= (d + 8) u (|y| + |X| |theta|)         (margins; no |y| in the logistic loss),
    |b| <= (n + 16) u (|X|^T |errors| + p |theta|)  (products and sums),        u = 2^-64.

With t = |X G|^T W S |a| + |G|^T |b| and B^-1 = G G^T + G (M^-1 - I) G^T therefore

    |theta* - theta| <= |G G^T g| + ||G| t| + e' / (1 - e') |G| (|G^T g| + |t|).

The entries of |G| t are taken one by one: a row that is 1e5 times as long as the others has large
margins, but G is as small along it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

Real: TypeAlias = np.longdouble
Wide: TypeAlias = NDArray[np.longdouble]

_UNIT = Real(2) ** -64
_STEPS = 400
_REFINEMENTS = 12
_HALVINGS = 60
_NEAR = Real(2) ** -10  # change of a margin below which a factor is kept
_ARMIJO = Real(1) / 10000
_SLACK = 1 + Real(2) ** -20  # for the rounding of the bound itself
_ZERO, _ONE = Real(0), Real(1)


@dataclass(frozen=True, slots=True)
class Problem:
    """Live rows X (n x d), targets y (n x m), weights (n,) and the penalty of each coordinate."""

    X: Wide
    y: Wide
    weight: Wide
    penalty: Wide
    logistic: bool


@dataclass(frozen=True, slots=True)
class Answer:
    """The minimiser, d x m, and what it may be wrong by: Euclidean, over all of theta.

    ``error`` is infinite where the oracle does not know.
    """

    theta: Wide
    error: Real


@dataclass(frozen=True, slots=True)
class _Inverse:
    """G, with how far [sqrt(w s) X; sqrt(p)] G is from orthonormal columns."""

    G: Wide
    departure: Real


def solve(problem: Problem, start: Wide | None = None) -> Answer:
    """Return the minimiser; ``start`` (d x m) saves steps of the logistic loss, no more."""
    _require_wide_longdouble()
    if not problem.logistic:
        return _least_squares(problem)
    columns = [
        _newton(problem, c, None if start is None else start[:, c])
        for c in range(problem.y.shape[1])
    ]
    theta = np.stack([column for column, _ in columns], axis=1)
    return Answer(theta, length(np.array([error for _, error in columns])))


def widened(values: object) -> Wide:
    """Return numbers as longdoubles: float64 and float32 convert exactly."""
    return np.asarray(values, dtype=Real)


def length(values: Wide) -> Real:
    """Return the Euclidean norm over all entries."""
    flat = values.ravel()
    return Real(np.sqrt(flat @ flat))


def distance(a: object, b: object) -> Real:
    """Return |a - b| over all entries, taken in longdouble."""
    return length(widened(a) - widened(b))


def _require_wide_longdouble() -> None:
    if np.finfo(Real).nmant < 63:
        raise RuntimeError(
            "the oracle needs a longdouble of 64 bits or more (x86-64 has it); here it has "
            f"{np.finfo(Real).nmant + 1}, which is no better than what it is to judge"
        )


# -- one QR ------------------------------------------------------------------------------------


def _inverse(root: Wide) -> _Inverse:
    """Return G = R^-1 of the Householder QR of ``root`` (N x d, N >= d, of full rank).

    Columns are scaled to length 1 first, rows sorted by size: rows of very different lengths then
    do each other no harm (Cox and Higham 1998).
    """
    lengths = np.sqrt(np.einsum("ij,ij->j", root, root))
    if not (lengths > 0).all():
        return _Inverse(np.zeros((root.shape[1],) * 2, dtype=Real), Real(np.inf))
    scaled = root / lengths
    work = scaled[np.argsort(-np.abs(scaled).max(axis=1))]
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        G = _inverted(_triangle(work)) / lengths[:, None]
        F = root @ G
        gram = F.T @ F
        departure = length(gram - np.eye(len(gram), dtype=Real))
        departure += len(root) * _UNIT * Real(np.trace(gram))
    if not np.isfinite(departure):
        departure = Real(np.inf)
    return _Inverse(G, departure)


def _triangle(work: Wide) -> Wide:
    """Return R, d x d: Householder reflections, one a column; ``work`` is used up."""
    d = work.shape[1]
    for j in range(d):
        v = work[j:, j].copy()
        size = np.sqrt(v @ v)
        if size == 0:
            continue
        head = -size if v[0] > 0 else size
        v[0] -= head
        rest = work[j:, j + 1 :]
        rest -= np.outer(v, (v @ rest) / (-head * v[0]))
        work[j, j] = head
    return np.triu(work[:d])


def _inverted(R: Wide) -> Wide:
    """Return the inverse of an upper triangle by substitution, row by row from below."""
    d = len(R)
    G = np.zeros((d, d), dtype=Real)
    for i in range(d - 1, -1, -1):
        G[i, i] = _ONE / R[i, i]
        if i < d - 1:
            G[i, i + 1 :] = -(R[i, i + 1 :] @ G[i + 1 :, i + 1 :]) * G[i, i]
    return G


def _root(problem: Problem, curvature: Wide) -> Wide:
    ridge = np.diag(np.sqrt(problem.penalty))[problem.penalty > 0]
    return np.vstack([np.sqrt(curvature)[:, None] * problem.X, ridge])


def _units(problem: Problem) -> tuple[Real, Real]:
    """Return what a margin, and what a sum over all rows, may be wrong by: relative."""
    n, d = problem.X.shape
    return Real(d + 8) * _UNIT, Real(n + 16) * _UNIT


def _bound(
    problem: Problem, inverse: _Inverse, moved: Real, gradient: Wide, margin: Wide, rest: Wide
) -> Real:
    """Return the bound of this module's first page for one column.

    ``moved`` is how far margins are from where ``inverse`` was made; ``margin`` is W S |a|, (n,),
    and ``rest`` |b|, (d,).
    """
    departure = (_ONE + inverse.departure) * np.exp(moved) - _ONE
    if not departure < 0.5:
        return Real(np.inf)
    G = inverse.G
    inner = G.T @ gradient
    t = np.abs(problem.X @ G).T @ margin + np.abs(G).T @ rest
    first = length(G @ inner) + length(np.abs(G) @ t)
    second = departure / (_ONE - departure) * length(G) * (length(inner) + length(t))
    return Real((first + second) * _SLACK)


# -- the square loss ---------------------------------------------------------------------------


def _least_squares(problem: Problem) -> Answer:
    X, y, w, p = problem.X, problem.y, problem.weight[:, None], problem.penalty[:, None]
    inverse = _inverse(_root(problem, problem.weight))
    theta = np.zeros((X.shape[1], y.shape[1]), dtype=Real)
    previous = Real(np.inf)
    if inverse.departure >= 0.5:
        return Answer(theta, Real(np.inf))
    for _ in range(_REFINEMENTS):
        residual = X @ theta - y
        gradient = X.T @ (w * residual) + p * theta
        step = inverse.G @ (inverse.G.T @ gradient)
        size = length(step)
        if not size < previous / 2:
            break
        theta, previous = theta - step, size
    (of_margin, of_sum), size_X = _units(problem), np.abs(X)
    margin = of_margin * w * (np.abs(y) + size_X @ np.abs(theta))
    residual = X @ theta - y
    gradient = X.T @ (w * residual) + p * theta
    rest = of_sum * (size_X.T @ (w * np.abs(residual)) + p * np.abs(theta))
    errors = [
        _bound(problem, inverse, _ZERO, gradient[:, c], margin[:, c], rest[:, c])
        for c in range(y.shape[1])
    ]
    return Answer(theta, length(np.array(errors, dtype=Real)))


# -- the logistic loss -------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _At:
    """One column of the logistic loss at a point."""

    theta: Wide
    margin: Wide
    errors: Wide
    gradient: Wide


def _at(problem: Problem, y: Wide, theta: Wide) -> _At:
    margin = problem.X @ theta
    small = np.exp(-np.abs(margin))
    near, far = _ONE / (_ONE + small), small / (_ONE + small)
    up = np.where(margin >= 0, near, far)
    down = np.where(margin >= 0, far, near)
    errors = problem.weight * ((_ONE - y) * up - y * down)
    return _At(theta, margin, errors, problem.X.T @ errors + problem.penalty * theta)


def _curvature(problem: Problem, margin: Wide) -> Wide:
    small = np.exp(-np.abs(margin))
    return np.asarray(problem.weight * small / (_ONE + small) ** 2)


def _value(problem: Problem, y: Wide, theta: Wide) -> Real:
    margin = problem.X @ theta
    # log(1 + exp(u)) - y u, with no difference of large numbers: y is 0 or 1.
    signed = np.where(y > 0.5, -margin, margin)
    losses = np.maximum(signed, _ZERO) + np.log1p(np.exp(-np.abs(signed)))
    return Real(problem.weight @ losses + (problem.penalty @ (theta * theta)) / 2)


def _newton(problem: Problem, c: int, start: Wide | None) -> tuple[Wide, Real]:
    """Return one column's minimiser and its error: damped Newton, then steps with one factor."""
    y = problem.y[:, c]
    theta = np.zeros(problem.X.shape[1], dtype=Real) if start is None else start
    at = _at(problem, y, theta)
    for _ in range(_STEPS):
        inverse = _inverse(_root(problem, _curvature(problem, at.margin)))
        if not np.isfinite(inverse.departure):
            break
        step = -(inverse.G @ (inverse.G.T @ at.gradient))
        if np.abs(problem.X @ step).max() < _NEAR:
            return _settle(problem, y, at, inverse)
        at = _at(problem, y, at.theta + _damping(problem, y, at, step) * step)
    return at.theta, Real(np.inf)


def _damping(problem: Problem, y: Wide, at: _At, step: Wide) -> Real:
    """Return the share of a Newton step that lowers the loss enough."""
    before, slope = _value(problem, y, at.theta), at.gradient @ step
    share = _ONE
    for _ in range(_HALVINGS):
        if _value(problem, y, at.theta + share * step) <= before + _ARMIJO * share * slope:
            break
        share /= 2
    return share


def _settle(problem: Problem, y: Wide, at: _At, inverse: _Inverse) -> tuple[Wide, Real]:
    """Step with one factor until the steps stall: its Hessian is near to each there."""
    begun, previous = at.margin, Real(np.inf)
    for _ in range(_REFINEMENTS * 4):
        step = -(inverse.G @ (inverse.G.T @ at.gradient))
        size = length(step)
        if not size < previous / 2:
            break
        at, previous = _at(problem, y, at.theta + step), size
    (of_margin, of_sum), size_X = _units(problem), np.abs(problem.X)
    margin = of_margin * _curvature(problem, at.margin) * (size_X @ np.abs(at.theta))
    rest = of_sum * (size_X.T @ np.abs(at.errors) + problem.penalty * np.abs(at.theta))
    moved = np.abs(at.margin - begun).max() + _NEAR
    return at.theta, _bound(problem, inverse, Real(moved), at.gradient, margin, rest)
