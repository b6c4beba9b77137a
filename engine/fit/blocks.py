"""Blocks: outputs that share one Hessian, and how arrays with a part for each block lie.

The outputs of a linear model have one Hessian, whatever their targets: one block. A logistic
model of C classes is C models of one class against the rest, which share their rows and their
penalty and nothing else: C blocks of one output each. Over vec(theta) the Hessian is block
diagonal; the algebra of deletion works in one block and knows of no others.

What has one part for each of h blocks holds them side by side: dual rows W are n x (h d), V is
K x (h d), and columns c d .. (c + 1) d belong to block c. With one block, every shape and
every bit is the same as without blocks.
"""

from __future__ import annotations

import numpy as np

from lethe.engine.fit.objective import Array


def count(wide: Array, d: int) -> int:
    """Return h of an array of h d columns."""
    return int(wide.shape[1] // d)


def part(wide: Array, c: int, d: int) -> Array:
    """Return block c of an array of h d columns: a view, k x d."""
    return wide[:, c * d : (c + 1) * d]


def outputs(matrix: Array, c: int, h: int) -> Array:
    """Return the columns of block c's outputs, of theta, targets or errors: a view."""
    return matrix if h == 1 else matrix[:, c : c + 1]


def weighted_sum(wide: Array, e: Array, d: int) -> Array:
    """Return sum_i w_i e_i, d x m, for wide k x (h d) and e k x m. Cost O(k d m)."""
    h = count(wide, d)
    if h == 1:
        return wide.T @ e
    return np.hstack([part(wide, c, d).T @ outputs(e, c, h) for c in range(h)])


def row_products(wide: Array, g: Array) -> Array:
    """Return the products of rows with g, k x m, for wide k x (h d) and g d x m."""
    h = count(wide, len(g))
    if h == 1:
        return wide @ g
    return np.hstack([part(wide, c, len(g)) @ outputs(g, c, h) for c in range(h)])
