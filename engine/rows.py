"""The rows of a library model: ids, places, which are live; and the validation of input.

Rows keep their place for good, and a deleted row's numbers are overwritten with zeros: features,
target, dual row. (A worker keeps the same in Redis: `engine.store`.)
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from lethe.engine.deletion.change import RowsAndDuals
from lethe.engine.deletion.generation import Generation
from lethe.engine.error.sentinels import Sentinels, choose_sentinels, possible_parts
from lethe.engine.errors import InvalidData, UnknownRows
from lethe.engine.fit.class_weights import ClassWeights
from lethe.engine.fit.classes import encoded, weighted_counts
from lethe.engine.fit.counts import check_counts
from lethe.engine.fit.objective import Array, Kind, Rows, with_intercept
from lethe.engine.ids import ids_of

Mask = NDArray[np.bool_]

_NOT_NUMBERS = {
    "c": "Complex data not supported",
    "M": "it holds dates; make numbers of them, such as days since one of them",
    "m": "it holds durations; make numbers of them, such as hours",
}
"""Kinds of NumPy's types, and what is said of them."""


@dataclass(slots=True)
class Membership:
    """The rows of one model. Owns its arrays: nothing is shared with the caller.

    Attributes
    ----------
    kind
        The model's.
    ids, place
        Row ids in order of place, and back.
    rows
        All rows, zeros where deleted.
    W
        n x (h d), their dual rows relative to the generation's A_b, zeros where deleted.
    live
        (n,) whether each row is live.
    remaining
        Number of live rows. It is kept, like the counts, so that a deletion does not scan n rows.
    counts
        Live rows with a weight, by what a minimiser needs (`engine.fit.classes.weighted_counts`).
    class_weights
        Those of the model, if it has any: they are in the weights of ``rows``.
    """

    kind: Kind
    ids: tuple[str, ...]
    place: dict[str, int]
    rows: Rows
    W: Array
    live: Mask
    remaining: int
    counts: tuple[int, ...]
    class_weights: ClassWeights | None = None

    @classmethod
    def of(cls, kind: Kind, ids: tuple[str, ...], rows: Rows, W: Array) -> Membership:
        """Return the membership in which every row is live. Cost O(n m)."""
        place = {name: i for i, name in enumerate(ids)}
        live, counts = np.ones(len(ids), dtype=np.bool_), weighted_counts(kind, rows)
        return cls(kind, ids, place, rows, W, live, len(ids), counts)

    def __len__(self) -> int:
        """Return the number of live rows."""
        return self.remaining

    @property
    def weighted(self) -> int:
        """Number of live rows with a weight: without one, theta is 0."""
        return sum(self.counts)

    def counts_without(self, ids: tuple[str, ...]) -> tuple[int, ...]:
        """Return the `counts` that remain once ``ids`` (k live ones) are gone. Cost O(k m)."""
        deleted = weighted_counts(self.kind, self.rows.take(self.places(ids)))
        return tuple(before - removed for before, removed in zip(self.counts, deleted, strict=True))

    def live_among(self, ids: Iterable[str]) -> tuple[str, ...]:
        """Return those of ``ids`` that are live, each once, in order.

        Raises
        ------
        InvalidData
            A value that is no id, or a single string in place of a list of ids.
        UnknownRows
            Some id was never a row of the model.
        """
        wanted = dict.fromkeys(ids_of(ids))
        unknown = [name for name in wanted if name not in self.place]
        if unknown:
            if len(unknown) == 1:
                what = f"row {unknown[0]!r} was never a row of this model"
            else:
                what = f"{len(unknown)} of {len(wanted)} ids were never rows of this model, the "
                what += f"first is {unknown[0]!r}"
            raise UnknownRows(f"{what}; nothing was deleted")
        return tuple(name for name in wanted if self.live[self.place[name]])

    def places(self, ids: tuple[str, ...]) -> NDArray[np.intp]:
        """Return the places of ``ids``."""
        return np.array([self.place[name] for name in ids], dtype=np.intp)

    def moved(self, ids: tuple[str, ...]) -> RowsAndDuals:
        """Return rows as a change leaves them out, with their dual rows. Cost O(k d)."""
        places = self.places(ids)
        return RowsAndDuals(self.rows.take(places), self.W[places])

    @property
    def balanced(self) -> bool:
        """Whether the weights of the classes follow the live rows."""
        return self.class_weights is not None and self.class_weights.balanced

    def rebalance(self, remain: Mask) -> None:
        """Give the rows that remain the weights of balanced classes, if they have such. O(n m)."""
        if self.class_weights is not None and self.class_weights.balanced and remain.any():
            weight = self.rows.weight.copy()
            weight[remain] = self.class_weights.of_rows(self.rows.y[remain])
            self.rows = replace(self.rows, weight=weight)

    def live_without(self, ids: tuple[str, ...]) -> Mask:
        """Return which rows remain once ``ids`` are gone."""
        remain = self.live.copy()
        remain[self.places(ids)] = False
        return remain

    def forget(self, ids: tuple[str, ...]) -> None:
        """Mark the live rows ``ids`` as deleted and overwrite their data. Cost O(k d)."""
        self.leave(ids)
        self.erase(ids)

    def leave(self, ids: tuple[str, ...]) -> None:
        """Stop counting the live rows ``ids``; what is shared with a copy stays. Cost O(k m)."""
        self.counts = self.counts_without(ids)
        self.remaining -= len(ids)

    def erase(self, ids: tuple[str, ...]) -> None:
        """Mark rows that have left as deleted, and overwrite their data. Cost O(k d)."""
        places = self.places(ids)
        self.live[places] = False
        self.rows.X[places] = 0.0
        self.rows.y[places] = 0.0
        self.W[places] = 0.0

    def add(self, ids: tuple[str, ...], rows: Rows, W: Array) -> None:
        """Add live rows with their base dual rows; an id that is there gets a new place.

        Cost O(n d): the arrays are copied.
        """
        first = len(self.ids)
        self.ids = (*self.ids, *ids)
        self.place |= {name: first + i for i, name in enumerate(ids)}
        self.rows = stacked(self.rows, rows)
        self.W = np.vstack([self.W, W])
        self.live = np.append(self.live, np.ones(len(ids), dtype=np.bool_))
        self.remaining += len(ids)
        added = weighted_counts(self.kind, rows)
        self.counts = tuple(n + more for n, more in zip(self.counts, added, strict=True))

    def with_deleted(self, ids: tuple[str, ...]) -> Membership:
        """Return the membership with ids of deleted rows, which never come back. Cost O(n d)."""
        first, k, d = len(self.ids), len(ids), self.rows.X.shape[1]
        nothing = Rows(np.zeros((k, d)), np.zeros((k, self.rows.outputs)), np.zeros(k))
        return replace(
            self,
            ids=(*self.ids, *ids),
            place=self.place | {name: first + i for i, name in enumerate(ids)},
            rows=stacked(self.rows, nothing),
            W=np.vstack([self.W, np.zeros((k, self.W.shape[1]))]),
            live=np.append(self.live, np.zeros(k, dtype=np.bool_)),
        )

    def with_dual_rows(self, live: Mask, W: Array) -> Membership:
        """Return the membership with other dual rows, W of the ``live`` rows and 0 elsewhere."""
        everywhere = np.zeros((len(live), W.shape[1]))
        everywhere[live] = W
        return replace(self, W=everywhere)

    def sentinels(
        self, generation: Generation, seed: int, without: tuple[str, ...] = ()
    ) -> Sentinels:
        """Return a random sample of the live rows. Cost O(n d), no copy of the rows."""
        places = np.flatnonzero(self.live_without(without) if without else self.live)
        parts = possible_parts(generation, self.rows, self.W)[places]
        chosen, pi = choose_sentinels(parts, seed)
        sampled = places[chosen]
        return Sentinels(
            tuple(self.ids[i] for i in sampled), self.rows.take(sampled), self.W[sampled], pi
        )

    def live_ids(self) -> tuple[str, ...]:
        """Return the ids of the live rows, in order of place."""
        return tuple(name for name, alive in zip(self.ids, self.live, strict=True) if alive)


def stacked(rows: Rows, more: Rows) -> Rows:
    """Return rows, and others below them."""
    return Rows(
        np.vstack([rows.X, more.X]),
        np.vstack([rows.y, more.y]),
        np.append(rows.weight, more.weight),
    )


def numbers(values: ArrayLike, name: str, dimensions: tuple[int, ...]) -> Array:
    """Return a float64 copy of ``values``.

    Raises
    ------
    InvalidData
        Not numbers, or not of one of these ``dimensions``.
    """
    if np.ma.is_masked(values):  # an array of it would hold what is masked
        raise InvalidData(f"{name} has masked values; fill them in, or leave out their rows")
    try:
        _check_kind(np.asarray(values))
        with np.errstate(over="ignore"):  # from a wider type; detected as not finite
            array = np.array(values, dtype=np.float64, order="C")
    except (TypeError, ValueError, OverflowError, NotImplementedError) as error:
        raise InvalidData(f"{name} is not an array of numbers: {error}") from error
    if array.ndim not in dimensions:
        allowed = " or ".join(str(n) for n in dimensions)
        raise InvalidData(
            f"{name} must have {allowed} dimensions, not {array.ndim}. Reshape your data: a row of "
            "the array for each row"
        )
    return array


def _check_kind(values: NDArray[Any]) -> None:
    if values.dtype.kind in _NOT_NUMBERS:  # NumPy would make numbers of them
        raise TypeError(_NOT_NUMBERS[values.dtype.kind])


def checked_rows(
    kind: Kind,
    X: ArrayLike,
    y: ArrayLike,
    ids: Sequence[str] | None,
    sample_weight: ArrayLike | None,
    *,
    intercept: bool,
) -> tuple[tuple[str, ...], Rows, tuple[str, ...]]:
    """Return ids, rows and class names in the engine's form.

    Rows are float64 copies with the intercept appended; class names are those of
    `engine.fit.classes.encoded`.

    Raises
    ------
    InvalidData
        Shapes, ids or numbers cannot be used.
    """
    features = numbers(X, "X", (2,))
    n = len(features)
    if n == 0:
        raise InvalidData("there is no row to fit; give at least one")
    if features.shape[1] == 0:
        raise InvalidData(
            f"there is no feature to fit: X has 0 feature(s) (shape=({n}, 0)) while a minimum of 1 "
            "is required."
        )
    labelled = kind.has_classes
    classes, targets = encoded(y) if labelled else ((), numbers(y, "y", (1, 2)))
    weight = np.ones(n) if sample_weight is None else numbers(sample_weight, "sample_weight", (1,))
    if len(targets) != n:
        raise InvalidData(f"X has {n} rows, but y has {len(targets)}")
    if len(weight) != n:
        raise InvalidData(f"X has {n} rows, but there are {len(weight)} weights")
    names = tuple(map(str, range(n))) if ids is None else ids_of(ids)
    if len(names) != n:
        raise InvalidData(f"{len(names)} ids for {n} rows; give one id a row")
    if len(set(names)) != n:
        raise InvalidData("ids are not distinct; give each row its own id")
    rows = Rows(with_intercept(features) if intercept else features, targets.reshape(n, -1), weight)
    if rows.y.shape[1] == 0:
        raise InvalidData("there is no target to fit")
    rows.check_finite()
    if kind is Kind.POISSON:
        check_counts(rows)
    check_weights(rows.weight)
    if not rows.weight.any():
        raise InvalidData("every sample weight is zero; give at least one row a weight")
    return names, rows, classes


def check_weights(weight: Array) -> None:
    """Refuse weights below 0; a row of weight 0 counts as a row, and changes nothing.

    Raises
    ------
    InvalidData
        The first such row.
    """
    below = np.flatnonzero(weight < 0)
    if len(below):
        raise InvalidData(f"the sample weight of row {below[0]} is below 0: {weight[below[0]]:g}")
