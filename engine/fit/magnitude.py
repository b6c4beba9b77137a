"""How large and how small the numbers of a fit may be: squares must stay inside float64.

Overflow shows as an infinity. Underflow does not: a square that has become 0 makes an error look
smaller than it is. So each fit checks its data before it starts, and its results when it ends,
against the limits below. Within them all bounds hold; outside them the only advice is to rescale.
Multiplying X by a, the ridge by a^2 and y by c multiplies theta by c / a, and the limits allow any
a between 1e-140 and 1e150.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import partial, reduce
from operator import add

import numpy as np

from lethe.engine.errors import InvalidData
from lethe.engine.fit.factor import Factor
from lethe.engine.fit.objective import (
    Array,
    Kind,
    Objective,
    Rows,
    RowsInBlocks,
    lengths,
    norm,
    over,
)

LARGEST = 3e153
"""Largest root of the sum of squares of X, weighted or not, and largest sqrt(ridge): the trace of
the Hessian is at most twice 9e306."""

SMALLEST_EIGENVALUE = 1e-290
"""Smallest eigenvalue of the Hessian. Its inverse grows with each deletion, by 1 / (1 - leverage)
<= 2.5e8 (`engine.deletion.downdate.SMALLEST_PIVOT`) for each of the rows V holds: 1e308 / 2.5e8 /
1e9 rows."""

LARGEST_PULL = 1e300
"""Largest pull of y on theta, sum weight |x| |y|: sums of n such products stay finite."""

SMALLEST_PULL = 1e-290
"""Smallest pull, and smallest pull over the smallest eigenvalue, as it is and for errors that add
up to 1: eps times these is a normal number, so that no allowance for rounding has underflowed, and
what underflows in dual rows is below it."""

SMALLEST_GAIN = 1e-120
"""Smallest pull of a logistic or Poisson model over the root of the Hessian's size. Its square is
what fitting can gain of the loss; certificates square it, eps times as small (1e-240 x 1e-32)."""

_RESCALE = "rescale the features, the targets, the weights or the ridge towards 1"


@dataclass(frozen=True, slots=True)
class Pull:
    """The pull of rows on theta (see `LARGEST_PULL`), and the ``errors`` at theta = 0 behind it."""

    total: float
    errors: float


@dataclass(frozen=True, slots=True)
class _Sizes:
    """What `check_data` measures of rows; ``pulls``: one of them has a feature and an error."""

    features: float
    weighted: float
    pull: float
    errors: float
    pulls: bool

    @classmethod
    def of(cls, kind: Kind, rows: Rows) -> _Sizes:
        """Measure; raises `InvalidData` on NaN or infinity."""
        rows.check_finite()
        with np.errstate(over="ignore", invalid="ignore"):
            x, weight = lengths(rows.X), rows.weight
            y = errors_at_zero(kind, rows)
            return cls(
                norm(x),
                norm(np.sqrt(weight) * x),
                float(weight * x @ y),
                float(weight @ y),
                bool(((x > 0) & (y > 0)).any()),
            )

    def __add__(self, other: _Sizes) -> _Sizes:
        return _Sizes(
            math.hypot(self.features, other.features),
            math.hypot(self.weighted, other.weighted),
            self.pull + other.pull,
            self.errors + other.errors,
            self.pulls or other.pulls,
        )


def check_data(objective: Objective, rows: RowsInBlocks) -> Pull:
    """Check rows before they are fitted, and return their pull.

    Parameters
    ----------
    objective
        The loss, with the ridge.
    rows
        All rows of the fit.

    Raises
    ------
    InvalidData
        A number is not finite, or they are too large or too small to compute with.

    Notes
    -----
    Cost O(n d); a pass.
    """
    sizes = reduce(add, over(rows, partial(_Sizes.of, objective.kind)))
    weighted, pull = sizes.weighted, sizes.pull
    largest = max(sizes.features, weighted, math.sqrt(objective.penalty.max()))
    if objective.linear is not None:
        pull += norm(objective.linear)
    if not largest <= LARGEST:
        raise InvalidData(
            f"the features, weights and ridge are too large to compute with: the root of their "
            f"sum of squares is {largest:.0e}, at most {LARGEST:.0e}; {_RESCALE}"
        )
    if not pull <= LARGEST_PULL:
        raise InvalidData(
            "features times targets are too large to compute with: their sum is "
            f"{pull:.0e}, at most {LARGEST_PULL:.0e}; {_RESCALE}"
        )
    if not sizes.pulls:
        return Pull(0.0, 0.0)  # nothing pulls: theta is 0, and no number is too small for that
    _check_not_vanishing("features times targets", pull, SMALLEST_PULL)
    if objective.kind is not Kind.LINEAR:
        size = math.hypot(weighted, math.sqrt(objective.penalty.max()))
        _check_not_vanishing("features beside the ridge", pull / size, SMALLEST_GAIN)
    return Pull(pull, sizes.errors)


def errors_at_zero(kind: Kind, rows: Rows) -> Array:
    """Return bounds of the rows' errors at theta = 0, (n,)."""
    match kind:
        case Kind.LINEAR:
            return lengths(rows.y)
        case Kind.LOGISTIC | Kind.SOFTMAX:
            return np.ones(len(rows))
        case Kind.POISSON:
            return 1.0 + lengths(rows.y)


def check_fitted(factor: Factor, theta: Array, pull: Pull) -> None:
    """Check the result of a fit; ``pull`` is what `check_data` returned.

    Raises
    ------
    InvalidData
        The numbers are too large or too small to compute with.
    """
    if not np.isfinite(theta).all():
        raise InvalidData(f"the parameters are too large to compute with; {_RESCALE}")
    if not factor.smallest >= SMALLEST_EIGENVALUE:
        raise InvalidData(
            "the features and the ridge are too small to compute with: the smallest eigenvalue "
            f"of the Hessian is {factor.smallest:.0e}, at least {SMALLEST_EIGENVALUE:.0e}; "
            f"{_RESCALE}"
        )
    if pull.total > 0:
        # Dual rows are what an error of 1 moves theta by.
        moved = pull.total / max(pull.errors, 1.0) / factor.smallest
        _check_not_vanishing("the parameters", moved, SMALLEST_PULL)


def _check_not_vanishing(what: str, size: float, smallest: float) -> None:
    if not size >= smallest:
        raise InvalidData(
            f"{what} are too small to compute with: {size:.0e}, at least {smallest:.0e}; {_RESCALE}"
        )
