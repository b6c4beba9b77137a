"""PrIU: provenance-based incremental updates (Wu, Tannen and Davidson 2020), logistic regression.

The gradient of a step is linearised at the theta that training had there (the paper interpolates
the sigmoid by pieces; here it is the tangent, which is at least as near): with mean mu_i and
curvature s_i of row i,

    grad_B(theta) = C_t theta + c_t,  C_t = sum s_i x_i x_i^T / b,
    c_t = sum (mu_i - y_i - s_i x_i.theta_t) x_i / b.

C_t and c_t are kept for every step. A deletion takes its rows out of them and replays all steps:
O(T d^2) and, for each time that a deleted row was in a batch, O(d). The state is T d^2 numbers.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from evaluation.data import Array, Index, Table
from evaluation.rivals.descent import Descent


@dataclass(frozen=True, slots=True)
class Provenance:
    """The steps' quadratics, T x d x d and T x d, and each row's coefficients in them, T x b."""

    table: Table
    descent: Descent
    C: Array
    c: Array
    curvatures: Sequence[Array]
    offsets: Sequence[Array]

    @classmethod
    def train(cls, table: Table, descent: Descent) -> Provenance:
        """Descend, and keep every step's linear gradient."""
        d, steps = table.X.shape[1], len(descent.schedule)
        theta, C, c = np.zeros(d), np.empty((steps, d, d)), np.empty((steps, d))
        curvatures, offsets = [], []
        for t, rows in enumerate(descent.schedule):
            X = table.X[rows]
            margin = X @ theta
            mean = 1 / (1 + np.exp(-margin))
            s = mean * (1 - mean) / descent.batch
            offset = (mean - table.y[rows]) / descent.batch - s * margin
            C[t], c[t] = X.T @ (s[:, None] * X), X.T @ offset
            curvatures.append(s)
            offsets.append(offset)
            theta = theta - descent.rate * (C[t] @ theta + c[t] + descent.ridge * theta)
        return cls(table, descent, C, c, curvatures, offsets)

    def delete(self, rows: Index) -> Array:
        """Return theta without the rows, shape (d,): all steps again, by the kept quadratics."""
        descent, theta = self.descent, np.zeros(self.C.shape[1])
        out = np.zeros(len(self.table.y), dtype=bool)
        out[rows] = True
        for t, batch in enumerate(descent.schedule):
            slope = self.C[t] @ theta + self.c[t] + descent.ridge * theta
            here = np.flatnonzero(out[batch])
            if len(here):
                X = self.table.X[batch[here]]
                own = self.curvatures[t][here] * (X @ theta) + self.offsets[t][here]
                slope = slope - X.T @ own
            theta = theta - descent.rate * slope
        return theta

    @property
    def bytes(self) -> int:
        """Bytes of the state that deletions need, without the table."""
        kept = (*self.curvatures, *self.offsets)
        return self.C.nbytes + self.c.nbytes + sum(one.nbytes for one in kept)
