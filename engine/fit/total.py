"""The loss of given rows as a function of theta alone: in memory, or by passes over blocks."""

from __future__ import annotations

from dataclasses import dataclass
from functools import reduce
from operator import add
from typing import Protocol

import numpy as np

from lethe.engine.fit.objective import Array, Kind, Objective, Rows, RowsInBlocks, over


class TotalLoss(Protocol):
    """What a fit asks of its rows; theta is d x m."""

    def value(self, theta: Array) -> float:
        """Return L(theta)."""

    def gradient(self, theta: Array) -> Array:
        """Return the gradient, d x m."""

    def hessian(self, theta: Array) -> Array:
        """Return the Hessian of one block, d x d."""


def total_loss(objective: Objective, rows: RowsInBlocks) -> TotalLoss:
    """Return the loss of rows."""
    if isinstance(rows, Rows):
        return _InMemory(objective, rows)
    return _InPasses(objective, rows)


@dataclass(frozen=True, slots=True)
class _InMemory:
    objective: Objective
    rows: Rows

    def value(self, theta: Array) -> float:
        return self.objective.value(self.rows, theta)

    def gradient(self, theta: Array) -> Array:
        return self.objective.gradient(self.rows, theta)

    def hessian(self, theta: Array) -> Array:
        return self.objective.hessian(self.rows, theta)


@dataclass(frozen=True, slots=True)
class LossSums:
    """What some rows add to value, gradient and Hessian; no Hessian if none is asked."""

    value: float
    gradient: Array
    hessian: Array | None

    def __add__(self, other: LossSums) -> LossSums:
        curved = None
        if self.hessian is not None and other.hessian is not None:
            curved = self.hessian + other.hessian
        return LossSums(self.value + other.value, self.gradient + other.gradient, curved)


@dataclass(frozen=True, slots=True)
class SumsAt:
    """A kernel of passes: the sums of a block of rows at ``theta``. Cost O(k d^2)."""

    objective: Objective
    theta: Array
    curved: bool

    def __call__(self, rows: Rows) -> LossSums:
        """Add the rows up."""
        rows_alone, theta = self.objective.of_rows, self.theta
        margin = rows.X @ theta
        return LossSums(
            rows_alone.value_at(rows, margin, theta),
            rows.X.T @ rows_alone.error_at(rows, margin),
            rows_alone.hessian(rows, theta) if self.curved else None,
        )


class _InPasses:
    """Value, gradient and Hessian at one theta come from the same pass, and are kept.

    The gradient of a linear model is asked for at points whose Hessian nobody needs again.
    """

    def __init__(self, objective: Objective, rows: RowsInBlocks) -> None:
        self._objective = objective
        self._rows = rows
        self._theta: Array | None = None
        self._sums = LossSums(0.0, np.empty((0, 0)), None)

    def value(self, theta: Array) -> float:
        return self._at(theta).value + self._objective.base_value(theta)

    def gradient(self, theta: Array) -> Array:
        return self._at(theta).gradient + self._objective.base_gradient(theta)

    def hessian(self, theta: Array) -> Array:
        curved = self._at(theta, curved=True).hessian
        if curved is None:
            raise AssertionError("the pass adds up Hessians")
        A = curved.copy(order="F")
        A[np.diag_indices_from(A)] += self._objective.penalty
        return A

    def _at(self, theta: Array, *, curved: bool = False) -> LossSums:
        curved = curved or self._objective.kind is not Kind.LINEAR
        known = self._theta is not None and np.array_equal(self._theta, theta)
        if not known or (curved and self._sums.hessian is None):
            kernel = SumsAt(self._objective, theta, curved)
            self._theta, self._sums = theta.copy(), reduce(add, over(self._rows, kernel))
        return self._sums
