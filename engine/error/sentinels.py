"""Sentinels: live rows sampled for the estimate of a logistic model's error (docs/error.md)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from lethe.engine.deletion.generation import Generation
from lethe.engine.error import coupled_sample
from lethe.engine.fit import blocks
from lethe.engine.fit.objective import Array, Kind, Rows

SENTINELS = 256
"""Largest number of sampled live rows."""

_UNIFORM = 0.25  # share of the sample drawn uniformly: no row is ruled out
_SYMMETRIC = 0.1
"""Added to |s' / s|: logistic rows at mean 1/2, whose second order vanishes, are drawn too."""

_DIGITS = 6  # significant digits of a stored chance


@dataclass(frozen=True, slots=True)
class Sentinels:
    """Live rows sampled for the estimate.

    Attributes
    ----------
    ids, rows, W
        m' rows, with base dual rows (m' x h d).
    pi
        (m',) the chance with which each was drawn; None if all had the same.
    """

    ids: tuple[str, ...]
    rows: Rows
    W: Array
    pi: Array | None = None

    def chances(self, rows_live: int) -> Array:
        """Return the chance of each, shape (m',); 1 if every live row is in the sample."""
        if self.pi is not None:
            return self.pi
        sampled = len(self.ids)
        return np.full(sampled, min(1.0, sampled / max(rows_live, 1)))

    def without(self, deleted: frozenset[str]) -> Sentinels:
        """Return the sentinels that are still live."""
        if deleted.isdisjoint(self.ids):
            return self
        keep = np.array([name not in deleted for name in self.ids], dtype=np.bool_)
        ids = tuple(name for name in self.ids if name not in deleted)
        pi = None if self.pi is None else self.pi[keep]
        return Sentinels(ids, self.rows.take(keep), self.W[keep], pi)

    def with_rows(self, ids: tuple[str, ...], rows: Rows, W: Array) -> Sentinels:
        """Return the sentinels and these new live rows, all of which are taken for certain.

        So the sum over the sample stays without bias: the chances of the others are what they were.
        Of rows with the same chance nothing is added: those of a linear model, which needs none.
        """
        if self.pi is None:
            return self
        mine = self.rows
        return Sentinels(
            (*self.ids, *ids),
            Rows(
                np.vstack([mine.X, rows.X]),
                np.vstack([mine.y, rows.y]),
                np.concatenate([mine.weight, rows.weight]),
            ),
            np.vstack([self.W, W]),
            np.concatenate([self.pi, np.ones(len(ids))]),
        )


def possible_parts(generation: Generation, rows: Rows, W: Array) -> Array:
    """Return what each row can add to the estimate, up to a factor for all, shape (n,).

    To second order row i adds w_i rem_i with rem_i = s'_i (x_i.step)^2 / 2 (`Loss.skewness`). The
    step is not known yet; after random deletions (x_i.step)^2 is like x_i.w_i, so that the length
    is like |w_i| h_ii |s'_i / s_i|, h_ii = s_i x_i.w_i the leverage. With several classes the
    root of the sum of squares. Cost O(n h d), no copy of X or W. A softmax model has no W, and
    random steps in its place (`engine.error.coupled_sample`).
    """
    if generation.objective.kind is Kind.SOFTMAX:
        return coupled_sample.possible_parts(generation, rows)
    if generation.objective.kind is Kind.LINEAR:  # its error is known without a sample
        return np.ones(len(rows))
    d, h = rows.X.shape[1], generation.blocks
    curvatures = generation.objective.curvatures(rows, generation.theta_b)
    skew = np.abs(generation.objective.loss.skewness(rows.X @ generation.theta_b))
    squares = np.zeros(len(rows))
    for c in range(h):
        dual = blocks.part(W, c, d)
        lengths = np.sqrt(np.einsum("ij,ij->i", dual, dual))
        leverages = curvatures[:, c] * np.einsum("ij,ij->i", rows.X, dual)
        squares += (lengths * leverages * (skew[:, c] + _SYMMETRIC)) ** 2
    return np.sqrt(squares)


def choose_sentinels(
    parts: Array, seed: int, most: int = SENTINELS
) -> tuple[NDArray[np.intp], Array]:
    """Return the places of at most ``most`` of n rows, sorted, and the chance of each.

    Drawn without replacement. A share `_UNIFORM` of the chances is equal for all rows, the rest is
    proportional to ``parts``, what a row can add (`possible_parts`). Rows whose chance would pass 1
    are taken for certain. Systematic sampling in a random order (Madow 1949): a fixed number, and
    exactly these chances, so that a sum over all rows is estimated without bias by the sum over the
    sample of part / chance (Horvitz and Thompson 1952). Cost O(n).
    """
    n = len(parts)
    if n <= most:
        return np.arange(n), np.ones(n)
    pi = _chances(parts, most)
    rng = np.random.default_rng(seed)
    order = rng.permutation(n)
    ends = np.cumsum(pi[order]) - rng.random()
    passed = np.floor(ends) > np.floor(np.concatenate([[ends[0] - pi[order[0]]], ends[:-1]]))
    places = np.sort(order[passed])
    rounded = np.array([float(f"{chance:.{_DIGITS}g}") for chance in pi[places]])
    return places, rounded


def _chances(parts: Array, most: int) -> Array:
    """Return chances that add up to ``most``, none above 1."""
    n, total = len(parts), float(np.sum(parts))
    weights = np.full(n, 1.0 / n)
    if 0.0 < total < np.inf:
        weights = _UNIFORM * weights + (1.0 - _UNIFORM) * parts / total
    pi, certain = weights, np.zeros(n, dtype=np.bool_)
    while True:  # each round takes a row for certain, or is the last
        left = most - int(np.count_nonzero(certain))
        pi = np.where(certain, 1.0, left * weights / np.sum(weights[~certain]))
        beyond = (pi >= 1.0) & ~certain
        if not beyond.any():
            return pi
        certain |= beyond


def sample_sentinels(
    generation: Generation, ids: Sequence[str], rows: Rows, W: Array, seed: int
) -> Sentinels:
    """Return sentinels among these rows (n x d, with base dual rows). Cost O(n h d)."""
    places, pi = choose_sentinels(possible_parts(generation, rows, W), seed)
    uniform = generation.objective.kind is Kind.LINEAR
    names = tuple(ids[i] for i in places)
    return Sentinels(names, rows.take(places), W[places], None if uniform else pi)
