"""Minimisers of the Poisson and the softmax loss to 64 bits, each with a bound on its own error.

As `tests.proof.bounds.oracle`, and from the mathematics alone:

    Poisson    sum_i w_i (e^u_i - y_i u_i) + 1/2 sum p theta^2,              u_i = x_i . theta
    softmax    sum_i w_i (log sum_c e^u_ic - y_i . u_i) + 1/2 sum p theta^2,  theta d x C

Of a free intercept of the softmax loss the minimiser is meant whose entries add up to 0. With J a
matrix for which J^T J is the Hessian, Householder QR gives G with G G^T near its inverse; damped
Newton steps end at a theta, where for a gradient g that is wrong by at most b in each entry

    |theta* - theta| <= |G G^T g| + ||G| |G|^T b| + e' / (1 - e') |G| (|G^T g| + ||G|^T b|).

e' counts how far J G is from orthonormal columns and, with curvatures within e^+-m of those of J,
how far margins have moved.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple, Protocol

import numpy as np

from tests.proof.bounds.oracle import Answer, Real, Wide, _inverse, length

_UNIT = Real(2) ** -64
_STEPS, _SETTLING, _HALVINGS = 600, 40, 80
_NEAR = Real(2) ** -10
_ARMIJO = Real(1) / 10000
_SLACK = 1 + Real(2) ** -20


class At(NamedTuple):
    """What a loss is at a point: its margins, gradient, and a bound of the gradient's rounding."""

    theta: Wide
    margin: Wide
    gradient: Wide
    wrong: Wide


class Smooth(Protocol):
    """A loss over a stacked theta."""

    def at(self, theta: Wide) -> At:
        """Return margins, gradient and its error."""

    def value(self, theta: Wide) -> Real:
        """Return the loss."""

    def root(self, margin: Wide) -> Wide:
        """Return J with J^T J the Hessian."""

    def moved(self, margin: Wide, other: Wide) -> Real:
        """Return m: curvatures at one lie within e^+-m of those at the other."""


@dataclass(frozen=True, slots=True)
class Counts:
    """The Poisson loss of live rows X (n x d), y (n,), weight (n,), penalty (d,)."""

    X: Wide
    y: Wide
    weight: Wide
    penalty: Wide

    def at(self, theta: Wide) -> At:
        """Return margins, gradient and its error."""
        n, d = self.X.shape
        margin = self.X @ theta
        mean = np.exp(margin)
        gradient = self.X.T @ (self.weight * (mean - self.y)) + self.penalty * theta
        size = np.abs(self.X)
        parts = (d + 8) * mean * (size @ np.abs(theta)) + (n + 16) * (mean + self.y)
        wrong = size.T @ (self.weight * parts) + (n + 16) * self.penalty * np.abs(theta)
        return At(theta, margin, gradient, _UNIT * wrong)

    def value(self, theta: Wide) -> Real:
        """Return the loss."""
        margin = self.X @ theta
        return Real(self.weight @ (np.exp(margin) - self.y * margin) + self.penalty @ theta**2 / 2)

    def root(self, margin: Wide) -> Wide:
        """Return J."""
        ridge = np.diag(np.sqrt(self.penalty))[self.penalty > 0]
        return np.vstack([np.sqrt(self.weight * np.exp(margin))[:, None] * self.X, ridge])

    def moved(self, margin: Wide, other: Wide) -> Real:
        """Return max |u - v|: the curvature is e^u."""
        return Real(np.abs(margin - other).max())


@dataclass(frozen=True, slots=True)
class Softmax:
    """The softmax loss of live rows X (n x d), one-hot y (n x C), weight, penalty (d,)."""

    X: Wide
    y: Wide
    weight: Wide
    penalty: Wide

    def _theta(self, stacked: Wide) -> Wide:
        return stacked.reshape(self.y.shape[1], -1).T

    def _mean(self, margin: Wide) -> Wide:
        raised = np.exp(margin - margin.max(axis=1, keepdims=True))
        return np.asarray(raised / raised.sum(axis=1, keepdims=True))

    def at(self, theta: Wide) -> At:
        """Return margins, gradient and its error."""
        n, d = self.X.shape
        B = self._theta(theta)
        margin = self.X @ B
        p = self._mean(margin)
        others = p * (1 - self.y)
        errors = others - self.y * others.sum(axis=1, keepdims=True)
        gradient = self.X.T @ (self.weight[:, None] * errors) + self.penalty[:, None] * B
        free = self.penalty == 0
        gradient[free] += B[free].sum(axis=1, keepdims=True)
        size = np.abs(self.X)
        reach = (size @ np.abs(B)).max(axis=1, keepdims=True)
        C = B.shape[1]
        parts = (d + 8) * 2 * p * (1 - p + _UNIT) * reach + (n + C + 16) * np.abs(errors)
        wrong = size.T @ (self.weight[:, None] * parts)
        wrong += (n + C + 16) * (self.penalty[:, None] + free[:, None]) * np.abs(B) * C
        return At(theta, margin, gradient.T.ravel(), _UNIT * wrong.T.ravel())

    def value(self, theta: Wide) -> Real:
        """Return the loss."""
        B = self._theta(theta)
        margin = self.X @ B
        own = np.sum(self.y * margin, axis=1, keepdims=True)
        losses = np.log(np.exp(margin - margin.max(axis=1, keepdims=True)).sum(axis=1))
        losses += (margin.max(axis=1, keepdims=True) - own)[:, 0]
        gauge = np.sum(B[self.penalty == 0].sum(axis=1) ** 2) / 2
        return Real(self.weight @ losses + np.sum(self.penalty[:, None] * B**2) / 2 + gauge)

    def root(self, margin: Wide) -> Wide:
        """Return J: of each row diag(p)^1/2 - p^1/2 p^T, whose square is diag(p) - p p^T."""
        p = self._mean(margin)
        n, C = p.shape
        d = self.X.shape[1]
        half = np.sqrt(p)
        R = half[:, :, None] * (np.eye(C, dtype=p.dtype) - p[:, None, :])
        R = R * np.sqrt(self.weight)[:, None, None]
        rows = (R[:, :, :, None] * self.X[:, None, None, :]).reshape(n * C, C * d)
        ridge = np.diag(np.sqrt(np.tile(self.penalty, C)))[np.tile(self.penalty, C) > 0]
        gauge = np.tile(np.eye(d, dtype=p.dtype)[self.penalty == 0], (1, C))
        return np.vstack([rows, ridge, gauge])

    def moved(self, margin: Wide, other: Wide) -> Real:
        """Return the largest range of u - v over the classes of a row."""
        change = margin - other
        return Real((change.max(axis=1) - change.min(axis=1)).max())


def solve(loss: Smooth, size: int, start: Wide | None = None) -> Answer:
    """Return the minimiser, stacked; ``start`` saves steps and no more."""
    with np.errstate(over="ignore", invalid="ignore"):
        at = loss.at(np.zeros(size, dtype=Real))
        if start is not None and loss.value(start) < loss.value(at.theta):
            at = loss.at(start)
        for _ in range(_STEPS):
            inverse = _inverse(loss.root(at.margin))
            if not np.isfinite(inverse.departure):
                break
            step = -(inverse.G @ (inverse.G.T @ at.gradient))
            whole = loss.at(at.theta + step)
            if np.isfinite(whole.gradient).all() and loss.moved(whole.margin, at.margin) < _NEAR:
                return _settled(loss, at, inverse.G, inverse.departure)
            at = loss.at(at.theta + _damping(loss, at, step) * step)
    return Answer(at.theta, Real(np.inf))


def _damping(loss: Smooth, at: At, step: Wide) -> Real:
    before, slope, share = loss.value(at.theta), at.gradient @ step, Real(1)
    for _ in range(_HALVINGS):
        if loss.value(at.theta + share * step) <= before + _ARMIJO * share * slope:
            break
        share /= 2
    return share


def _settled(loss: Smooth, at: At, G: Wide, departure: Real) -> Answer:
    """Step with one factor until the steps stall, and bound what is left."""
    begun, previous = at.margin, Real(np.inf)
    for _ in range(_SETTLING):
        step = -(G @ (G.T @ at.gradient))
        if not length(step) < previous / 2:
            break
        at, previous = loss.at(at.theta + step), length(step)
    moved = loss.moved(at.margin, begun) + _NEAR
    left = (1 + departure) * np.exp(moved) - 1
    if not left < 0.5:
        return Answer(at.theta, Real(np.inf))
    inner, t = G.T @ at.gradient, np.abs(G).T @ at.wrong
    first = length(G @ inner) + length(np.abs(G) @ t)
    second = left / (1 - left) * length(G) * (length(inner) + length(t))
    return Answer(at.theta, Real((first + second) * _SLACK))
