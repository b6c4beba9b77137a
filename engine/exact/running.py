"""The correctly rounded minimiser of a linear model whose rows come and go.

What it was computed from leaves no trace in a correctly rounded minimiser, so everything here is a
cache: the point with all its digits, its exact residual, the inverse that finds corrections. It is
thrown away and made again from the sums wherever it no longer proves anything.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Self

import numpy as np

from lethe.engine.exact.digits import NEAREST, Digits, added, cut
from lethe.engine.exact.kept import Kept, Moved
from lethe.engine.exact.rounding import (
    LARGEST_RATIONAL,
    Corrected,
    Inverse,
    Minimiser,
    NormalEquations,
    Product,
    corrected,
    rationally,
    settled,
    solved,
    unsettled,
)
from lethe.engine.exact.rows import MOST, ChangedRows
from lethe.engine.exact.sums import RunningSums, Sums
from lethe.engine.fit.factor import EPS
from lethe.engine.fit.objective import Array, Rows, RowsInBlocks

_LEVERAGE = 0.9
"""Largest joint leverage of leaving rows: beyond it, too little of the proved bound is left."""

_SHRUNK = 2.0**-10
"""Part of the proved bound of the smallest eigenvalue below which it is proved anew."""


@dataclass(frozen=True, slots=True)
class Solution:
    """The sums of the live rows, and the minimiser.

    Attributes
    ----------
    sums, penalty
        The sums of some rows; of the live ones `live_sums` has them.
    minimiser
        That of the live rows.
    warm
        What the next change can start from, if anything.
    kept
        What a store has of the sums of the live rows; None without a store.
    """

    sums: Sums
    penalty: Array
    minimiser: Minimiser
    warm: Warm | None
    kept: Kept | None = None

    @classmethod
    def of(cls, sums: Sums, penalty: Array) -> Solution:
        """Return the solution for the rows that ``sums`` are of: 0 if there are none.

        Raises
        ------
        IllConditioned
            Nothing is proved: float64 cannot tell that the matrix is definite, and d is above
            `engine.exact.rounding.LARGEST_RATIONAL`; or it is singular.
        InvalidData
            A coefficient is beyond float64.

        Notes
        -----
        Cost O(d^3) for the inverse, and for each correction O(P d^2 m), where P is the number of
        digits of the matrix: 5 to 10 of ordinary data. Rational arithmetic: O(d^3) products of
        numbers of O(d P) digits.
        """
        if sums.entries.is_zero():
            return cls(sums, penalty, Minimiser(np.zeros((sums.d, sums.m)), rounded=True), None)
        equations = NormalEquations.of(sums, penalty)
        inverse = Inverse.of(equations.matrix)
        if inverse is None:
            return cls(sums, penalty, rationally(equations), None)
        product = Product(equations.matrix)
        point = solved(equations, inverse, product)
        found = settled(equations, point)
        if found is not None:
            warm = Warm(equations, product, inverse, point, None, inverse.smallest)
            return cls(sums, penalty, found, warm)
        if len(equations.unit) <= LARGEST_RATIONAL:
            return cls(sums, penalty, rationally(equations), None)
        return cls(sums, penalty, unsettled(equations, point), None)

    @classmethod
    def resumed(cls, kept: Kept, penalty: Array) -> Solution:
        """Return the solution for the sums that a store has. Cost and errors are those of `of`."""
        return replace(cls.of(kept.sums(), penalty), kept=kept)

    def whole(self) -> Kept:
        """Return the sums of the live rows as a store keeps them, whole."""
        return Kept(self.live_sums)

    def stored(self) -> Self:
        """Return the solution of which a store has the sums whole, and will have what follows."""
        return replace(self, kept=self.whole())

    def is_of(self, rows: RowsInBlocks) -> bool:
        """Return whether the sums are those of these rows, digit for digit. Cost O(n d^2)."""
        running = RunningSums(self.sums.unit, self.sums.m)
        for part in rows.each(partial(Sums.of, unit=self.sums.unit)):
            running.add_sums(part)
        return running.sums().equal(self.live_sums)

    def same_sums(self, other: Solution) -> bool:
        """Return whether these are the same sums of live rows, in the same units."""
        return self.live_sums.equal(other.live_sums)

    def without_idle(self, theta: Array) -> Array:
        """Return parameters, with 0 where they must be 0 and a projection does not know it."""
        return theta

    def seen(self, rows: Rows) -> Rows:
        """Return rows in the form that the parameters apply to."""
        return rows

    def changed(self, leaving: Rows | None, arriving: Rows | None) -> Solution:
        """Return the solution without some rows and with others.

        Cost O(k d^2) and a few products with the digits of the matrix, O(P d^2); where the
        cache is of no use, O(d^3).
        """
        moved = [
            Moved(sign, rows)
            for rows, sign in ((leaving, -1), (arriving, 1))
            if rows is not None and rows.weight.any()
        ]
        if not moved:
            return self
        solution = self._changed([ChangedRows.of(m.rows, m.sign, self.sums.unit) for m in moved])
        if self.kept is None:
            return solution
        kept = self.kept.joined(moved) or replace(solution.whole(), most=self.kept.most)
        return replace(solution, kept=kept)

    def _changed(self, changes: list[ChangedRows]) -> Solution:
        change = changes[0] if len(changes) == 1 else changes[0].joined(changes[1])
        warm = None if self.warm is None else self.warm.changed(change)
        found = None if warm is None else settled(warm.equations, warm.point)
        if found is not None:
            return replace(self, minimiser=found, warm=warm)
        return Solution.of(self.live_sums.changed(change), self.penalty)

    def without(self, leaving: Rows) -> Solution:
        """Return the solution without some rows, from sums that hold no other rows. O(d^3)."""
        sums = self.live_sums
        if len(leaving):
            sums = sums.changed(ChangedRows.of(leaving, -1, sums.unit))
        return Solution.of(sums, self.penalty)

    def dual_rows(self, X: Array) -> Array:
        """Return A^-1 x_i for k rows, k x d, to float64's accuracy. Cost O(d^3 + k d^2).

        A is that of ``sums``. Where float64 knows no inverse of it, rational arithmetic does.

        Raises
        ------
        IllConditioned, InvalidData
            As `engine.exact.rounding.rationally`.
        """
        equations = NormalEquations.of(self.sums, self.penalty)
        inverse = Inverse.of(equations.matrix)
        if inverse is None:
            units = np.zeros(len(X), dtype=np.int_)
            right = cut(X, equations.unit).balanced()
            return rationally(replace(equations, right=right, target_unit=units)).theta.T
        exponent = inverse.scale - equations.unit
        W: Array = np.ldexp(np.ldexp(X, exponent) @ inverse.inverse, exponent)
        return W

    def __reduce__(self) -> tuple[Callable[[Sums, Array], Solution], tuple[Sums, Array]]:
        """Copy and pickle the sums of the live rows alone: no row that has left is in them."""
        return Solution.of, (self.live_sums, self.penalty)

    @property
    def nbytes(self) -> int:
        """Roughly the bytes that it takes: the sums, and what a change starts from."""
        return (2 if self.warm is None else 4) * self.sums.entries.places.nbytes

    @property
    def live_sums(self) -> Sums:
        """The sums of the live rows."""
        if self.warm is None or self.warm.beside is None:
            return self.sums
        return self.sums.changed(self.warm.beside)


@dataclass(frozen=True, slots=True)
class Warm:
    """What a change starts from.

    Attributes
    ----------
    equations, product
        Those of the sums, without the rows ``beside`` them.
    inverse
        Of the matrix with these rows.
    point
        The solution with these rows.
    beside
        Rows that have come or gone since the sums were added up.
    proved
        ``inverse.smallest`` as it was proved by a factorisation.
    """

    equations: NormalEquations
    product: Product
    inverse: Inverse
    point: Corrected
    beside: ChangedRows | None
    proved: float

    def changed(self, change: ChangedRows) -> Warm | None:
        """Return what follows from a change, or None if that takes a factorisation."""
        beside = change if self.beside is None else self.beside.joined(change)
        if len(beside) > MOST:
            return None
        absent = self.equations.absent
        if absent.any() and change.x.places[:, :, absent].any():
            return None
        inverse = _updated(self.inverse, change)
        if inverse is None or inverse.smallest < _SHRUNK * self.proved:
            return None
        residual = added([self.point.residual, change.pull(self.point.y)])

        def product(y: Digits) -> list[Digits]:
            return [*self.product.negative(y), beside.pull(y, targets=False)]

        point = corrected(self.point.y, residual, inverse, product, absent)
        return replace(self, inverse=inverse, point=point, beside=beside)


def _updated(inverse: Inverse, change: ChangedRows) -> Inverse | None:
    """Return the inverse with rows that came or went, or None if too little would be proved.

    With f = sign times weight, M' = M + X^T diag(f) X. Where rows leave, M' >= (1 - h) M for the
    largest eigenvalue h of their hat matrix H = F X M^-1 X^T F, F = diag(|f|)^1/2, and rows that
    arrive only add. V = M^-1 X^T F is computed, with S = X^T F - M V left of it: then

        H = F X V + V^T S + S^T M^-1 S,

    where the last term is at most |S|^2 / lam_min(M).
    """
    X = change.x.nearest(inverse.scale)
    f = change.factor.nearest()
    root = X.T * np.sqrt(np.abs(f))
    V = inverse.inverse @ root
    gone = f < 0
    if gone.any():
        leverage = _leverage(inverse, root[:, gone], V[:, gone])
        if not leverage < _LEVERAGE:
            return None
        smallest = inverse.smallest * (1.0 - leverage)
    else:
        smallest = inverse.smallest
    sign = np.sign(f)
    small = np.diag(sign) + root.T @ V
    updated = inverse.inverse - V @ np.linalg.solve(small, V.T)
    matrix = inverse.matrix + (root * sign) @ root.T
    if not (np.isfinite(updated).all() and np.isfinite(matrix).all()):
        return None
    size = inverse.size + float(np.sum(root * root))
    return Inverse(inverse.scale, matrix, updated, smallest, size)


def _leverage(inverse: Inverse, root: Array, V: Array) -> float:
    """Return an upper bound of the largest eigenvalue of root^T M^-1 root."""
    d, k = root.shape
    S = root - inverse.matrix @ V
    H = root.T @ V + V.T @ S
    size = float(np.linalg.norm(V))
    rounded = (8.0 * (d + MOST) * EPS + 4.0 * NEAREST) * inverse.size * size
    off = float(np.linalg.norm(S)) + rounded
    known = H[0, 0] if k == 1 else float(np.linalg.eigvalsh((H + H.T) / 2.0)[-1])
    known += 1e-300 + 4.0 * (d + k) * EPS * float(np.linalg.norm(root)) * size + size * rounded
    bound = max(float(known), 0.0) + off * off / inverse.smallest
    # The rows themselves are rounded: by 2 NEAREST of their length at most.
    root_of_bound = math.sqrt(bound)
    return (
        root_of_bound + 2.0 * NEAREST * float(np.linalg.norm(root)) / math.sqrt(inverse.smallest)
    ) ** 2


def inverse_of(sums: Sums, penalty: Array) -> Array:
    """Return (S_xx + diag(penalty))^-1, d x d, each entry to nearly float64's last bit.

    Raises
    ------
    IllConditioned
        It is singular, or float64 cannot tell and d is above
        `engine.exact.rounding.LARGEST_RATIONAL`.

    Notes
    -----
    Cost O(P d^3), P the number of digits of a sum: each column is a solution, corrected by exact
    residuals.
    """
    equations = NormalEquations.of(sums, penalty)
    d, unit = len(penalty), equations.unit
    identity = replace(
        equations,
        right=Digits(0, np.eye(d, dtype=np.int64)[np.newaxis]),
        target_unit=-unit,
    )
    inverse = Inverse.of(equations.matrix)
    if inverse is None:
        return rationally(identity).theta
    point = solved(identity, inverse, Product(equations.matrix))
    return identity.theta(point.nearest, point.exponent)
