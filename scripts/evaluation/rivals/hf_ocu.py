"""HF-OCU: Hessian-free online certified unlearning (Qiao, Zhang, Tang and Wei 2024).

While the model is trained, each row i has a vector a_i: how the last theta would differ had i been
left out of every batch, to first order. With a batch B of divisor b,

    a_i <- (I - rate H_B) a_i + [i in B] rate / b grad l_i(theta),

by Hessian-vector products alone. A deletion adds the rows' vectors to theta: O(k d), for any k and
in any order. Training pays O(b n d) a step, and the state is n d numbers.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from evaluation.data import Array, Index, Table
from evaluation.rivals.descent import Descent


@dataclass(frozen=True, slots=True)
class HessianFree:
    """A trained theta (d,), and the vectors of all rows, n x d."""

    theta: Array
    vectors: Array

    @classmethod
    def train(cls, table: Table, descent: Descent) -> HessianFree:
        """Descend, and carry all rows' vectors along."""
        n, d = table.X.shape
        theta, vectors = np.zeros(d), np.zeros((n, d))
        for rows in descent.schedule:
            X = table.X[rows]
            mean = 1 / (1 + np.exp(-(X @ theta)))
            own = X * (mean - table.y[rows])[:, None] / descent.batch
            s = mean * (1 - mean) / descent.batch
            vectors -= descent.rate * (((vectors @ X.T) * s) @ X + descent.ridge * vectors)
            vectors[rows] += descent.rate * own
            theta = theta - descent.rate * (own.sum(axis=0) + descent.ridge * theta)
        return cls(theta, vectors)

    def delete(self, rows: Index) -> Array:
        """Return theta without the rows, shape (d,)."""
        moved: Array = self.theta + self.vectors[rows].sum(axis=0)
        return moved

    @property
    def bytes(self) -> int:
        """Bytes of the state that deletions need."""
        return self.theta.nbytes + self.vectors.nbytes
