"""Minimising the loss over the span of a few directions whose margins are known."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from lethe.engine.fit.factor import EPS
from lethe.engine.fit.objective import Array, Objective, Rows, norm

RESOLVED = 64.0
"""Times eps: a decrease below this part of the value is rounding."""

_STEPS = 12  # Newton steps within the span
_HALVINGS = 30
_ARMIJO = 1e-4


@dataclass(frozen=True, slots=True)
class Direction:
    """A direction whose margins are known.

    Attributes
    ----------
    v, Xv
        d x 1 and n x 1.
    summed
        Summed length of the terms of ``v``: rounding in ``Xv`` is relative to that, and not to
        |v| if terms have cancelled.
    """

    v: Array
    Xv: Array
    summed: float

    @classmethod
    def of(cls, v: Array, Xv: Array) -> Direction:
        """Return the direction v with X v from one product."""
        return cls(v, Xv, norm(v))


def search(
    objective: Objective,
    rows: Rows,
    theta: Array,
    margin: Array,
    directions: list[Direction],
) -> Direction | None:
    """Minimise the loss over theta + span of the directions, by Newton's method in the span.

    Parameters
    ----------
    objective, rows
        The loss over the live rows.
    theta, margin
        Where to start, and X theta.
    directions
        The directions whose span is searched.

    Returns
    -------
    Direction or None
        The step; None if nothing is left to gain.

    Notes
    -----
    Cost O(n) a direction and Newton step: margins are known, so no pass over the rows.
    """
    origin, origin_margin = theta, margin
    D = np.hstack([one.v for one in directions])
    XD = np.hstack([one.Xv for one in directions])
    penalty = objective.penalty[:, None]
    a = np.zeros((D.shape[1], 1))
    value = start = objective.value_at(rows, margin, theta)
    for _ in range(_STEPS):
        slope = XD.T @ objective.error_at(rows, margin) + D.T @ objective.base_gradient(theta)
        s = objective.curvature_at(rows, margin)[:, None]
        curved = XD.T @ (s * XD) + D.T @ (penalty * D)
        unit = 1.0 / np.sqrt(np.maximum(np.diag(curved), np.finfo(np.float64).tiny))[:, None]
        # Directions that nearly coincide are separated only as far as rounding allows.
        scaled = unit * curved * unit.T + 1e-12 * np.eye(len(a))
        move = unit * np.linalg.solve(scaled, unit * slope)
        gain, size = float(np.sum(slope * move)), 1.0
        resolved = gain > RESOLVED * EPS * abs(value)
        for _ in range(_HALVINGS):
            to = a - size * move
            theta, margin = origin + D @ to, origin_margin + XD @ to
            trial = objective.value_at(rows, margin, theta)
            if not resolved or trial <= value - _ARMIJO * size * gain:
                break
            size /= 2
        else:
            break
        a, value = to, trial
        if not resolved or gain <= 1e-4 * (start - value):
            break
    if not np.any(a):
        return None
    summed = sum(abs(float(a_i)) * one.summed for a_i, one in zip(a[:, 0], directions, strict=True))
    return Direction(D @ a, XD @ a, summed)
