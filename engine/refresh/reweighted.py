"""The stale Hessian, with the few rows whose leverage has changed most brought up to date.

A_t holds every row with its curvature at theta_b. Where margins have moved, on nearly separable
data by ten and more, a few rows carry most of the change. With X_R those rows (r x d), G their
dual rows A_t^-1 x_i and D = diag(s - s_b), Woodbury's identity gives

    A' = A_t + X_R^T D X_R,      A'^-1 v = A_t^-1 v - G^T (I + D B)^-1 D G v,    B = X_R G^T.

A' is positive definite: it is the Hessian with some rows' curvatures new and the others' old.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from scipy.linalg import lu_factor, lu_solve
from scipy.linalg.lapack import dgecon

from lethe.engine.fit.objective import Array

Operator = Callable[[Array], Array]

WORTH = 0.1
"""Times d, the total change of leverage below which an earlier preconditioner does as well: at
d = 1000 reweighting takes as long as three passes. (0.01 saves one pass in two of ten families.)"""

_SINGULAR = 1e-10
"""Reciprocal condition number of I + D B from which A'^-1 v is good to 1e-5 (measured: 4e-6); below
it digits are lost one by one, and v^T A'^-1 v can be negative."""

_FRACTION, _FLOOR, _CEILING = 0.25, 16, 512  # rows brought up to date: r^2 d stays near n d


@dataclass(frozen=True, slots=True)
class Reweighted:
    """A preconditioner v -> A'^-1 v.

    ``curvature`` is each row's curvature in A', ``seen`` that at theta when A' was made, (n,).
    """

    inverse: Operator
    curvature: Array
    seen: Array


def reweight(
    stale: Operator,
    X: Array,
    dual: Callable[[np.ndarray], Array],
    *,
    leverage: Array,
    before: Array,
    now: Array,
) -> Reweighted:
    """Bring up to date the rows whose leverage has changed most.

    Parameters
    ----------
    stale
        v -> A_t^-1 v.
    X
        The live rows, n x d.
    dual
        Indices -> the rows' dual rows A_t^-1 x_i.
    leverage
        x_i^T A_t^-1 x_i, (n,), or near it (x_i^T A_b^-1 x_i): only the choice of rows uses it.
    before, now
        Curvatures in A_t and at the present theta, (n,).

    Notes
    -----
    Cost O(r^2 d + r^3), r = d / 4 rows between 16 and 512; then O(r d) more a solve. Where I + D B
    is nearly singular (curvatures that have grown a millionfold), A_t itself is returned.
    """
    change = np.abs(now - before) * leverage
    if float(change.sum()) <= WORTH * X.shape[1]:
        return Reweighted(stale, before, now)
    n, d = X.shape
    r = min(n, max(_FLOOR, min(int(_FRACTION * d), _CEILING)))
    chosen = np.argpartition(-change, r - 1)[:r]
    D = (now - before)[chosen]
    rows, G = X[chosen], dual(chosen)
    inner_matrix = np.eye(r) + D[:, None] * (rows @ G.T)
    solve = lu_factor(inner_matrix)
    condition, _ = dgecon(solve[0], float(np.abs(inner_matrix).sum(axis=0).max()))
    if not condition >= _SINGULAR:
        return Reweighted(stale, before, now)
    curvature = before.copy()
    curvature[chosen] = now[chosen]

    def inverse(v: Array) -> Array:
        solved: Array = stale(v)
        inner = lu_solve(solve, D[:, None] * (rows @ solved))
        solved = solved - G.T @ inner
        return solved

    return Reweighted(inverse, curvature, now)
