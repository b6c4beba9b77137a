"""Precomputation, polish and compacting of every block, one after another (`engine.fit.blocks`).

Certificates of blocks cover parts of one vector, theta: they add up as the root of the sum of
squares. With one block, each function is the one that it is named after.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Generic, TypeVar

import numpy as np

from lethe.engine.deletion.generation import (
    Generation,
    Stream,
    error_of_trace,
    inverse_off,
    smallest_eigenvalue,
)
from lethe.engine.error.certificate import Certificate
from lethe.engine.errors import IllConditioned
from lethe.engine.fit import blocks
from lethe.engine.fit.factor import Factor
from lethe.engine.fit.objective import Array, Kind, Objective, Rows, RowsInBlocks
from lethe.engine.fit.precompute import Precomputation, dual_error, factor_error, precompute
from lethe.engine.refresh import folding
from lethe.engine.refresh.polish import PolishedBlocks, polish

T = TypeVar("T")


def rows_of(rows: Rows, c: int, h: int) -> Rows:
    """Return rows with the targets of block c alone; features are shared, not copied."""
    return rows if h == 1 else Rows(rows.X, blocks.outputs(rows.y, c, h), rows.weight)


@dataclass(frozen=True, slots=True)
class _RowsOf:
    """Rows in blocks with the targets of block c alone."""

    every: RowsInBlocks
    c: int
    h: int

    def __len__(self) -> int:
        return len(self.every)

    @property
    def outputs(self) -> int:
        return self.every.outputs // self.h

    def blocks(self) -> Iterator[Rows]:
        return self.each(_itself)

    def each(self, kernel: Callable[[Rows], T]) -> Iterator[T]:
        return self.every.each(_OfTarget(kernel, self.c, self.h))


@dataclass(frozen=True, slots=True)
class _OfTarget(Generic[T]):
    """A kernel of the rows with the targets of block c alone."""

    kernel: Callable[[Rows], T]
    c: int
    h: int

    def __call__(self, rows: Rows) -> T:
        return self.kernel(rows_of(rows, self.c, self.h))


def _itself(rows: Rows) -> Rows:
    return rows


def rows_in_block(rows: RowsInBlocks, c: int, h: int) -> RowsInBlocks:
    """Return rows, in memory or not, with the targets of block c alone."""
    if isinstance(rows, Rows):
        return rows_of(rows, c, h)
    return rows if h == 1 else _RowsOf(rows, c, h)


def stacked(factors: Sequence[Factor]) -> Factor:
    """Return one factor of all blocks: triangles one below the other, bounds over all of them."""
    if len(factors) == 1:
        return factors[0]
    return Factor(
        np.vstack([factor.L for factor in factors]),
        min(factor.smallest for factor in factors),
        max(factor.largest for factor in factors),
    )


def together(parts: Sequence[Certificate]) -> Certificate:
    """Return the certificate of all blocks; it has no bound if one of them has none."""
    if len(parts) == 1:
        return parts[0]
    left = math.hypot(*(one.left for one in parts))
    residual = math.hypot(*(one.residual for one in parts))
    argument = " and ".join(sorted({one.argument for one in parts}))
    if any(one.bound is None for one in parts):
        return Certificate(None, argument, left, residual)
    estimate = math.hypot(*(one.estimate for one in parts))
    return Certificate(left, argument, estimate, residual)


def precompute_blocks(
    objective: Objective, rows: RowsInBlocks, start: Array | None = None, *, rounded: bool = False
) -> Precomputation:
    """Fit and precompute every block; factors are stacked, dual rows lie side by side.

    Cost O(n d^2) and n d numbers a block; rows in blocks are never all held. ``rounded`` is as of
    `engine.fit.fit.fit`.

    Raises
    ------
    InvalidData, IllConditioned, NotConverged
        As `engine.fit.fit.fit`.
    """
    h = objective.blocks(rows.outputs)
    if h == 1:
        return precompute(objective, rows, start, rounded=rounded)
    d = objective.d
    W = np.empty((len(rows) if isinstance(rows, Rows) else 0, h * d))
    thetas, factors, certificates, errors = [], [], [], []
    for c in range(h):
        begin = None if start is None else blocks.outputs(start, c, h)
        precomputed = precompute(objective.of_block(c, h), rows_in_block(rows, c, h), begin)
        blocks.part(W, c, d)[:] = precomputed.dual_rows
        thetas.append(precomputed.theta)
        factors.append(precomputed.factor)
        certificates.append(precomputed.certificate)
        errors.append(precomputed.dual_error)
    theta = np.hstack(thetas)
    return Precomputation(theta, stacked(factors), W, together(certificates), _worst(errors))


def polish_blocks(
    generation: Generation,
    stream: Stream,
    factor: Factor,
    rows: Rows,
    W: Array,
    *,
    target: float,
    on_pass: Callable[[int], None] = lambda _: None,
) -> PolishedBlocks:
    """Polish every block of theta_exact to its share of the target, target / sqrt(h).

    See `engine.refresh.polish`. The limit of passes is each block's own; a pass costs O(n d), and
    the passes of all blocks are counted.
    """
    objective, d, h = generation.objective, generation.objective.d, generation.blocks
    polished: list[PolishedBlocks] = []
    for c in range(h):
        polished.append(
            polish(
                objective.of_block(c, h),
                rows_of(rows, c, h),
                blocks.part(W, c, d),
                factor=factor.block(c),
                V=stream.V.part(c, d),
                theta=blocks.outputs(stream.theta_exact, c, h),
                theta_b=blocks.outputs(generation.theta_b, c, h),
                target=target / math.sqrt(h),
                smallest=_smallest(generation, stream, c),
                off=inverse_off(generation, stream),
                on_pass=_counted_on(on_pass, sum(one.passes for one in polished)),
            )
        )
    if h == 1:
        return polished[0]
    return PolishedBlocks(
        np.hstack([one.theta for one in polished]),
        together([one.certificate for one in polished]),
        sum(one.passes for one in polished),
        math.hypot(*(one.audited for one in polished)),
    )


def _smallest(generation: Generation, stream: Stream, c: int) -> float:
    """Return a lower bound of lam_min(A_t) of block c.

    Raises
    ------
    IllConditioned
        None is known, and no certificate could be made.
    """
    grown: float | None = None
    if generation.objective.kind is not Kind.LINEAR:  # sharper: the norm in place of the trace
        d = generation.objective.d
        grown = stream.V.part(c, d).grown_norm() + error_of_trace(stream, d)
    smallest = smallest_eigenvalue(generation, stream, grown)
    if not smallest > 0.0:
        raise IllConditioned(
            "the inverse Hessian has lost its digits to rows far longer than the others; rebuild "
            "the model"
        )
    return smallest


def _counted_on(on_pass: Callable[[int], None], before: int) -> Callable[[int], None]:
    return lambda passes: on_pass(before + passes)


def downdated_factors(factor: Factor, stream: Stream) -> Factor:
    """Return the stacked factor of A_t. Cost O(K d^2 + d^3) a block."""
    d = factor.L.shape[1]
    return stacked(
        [
            folding.downdated_factor(factor.block(c), stream_of(stream, c, d))
            for c in range(blocks.count(stream.V.array, d))
        ]
    )


def compacted_dual_rows(stream: Stream, X: Array, W: Array) -> Array:
    """Return dual rows relative to A_t for live rows X. Cost O(n K d) a block."""
    d = X.shape[1]
    if blocks.count(W, d) == 1:
        return folding.compacted_dual_rows(stream, X, W)
    compacted = np.empty_like(W)
    for c in range(blocks.count(W, d)):
        now = folding.compacted_dual_rows(stream_of(stream, c, d), X, blocks.part(W, c, d))
        blocks.part(compacted, c, d)[:] = now
    return compacted


def dual_error_of_blocks(
    objective: Objective, rows: Rows, theta: Array, W: Array, largest: float
) -> float:
    """Return the largest `engine.fit.precompute.dual_error` of a block. Cost that of each."""
    h, d = objective.blocks(theta.shape[1]), objective.d
    return _worst(
        [
            dual_error(objective, rows, blocks.outputs(theta, c, h), blocks.part(W, c, d), largest)
            for c in range(h)
        ]
    )


def factor_error_of_blocks(objective: Objective, rows: Rows, theta: Array, factor: Factor) -> float:
    """Return the largest `engine.fit.precompute.factor_error` of a block. Cost that of each."""
    h = objective.blocks(theta.shape[1])
    return _worst(
        [
            factor_error(objective, rows, blocks.outputs(theta, c, h), factor.block(c))
            for c in range(h)
        ]
    )


def _worst(errors: Sequence[float]) -> float:
    """Return the largest; unlike max, this keeps a NaN."""
    return float(np.max(errors))


def stream_of(stream: Stream, c: int, d: int) -> Stream:
    """Return one block's part of a stream; its scalars are those of all blocks."""
    h = blocks.count(stream.V.array, d)
    if h == 1:
        return stream
    return stream._replace(
        theta_exact=blocks.outputs(stream.theta_exact, c, h),
        theta_r=blocks.outputs(stream.theta_r, c, h),
        anchor=blocks.outputs(stream.anchor, c, h),
        published=blocks.outputs(stream.published, c, h),
        V=stream.V.part(c, d),
        gradient=None if stream.gradient is None else blocks.outputs(stream.gradient, c, h),
    )


def generation_of(generation: Generation, c: int) -> Generation:
    """Return one block's part of a generation; its scalars are those of all blocks."""
    h = generation.blocks
    if h == 1:
        return generation
    theta_b = blocks.outputs(generation.theta_b, c, h)
    return replace(generation, objective=generation.objective.of_block(c, h), theta_b=theta_b)
