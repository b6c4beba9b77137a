"""A change of rows as one step: those that arrive, and those that leave.

Every deletion, insertion and correction of the library, of the worker and of the fold is this step.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from lethe.engine.deletion import coupled
from lethe.engine.deletion.correction import INSERTED
from lethe.engine.deletion.generation import Generation, Stream
from lethe.engine.deletion.insertion import insert
from lethe.engine.deletion.methods import method_named
from lethe.engine.deletion.methods.method import DeletionMethod
from lethe.engine.deletion.stream import delete
from lethe.engine.fit.classes import class_counts
from lethe.engine.fit.objective import Array, Kind, Rows


class RowsAndDuals(NamedTuple):
    """k rows that arrive or leave.

    Attributes
    ----------
    rows
        In base units, if the model has preprocessing.
    W, dual_error
        k x (h d), their base dual rows; of rows that arrive, a bound of the error of those
        (`engine.deletion.insertion.base_dual_rows`).
        A softmax model has none (k x 0).
    entries
        With preprocessing, their places (`engine.preprocess.transformation.layout`).
    """

    rows: Rows
    W: Array
    dual_error: float = 0.0
    entries: NDArray[np.intp] | None = None


class RowMoves(NamedTuple):
    """The rows that one change brings in, and those that it leaves out."""

    arriving: RowsAndDuals | None = None
    leaving: RowsAndDuals | None = None

    def class_counts(self, before: tuple[int, ...] | None) -> tuple[int, ...] | None:
        """Return how many rows each class has afterwards; None for a model without classes."""
        if before is None:
            return None
        counts = np.array(before)
        if self.arriving is not None:
            counts += class_counts(self.arriving.rows.y)
        if self.leaving is not None:
            counts -= class_counts(self.leaving.rows.y)
        return tuple(counts.tolist())


def change(generation: Generation, stream: Stream, moved: RowMoves, method: str) -> Stream:
    """Return the stream after a change of rows, published by ``method``.

    New rows come first: they only lower leverages.

    Raises
    ------
    IllConditioned
        The step or its error is not a finite number, or a guard refuses it.

    Notes
    -----
    Cost O(K k d + k^2 d); of a softmax model that of `engine.deletion.coupled.step`.
    """
    publishes = method_named(method)
    if generation.objective.kind is Kind.SOFTMAX:
        return _change_coupled(generation, stream, moved, publishes)
    if moved.arriving is not None:
        rows, W, dual_error, _ = moved.arriving
        stream = insert(generation, stream, rows, W, publishes, dual_error).stream
    if moved.leaving is not None:
        rows, W, *_ = moved.leaving
        stream = delete(generation, stream, rows, W, publishes).stream
    return stream


def _change_coupled(
    generation: Generation, stream: Stream, moved: RowMoves, method: DeletionMethod
) -> Stream:
    if moved.arriving is not None:
        stream = coupled.step(generation, stream, moved.arriving.rows, method, INSERTED)
    if moved.leaving is not None:
        stream = coupled.step(generation, stream, moved.leaving.rows, method)
    return stream
