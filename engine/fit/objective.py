"""The regularised loss that a model minimises, and its derivatives.

    L(theta) = sum_i weight_i loss(x_i . theta, y_i) + 1/2 sum_j penalty_j |theta_j|^2 + b . theta

The losses are in `engine.fit.losses`: the square loss (the paper's section 2), the logistic loss
(section 4.2), and the Poisson loss. The vector ``penalty`` holds the ridge strength, and 0 for an
intercept that is not penalised. The linear term b is there for certified removal only
(`engine.error.certified`).

Conventions of the whole package: ``X`` is n x d and float64, its last column the constant 1 when
the model has an intercept; ``theta`` is d x m; targets ``y`` are n x m; ``weight`` has length n.
"Error" and "curvature" are the first and second derivative of the weighted loss in the margin
x . theta, so sample weights never appear in the algebra of deletion.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from types import MappingProxyType
from typing import Protocol, TypeAlias, TypeVar

import numpy as np
from numpy.typing import NDArray
from scipy.linalg.blas import ddot, dsyrk

from lethe.engine.errors import InvalidData
from lethe.engine.fit.losses import LogisticLoss, Loss, PoissonLoss, SquareLoss

Array: TypeAlias = NDArray[np.float64]

T = TypeVar("T")

_MIRRORED = 128  # columns: a second matrix as large as A would cost more than the copying
_PLAIN = (1e-140, 1e150)  # a norm in this range has squares inside float64
_SMALLEST_SQUARE, _LARGEST_SQUARE = _PLAIN[0] ** 2, _PLAIN[1] ** 2
_READ = 4096  # rows of a block of `Rows.blocks`
_SUMMED = 1024  # rows summed at once: BLAS adds them one after another, and they fit a cache


class Kind(StrEnum):
    """The loss: ``linear`` (square loss), ``logistic``, ``poisson`` (counts) or ``softmax``.

    A linear model has any m. A logistic model has m = 1, or of C > 2 classes m = C: each against
    the rest, y one-hot. A Poisson model has m = 1. A softmax model has m = C > 2 and y one-hot; its
    objective is `engine.fit.multinomial.SoftmaxObjective`.
    """

    LINEAR = "linear"
    LOGISTIC = "logistic"
    POISSON = "poisson"
    SOFTMAX = "softmax"

    @property
    def has_classes(self) -> bool:
        """Whether targets are classes."""
        return self in (Kind.LOGISTIC, Kind.SOFTMAX)


LOSSES: Mapping[Kind, Loss] = MappingProxyType(
    {Kind.LINEAR: SquareLoss(), Kind.LOGISTIC: LogisticLoss(), Kind.POISSON: PoissonLoss()}
)


@dataclass(frozen=True, slots=True)
class Rows:
    """Training rows: features ``X`` (k x d), targets ``y`` (k x m), ``weight`` (k,)."""

    X: Array
    y: Array
    weight: Array

    def __post_init__(self) -> None:
        k = self.X.shape[0]
        if self.X.ndim != 2 or self.y.ndim != 2 or self.weight.shape != (k,) or len(self.y) != k:
            raise InvalidData(
                f"rows do not fit together: X {self.X.shape}, y {self.y.shape}, "
                f"weight {self.weight.shape}"
            )

    def __len__(self) -> int:
        return int(self.X.shape[0])

    @property
    def outputs(self) -> int:
        """How many targets each has."""
        return int(self.y.shape[1])

    def take(self, index: NDArray[np.intp] | NDArray[np.bool_] | slice) -> Rows:
        """Return the rows at ``index``."""
        return Rows(self.X[index], self.y[index], self.weight[index])

    def blocks(self) -> Iterator[Rows]:
        """Yield them in blocks, which are views."""
        for start in range(0, len(self), _READ):
            yield self.take(slice(start, start + _READ))

    def each(self, kernel: Callable[[Rows], T]) -> Iterator[T]:
        """Yield what a kernel makes of each block."""
        return map(kernel, self.blocks())

    def check_finite(self) -> None:
        """Raise `InvalidData` on NaN or infinity: one such row would spoil the whole inverse."""
        for name, values in (("feature", self.X), ("target", self.y), ("weight", self.weight)):
            check_finite(name, values)


class RowsInBlocks(Protocol):
    """Rows that are read block by block, as often as is asked: `Rows`, or what is in files."""

    def __len__(self) -> int:
        """How many there are."""

    @property
    def outputs(self) -> int:
        """How many targets each has."""

    def blocks(self) -> Iterator[Rows]:
        """Yield them, the same with every pass."""

    def each(self, kernel: Callable[[Rows], T]) -> Iterator[T]:
        """Yield what a kernel makes of each block, in the order of blocks: a pass.

        Other processes may compute it: ``kernel`` depends on its argument alone, and is pickled by
        name: a function of a module, or a `functools.partial` or an instance of a class of one.
        """


def over(rows: RowsInBlocks, kernel: Callable[[Rows], T]) -> Iterable[T]:
    """Return what a kernel makes of rows: of all at once, or of each block in turn, a pass."""
    return (kernel(rows),) if isinstance(rows, Rows) else rows.each(kernel)


def in_memory(rows: RowsInBlocks) -> Rows:
    """Return rows as they are: these are not in files."""
    if isinstance(rows, Rows):
        return rows
    raise AssertionError("the rows of this model are in memory")


def check_finite(name: str, values: Array, advice: str = "correct the row") -> None:
    """Raise `InvalidData` on NaN or infinity, with its row: ``values`` are one or more a row."""
    with np.errstate(over="ignore", invalid="ignore"):
        if np.isfinite(values.sum()):  # then all are, and no array of flags is needed
            return
    finite = np.isfinite(values)
    if not finite.all():
        row = int(np.argwhere(~finite)[0][0])
        what = "NaN" if np.isnan(values[row]).any() else "infinite"
        raise InvalidData(f"a {name} of row {row} is not a finite number ({what}); {advice}")


@dataclass(frozen=True, slots=True)
class Objective:
    """A loss and its ridge penalty.

    Parameters
    ----------
    kind
        Which loss.
    penalty
        Ridge strength of each of the d coordinates of theta, >= 0.
    linear
        The noise b of certified removal, d x m, or None for none.
    """

    kind: Kind
    penalty: Array
    linear: Array | None = None

    @property
    def d(self) -> int:
        """Length of theta, the intercept included."""
        return int(self.penalty.shape[0])

    @property
    def loss(self) -> Loss:
        """The loss and its derivatives in the margin."""
        return LOSSES[self.kind]

    def blocks(self, m: int) -> int:
        """Return the number of blocks of m outputs: each has one Hessian (`engine.fit.blocks`)."""
        return 1 if self.kind is Kind.LINEAR else m

    @property
    def of_rows(self) -> Objective:
        """The part that rows add up to: without penalty and linear term."""
        return Objective(self.kind, np.zeros(self.d))

    def of_block(self, c: int, h: int) -> Objective:
        """Return the objective of block c of h, with its own part of the linear term."""
        if h == 1 or self.linear is None:
            return self
        return replace(self, linear=self.linear[:, c : c + 1])

    def mean(self, margin: Array) -> Array:
        """Return the predicted mean of a margin."""
        return self.loss.mean(margin)

    def error(self, rows: Rows, theta: Array) -> Array:
        """Return e = weight (mean(x . theta) - y), shape k x m. Cost O(k d m)."""
        return self.error_at(rows, rows.X @ theta)

    def error_at(self, rows: Rows, margin: Array) -> Array:
        """Return `error` where the margins x . theta (k x m) are known. Cost O(k m)."""
        return rows.weight[:, None] * self.loss.error(margin, rows.y)

    def curvature(self, rows: Rows, theta: Array) -> Array:
        """Return s = weight times the second derivative of the loss, shape (k,). Cost O(k d).

        For one block: a theta of several classes has a curvature for each (`curvatures`).
        """
        if self.kind is Kind.LINEAR:
            return rows.weight
        return self.curvature_at(rows, rows.X @ theta)

    def curvature_at(self, rows: Rows, margin: Array) -> Array:
        """Return `curvature` where the margins (k x 1) are known. Cost O(k)."""
        if self.kind is Kind.LINEAR:
            return rows.weight
        if margin.shape[1] != 1:
            raise ValueError(f"theta of {margin.shape[1]} classes has as many curvatures")
        return rows.weight * self.loss.curvature(margin[:, 0])

    def curvatures(self, rows: Rows, theta: Array) -> Array:
        """Return the curvature in each of h blocks, shape k x h. Cost O(k d h)."""
        h = self.blocks(theta.shape[1])
        if h == 1:
            return self.curvature(rows, theta)[:, None]
        return np.column_stack([self.curvature(rows, theta[:, c : c + 1]) for c in range(h)])

    def value(self, rows: Rows, theta: Array) -> float:
        """Return L(theta). Cost O(n d m)."""
        return self.value_at(rows, rows.X @ theta, theta)

    def value_at(self, rows: Rows, margin: Array, theta: Array) -> float:
        """Return `value` where the margins are known. Cost O((k + d) m)."""
        losses = np.sum(self.loss.value(margin, rows.y), axis=1)
        penalised = 0.5 * np.sum(self.penalty[:, None] * theta**2)
        return float(rows.weight @ losses + penalised) + self._tilt(theta)

    def base_value(self, theta: Array) -> float:
        """Return the part of the value that no row adds: penalty and linear term."""
        return float(0.5 * np.sum(self.penalty[:, None] * theta**2)) + self._tilt(theta)

    def _tilt(self, theta: Array) -> float:
        return 0.0 if self.linear is None else float(np.sum(self.linear * theta))

    def gradient(self, rows: Rows, theta: Array) -> Array:
        """Return the gradient of L, shape d x m. Cost O(n d m)."""
        total = self.base_gradient(theta)
        # In blocks: rounding grows with their size and not with n, and each is read once.
        for start in range(0, len(rows), _SUMMED):
            block = rows.take(slice(start, start + _SUMMED))
            total = total + block.X.T @ self.error(block, theta)
        return total

    def base_gradient(self, theta: Array) -> Array:
        """Return the part of the gradient that no row adds: penalty and linear term, d x m."""
        pulled = self.penalty[:, None] * theta
        return pulled if self.linear is None else pulled + self.linear

    def error_scale(self, rows: Rows, theta: Array) -> float:
        """Return what rounding in sum_i x_i e_i is proportional to, with eps and a small factor.

        Row i adds |x_i| times the rounding of its error, which is relative to `Loss.error_size`
        and to what went into the margin. The plain sum is taken, not the root of the sum of
        squares: partial sums reach it when rows are sorted by target (measured: the root is too
        small by 2.5). It does not vanish with theta, as eps |A| |theta| would. Cost O(k d m).
        """
        row_lengths = lengths(rows.X)[:, None]
        reach = row_lengths * lengths(theta.T)
        if self.kind is Kind.LINEAR:
            parts = rows.weight[:, None] * (reach + np.abs(rows.y))
        else:
            parts = self.error_size_at(rows, rows.X @ theta)
            parts = parts + self.curvatures(rows, theta) * reach
        return float(np.sum(row_lengths * parts))

    def error_size_at(self, rows: Rows, margin: Array) -> Array:
        """Return what rounding in `error_at` is relative to, shape k x m. Cost O(k m)."""
        return rows.weight[:, None] * self.loss.error_size(margin, rows.y)

    def gradient_scale(self, rows: Rows, theta: Array) -> float:
        """Return what rounding in `gradient` is proportional to. Cost O(n d m)."""
        return self.error_scale(rows, theta) + self.base_scale(theta)

    def base_scale(self, theta: Array) -> float:
        """Return what rounding in `base_gradient` is proportional to."""
        tilt = 0.0 if self.linear is None else norm(self.linear)
        return norm(self.penalty[:, None] * theta) + tilt

    def hessian(self, rows: Rows, theta: Array) -> Array:
        """Return A = X^T S X + diag(penalty), shape d x d. Cost O(n d^2).

        Half of the symmetric product, in blocks of rows: no scaled copy of X is made.
        """
        A = np.zeros((self.d, self.d), order="F")
        for start in range(0, len(rows), _SUMMED):
            block = rows.take(slice(start, start + _SUMMED))
            root = np.sqrt(self.curvature(block, theta))
            scaled = block.X if (root == 1.0).all() else block.X * root[:, None]
            A = dsyrk(1.0, scaled.T, beta=1.0, c=A, lower=True, overwrite_c=True)
        mirror_lower(A)
        A[np.diag_indices_from(A)] += self.penalty
        return A


def mirror_lower(A: Array) -> None:
    """Write the lower triangle of A (d x d) over its upper one, a few columns at a time."""
    for start in range(0, len(A), _MIRRORED):
        diagonal, below = slice(start, start + _MIRRORED), slice(start + _MIRRORED, None)
        A[diagonal, below] = A[below, diagonal].T
        A[diagonal, diagonal] = (
            np.tril(A[diagonal, diagonal]) + np.tril(A[diagonal, diagonal], -1).T
        )


def ridge_penalty(ridge: float, d: int, *, intercept: bool, penalise_intercept: bool) -> Array:
    """Return the penalty vector of length d; the intercept, if any, is the last coordinate."""
    if not (np.isfinite(ridge) and ridge > 0):
        raise InvalidData(f"ridge must be a finite number above 0, not {ridge}")
    penalty = np.full(d, float(ridge))
    if intercept and not penalise_intercept:
        penalty[-1] = 0.0
    return penalty


def with_intercept(X: Array) -> Array:
    """Return X with the constant column appended."""
    return np.hstack([X, np.ones((X.shape[0], 1))])


def norm(theta: Array) -> float:
    """Return the Euclidean norm over all of theta, intercept and outputs included.

    Correct even if squares overflow or underflow: an error of 1e-170 must not become 0.
    """
    if theta.size:
        flat = theta.ravel("K")
        square: float = ddot(flat, flat)
        if _SMALLEST_SQUARE <= square <= _LARGEST_SQUARE:
            return math.sqrt(square)
    largest = float(np.max(np.abs(theta), initial=0.0))
    if not 0.0 < largest < np.inf:
        return largest
    return largest * float(np.linalg.norm(theta / largest))


def lengths(X: Array) -> Array:
    """Return the Euclidean norm of every row, (n,); X is copied only if squares overflow.

    Where squares underflow, a row shorter than 1e-162 beside one longer than 1e-140 is taken for 0.
    Cost O(n d).
    """
    with np.errstate(over="ignore"):
        squares: Array = np.einsum("ij,ij->i", X, X)
    longest = float(np.max(squares, initial=0.0))
    if _SMALLEST_SQUARE <= longest <= _LARGEST_SQUARE:
        return np.sqrt(squares)
    largest = float(np.max(np.abs(X), initial=0.0))
    if not 0.0 < largest < np.inf:
        return np.sqrt(squares)
    scaled = X / largest
    with np.errstate(over="ignore"):
        return np.asarray(largest * np.sqrt(np.einsum("ij,ij->i", scaled, scaled)))
