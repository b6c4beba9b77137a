"""What a family draws: rows, settings of the model, and the order in which rows go."""

from __future__ import annotations

import zlib
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

Array: TypeAlias = NDArray[np.float64]
Draw: TypeAlias = Callable[[Generator], "Case"]


@dataclass(frozen=True, slots=True)
class Case:
    """One model to fit, and how its rows are deleted.

    Attributes
    ----------
    X, y, weight
        As they are given to `fit`; float32 stays float32.
    ridge, intercept, penalise_intercept
        Settings of the model.
    order
        Places of the rows that are deleted first; the others follow in a drawn order.
    batches
        Sizes of the first batches; the later ones are drawn.
    keep
        Rows that are never deleted.
    deletions
        Requests at most.
    refreshing
        Chance of a refresh after each.
    """

    X: NDArray[np.floating[Any]]
    y: Array
    ridge: float
    intercept: bool = False
    penalise_intercept: bool = False
    weight: Array | None = None
    order: tuple[int, ...] = ()
    batches: tuple[int, ...] = ()
    keep: int = 5
    deletions: int = 8
    refreshing: float = 0.4


@dataclass(slots=True)
class Families:
    """Families by name, in the order in which they were written."""

    named: dict[str, Draw] = field(default_factory=dict)

    def __call__(self, draw: Draw) -> Draw:
        """Register a family under the name of its function (a decorator)."""
        self.named[draw.__name__] = draw
        return draw


def drawn(name: str, draw: Draw, seed: int) -> tuple[Case, Generator]:
    """Return the family's case of this seed, and the generator for what is drawn after it."""
    rng = np.random.default_rng([zlib.crc32(name.encode()), seed])
    return draw(rng), rng


def early(rng: Generator, first: list[int], n: int, among: int = 3) -> tuple[int, ...]:
    """Return an order that begins with ``first`` and up to ``among`` other rows, mixed."""
    others = [i for i in rng.permutation(n).tolist() if i not in set(first)]
    mixed = [*first, *others[: int(rng.integers(among + 1))]]
    return tuple(mixed[i] for i in rng.permutation(len(mixed)))


def power(rng: Generator, low: float, high: float) -> float:
    """Return ten to a power between the two."""
    return float(10.0 ** rng.uniform(low, high))
