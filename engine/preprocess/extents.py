"""What a rebuild measures so that `engine.preprocess.remainder` needs no row afterwards."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from lethe.engine.fit.factor import Factor, factorise
from lethe.engine.fit.objective import Array, lengths
from lethe.engine.preprocess.input.columns import scales
from lethe.engine.preprocess.transformation.categories import OneHotPart
from lethe.engine.preprocess.transformation.layout import Layout


def dual_lengths(X: Array, W: Array, off: float) -> Array:
    """Return bounds of (x^T A_b^-1 x)^1/2 of k rows, (k,). Cost O(k d).

    ``W`` are their base dual rows, and ``off`` bounds |x - A_b w| / |w|.
    """
    squares = np.einsum("ij,ij->i", X, W) + 2.0 * off * lengths(W) ** 2
    return np.asarray(np.sqrt(np.maximum(squares, 0.0)))


# -- balanced parameters: of each one-hot column, the weights sum to 0 --------------------------


def has_balance(layout: Layout, penalty: Array) -> bool:
    """Return whether the minimiser is balanced.

    A constant added to the weights of a column's categories and taken from a free intercept changes
    no prediction, because each row has one of the categories; so the penalty alone fixes it. Not so
    where one is left out, and where features are divided by deviations, by other weights, which
    move.
    """
    return bool(_balanced(layout)) and not penalty[-1] > 0


def _balanced(layout: Layout) -> list[OneHotPart]:
    return [
        hot
        for hot in layout.one_hot
        if hot.column.drop is None and not scales(hot.column.standardise)
    ]


class Unbalanced(NamedTuple):
    """How far balanced parameters that predict the same are, and the penalty's gradient between."""

    distance: float = 0.0
    gradient: float = 0.0


def unbalanced(layout: Layout, penalty: Array, theta: Array) -> Unbalanced:
    """Return how far ``theta`` (d x 1) is from balanced parameters. Cost O(p)."""
    if not has_balance(layout, penalty):
        return Unbalanced()
    distance = gradient = 0.0
    for hot in _balanced(layout):
        k, off = hot.width, abs(float(np.mean(theta[hot.features, 0])))
        distance += off * math.sqrt(k * (k + 1))
        gradient += off * math.sqrt(k) * float(penalty[hot.first])
    return Unbalanced(distance, gradient)


def balanced_eigenvalue(layout: Layout, penalty: Array, factor: Factor) -> float:
    """Return a lower bound of A's smallest eigenvalue over balanced directions. Cost O(d^3).

    ``factor`` is A's, the Hessian of a fit. Along the sum of a column's categories it may be made
    as steep as one likes: no balanced direction has a part in it.
    """
    if not has_balance(layout, penalty):
        return factor.smallest
    steeper = factor.L @ factor.L.T
    for hot in _balanced(layout):
        steeper[hot.features, hot.features] += factor.largest / hot.width
    return max(factorise(steeper).smallest, factor.smallest)
