"""V with its signs: what deletions and insertions have changed in the inverse Hessian.

A_t^-1 = A_b^-1 + V^T J V, one row of V and one sign of the diagonal J for each row that was deleted
(+1: its curvature is gone, the inverse grows) or inserted (-1) in this generation.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Self

import numpy as np

from lethe.engine.deletion.growing import GrowingRows
from lethe.engine.fit import blocks
from lethe.engine.fit.objective import Array

DELETED, INSERTED = 1.0, -1.0


@dataclass(frozen=True, slots=True)
class Correction:
    """V, K x (h d), and J; `append` returns a longer one and leaves this one as it is.

    Attributes
    ----------
    rows
        V.
    signs
        (K,), the diagonal of J; None if every row is a deletion: then nothing is multiplied by it.
    """

    rows: GrowingRows
    signs: Array | None = None

    @classmethod
    def empty(cls, width: int) -> Self:
        """Return a V of no rows, ``width`` = h d columns."""
        return cls(GrowingRows.empty(width))

    @classmethod
    def of(cls, rows: Array, signs: Array | None = None) -> Self:
        """Return a V that holds a copy of ``rows``."""
        return cls(GrowingRows.of(rows), signs)

    def __len__(self) -> int:
        return self.rows.length

    def __reduce__(self) -> tuple[Callable[..., Correction], tuple[Array, Array | None]]:
        """Copy and pickle the rows alone, into a buffer of the copy's own."""
        return Correction.of, (self.array, self.signs)

    @property
    def array(self) -> Array:
        """V, as a view that must not be written to."""
        return self.rows.array

    def append(self, rows: Array, sign: float = DELETED) -> Correction:
        """Return this V with ``rows`` (r x h d) below it, all of one sign."""
        if self.signs is None and sign == DELETED:
            return Correction(self.rows.append(rows))
        before = np.ones(len(self)) if self.signs is None else self.signs
        return Correction(self.rows.append(rows), np.append(before, np.full(len(rows), sign)))

    def part(self, c: int, d: int) -> Correction:
        """Return the part of block c. Cost O(K d) if there are several."""
        if blocks.count(self.array, d) == 1:
            return self
        return Correction.of(blocks.part(self.array, c, d), self.signs)

    @property
    def grown(self) -> Array:
        """The rows of deletions: A_t^-1 is at most A_b^-1 and their V^T V together."""
        return self.array if self.signs is None else self.array[self.signs > 0]

    def grown_norm(self) -> float:
        """Return |V V^T| of deletions, from all eigenvalues of the smaller of two squares."""
        V = self.grown
        if not len(V):
            return 0.0
        gram = V @ V.T if V.shape[0] <= V.shape[1] else V.T @ V
        return float(np.linalg.eigvalsh(gram)[-1])

    @property
    def only_deletions(self) -> bool:
        """Whether nothing was inserted: A_t^-1 is then at least A_b^-1."""
        return self.signs is None

    def signed(self, products: Array) -> Array:
        """Return J times ``products``, K x anything."""
        return products if self.signs is None else self.signs[:, None] * products

    def times(self, g: Array) -> Array:
        """Return V^T J V g, d x m, for g of shape d x m. Cost O(K d m)."""
        V = self.array
        return blocks.weighted_sum(V, self.signed(blocks.row_products(V, g)), len(g))

    def of_rows(self, X: Array) -> Array:
        """Return X V^T J V for one block, k x d: what it adds to dual rows. Cost O(k K d)."""
        products = X @ self.array.T
        return (products if self.signs is None else products * self.signs) @ self.array

    def leverages(self, X: Array) -> Array:
        """Return x^T V^T J V x for each row of X, of one block, (k,). Cost O(k K d)."""
        squares = (X @ self.array.T) ** 2
        return np.asarray(np.sum(squares, axis=1) if self.signs is None else squares @ self.signs)
