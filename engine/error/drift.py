"""The drift audit: whether the claims of a generation still hold, measured on live rows.

A stream only ever adds to its state, and rounding or a damaged byte stays in it. Four claims can
be measured in a few passes over the live rows, without the rows that are gone:

1. dual rows: L L^T w_i = x_i, on rows drawn at random;
2. the inverse: A_t (A_b^-1 + V^T V) z = z for random z, where A_t = sum over the live rows of
   s_i x_i x_i^T + penalty is never formed;
3. theta_exact: the live gradient there is the sum of x_i rem_i (0 for a linear model:
   docs/error.md), so that |A_t^-1 (gradient - that sum)| is at most what the stream carries. With
   preprocessing the gradient of the generation's own rows is the one that the stream has;
4. a second opinion, in which V has no part (`engine.error.second_opinion`): lam_min(A_t) is as
   large as V says, and theta_exact as near to its optimum.

The second fails if a row of V, the factor or a live row's features are damaged; the third also
fails if theta_exact, theta_r or a target is damaged. An audit cannot tell which: a generation that
fails it is rebuilt from the live rows.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np

from lethe.engine.deletion.coupled import parts_of, stale_inverse
from lethe.engine.deletion.generation import Generation, Stream, rounding, smallest_eigenvalue
from lethe.engine.error.certificate import roundoff_allowance
from lethe.engine.error.estimate import remainder
from lethe.engine.error.second_opinion import second_opinion
from lethe.engine.exact.running import Solution
from lethe.engine.fit import blocks
from lethe.engine.fit.factor import Factor
from lethe.engine.fit.multinomial import unvec, vec
from lethe.engine.fit.objective import Array, Kind, Rows, RowsInBlocks, lengths, norm
from lethe.engine.refresh.blockwise import rows_of, stream_of

PROBES = 8
"""Rows whose dual rows are multiplied back, and random vectors through the inverse."""

RESIDUAL = 1e-9
"""Largest |A u - z| for u = A^-1 z, over |A| |u| + |z|. A fresh factor leaves some d eps (1e-12 at
d = 4000), a stream in any family of the tests 2e-14 at worst (d = 13, rows of very different
length); damage to any digit that matters leaves far more."""


@dataclass(frozen=True, slots=True)
class Drift:
    """What an audit measured.

    Attributes
    ----------
    dual_rows, inverse
        Worst relative residuals of the first two claims.
    theta, allowed
        |A_t^-1 (gradient - sum of x_i rem_i)| at theta_exact, and its limit; absolute.
    smallest, claimed
        What lam_min(A_t) is at most, by the rows, and at least, by V.
    """

    dual_rows: float
    inverse: float
    theta: float
    allowed: float
    smallest: float
    claimed: float

    @property
    def fault(self) -> str | None:
        """A message about the first claim that fails; None if all hold. A NaN is a fault."""
        if not self.dual_rows <= RESIDUAL:
            return (
                f"L L^T w differs from x by {self.dual_rows:.1e} (at most {RESIDUAL:.0e}): "
                "the factor or dual rows are damaged"
            )
        if not self.inverse <= RESIDUAL:
            return (
                "V does not match the live rows: A_t A_t^-1 z differs from z by "
                f"{self.inverse:.1e} (at most {RESIDUAL:.0e})"
            )
        if not self.theta <= self.allowed:
            return (
                f"the exact answer is off by {self.theta:.1e}, and rounding accounts for at most "
                f"{self.allowed:.1e}"
            )
        if not self.smallest >= self.claimed:
            return (
                f"V has lost its digits: the Hessian's smallest eigenvalue is at most "
                f"{self.smallest:.1e} by the live rows, and at least {self.claimed:.1e} by V"
            )
        return None


SUMS_FAULT = "the exact sums are not those of the live rows: sums, or rows, are damaged"
"""What `sums_fault` says."""


def sums_fault(solution: Solution, rows: RowsInBlocks) -> str | None:
    """Return a message if exact sums are not, digit for digit, those of the live rows.

    Nothing is compared up to a tolerance. Cost O(n d^2).
    """
    if solution.is_of(rows):
        return None
    return SUMS_FAULT


def audit(
    generation: Generation,
    stream: Stream,
    factor: Factor,
    rows: Rows,
    W: Array,
    *,
    tolerated: float = 0.0,
) -> Drift:
    """Measure the claims of a generation on its live rows.

    With several blocks (`engine.fit.blocks`) each is measured by itself. Residuals are then the
    worst of a block. The error of theta and its limit add up as parts of one vector do; each part
    may be off by all that the stream carries, so up to sqrt(h) times as much passes.

    Parameters
    ----------
    generation, stream, factor
        The state.
    rows, W
        The n live rows and their dual rows relative to A_b.
    tolerated
        For a logistic model, how far theta_exact may be off beyond what it carries: part of its
        error is an estimate, which claims no more. A linear model's bound is applied as it is.

    Notes
    -----
    Cost of each block: O(n d) a probe, O(d^2 + K d) for each solve, and that of
    `engine.error.second_opinion`.
    """
    if generation.objective.kind is Kind.SOFTMAX:
        return _audit_coupled(generation, stream, rows, tolerated)
    h, d = generation.blocks, generation.objective.d
    parts = [
        _audit_block(
            replace(
                generation,
                objective=generation.objective.of_block(c, h),
                theta_b=blocks.outputs(generation.theta_b, c, h),
            ),
            stream_of(stream, c, d),
            factor.block(c),
            rows_of(rows, c, h),
            blocks.part(W, c, d),
            tolerated,
            np.random.default_rng(0),
        )
        for c in range(h)
    ]
    return Drift(
        float(np.max([one.dual_rows for one in parts])),  # unlike max, keeps a NaN
        float(np.max([one.inverse for one in parts])),
        math.hypot(*(one.theta for one in parts)),
        math.hypot(*(one.allowed for one in parts)),
        float(np.min([one.smallest for one in parts])),
        parts[0].claimed,
    )


def _audit_block(
    generation: Generation,
    stream: Stream,
    factor: Factor,
    rows: Rows,
    W: Array,
    tolerated: float,
    rng: np.random.Generator,
) -> Drift:
    objective, V = generation.objective, stream.V
    smallest = smallest_eigenvalue(generation, stream)
    chosen = rng.permutation(len(rows))[:PROBES]
    dual = dual_residual(factor, rows.X[chosen], W[chosen])
    z = rng.standard_normal((objective.d, PROBES))
    u = factor.solve(z) + V.times(z)
    s = objective.curvature(rows, generation.theta_b)
    back = rows.X.T @ (s[:, None] * (rows.X @ u)) + objective.penalty[:, None] * u
    gradient = objective.gradient(rows, stream.theta_exact)
    if stream.gradient is not None:  # theta_exact is the optimum of live statistics
        gradient = gradient - stream.gradient
    carried = stream.carried
    if objective.kind is not Kind.LINEAR:
        gradient = gradient - rows.X.T @ remainder(generation, stream, rows)
        # What a polish left is a gradient: it weighs more as lam_min(A_t) falls.
        carried = carried * generation.smallest / smallest + tolerated
    scale = objective.gradient_scale(rows, stream.theta_exact)
    own = roundoff_allowance(scale, smallest, stream.theta_exact)
    opinion = second_opinion(rows, s, objective.penalty, factor, gradient, scale)
    return Drift(
        dual,
        relative_residual(factor, u, back, z),
        max(norm(factor.solve(gradient) + V.times(gradient)), opinion.distance(smallest)),
        rounding(generation, stream) + carried + own,
        opinion.smallest,
        smallest,
    )


def _audit_coupled(generation: Generation, stream: Stream, rows: Rows, tolerated: float) -> Drift:
    """Measure the claims of a softmax model: it has no dual rows, and no second opinion.

    A certificate of its own follows at once where a polish looks at it, from these rows.
    """
    objective, factor = parts_of(generation)
    smallest, rng = smallest_eigenvalue(generation, stream), np.random.default_rng(0)
    z = rng.standard_normal((stream.theta_exact.size, PROBES))
    u = factor.solve(z) + stream.V.times(z)
    d = objective.d
    back = np.hstack(
        [
            vec(objective.hessian_times(rows, generation.theta_b, unvec(one[:, None], d)))
            for one in u.T
        ]
    )
    gradient = objective.gradient(rows, stream.theta_exact)
    gradient = gradient - rows.X.T @ remainder(generation, stream, rows)
    scale = objective.gradient_scale(rows, stream.theta_exact)
    carried = stream.carried * generation.smallest / smallest + tolerated
    own = roundoff_allowance(scale, smallest, stream.theta_exact)
    return Drift(
        0.0,
        relative_residual(factor, u, back, z),
        norm(stale_inverse(factor, stream.V, gradient)),
        rounding(generation, stream) + carried + own,
        smallest,
        smallest,
    )


def dual_residual(factor: Factor, X: Array, W: Array) -> float:
    """Return the worst of |L L^T w - x| over |A| |w| + |x| for rows x with dual rows w."""
    return relative_residual(factor, W.T, factor.product(W.T), X.T)


def relative_residual(factor: Factor, u: Array, back: Array, z: Array) -> float:
    """Return the worst column of ``back`` - z over |A| |u| + |z|; 0 for no column."""
    allowed = factor.largest * lengths(u.T) + lengths(z.T)
    relative = lengths((back - z).T) / np.where(allowed > 0, allowed, 1.0)
    return float(np.max(relative, initial=0.0))
