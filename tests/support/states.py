"""Engine states made from the families: from `tests.support.families` to the engine."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from lethe.engine.deletion.generation import Generation, Stream, begin
from lethe.engine.deletion.methods import method_named
from lethe.engine.deletion.stream import delete
from lethe.engine.fit.objective import Kind, Objective, Rows
from lethe.engine.fit.precompute import Precomputation
from lethe.engine.refresh.blockwise import precompute_blocks
from tests.support.families import Array, Data, Index, make
from tests.support.oracles import Wide, retrain_wide


@dataclass(frozen=True, slots=True)
class Started:
    """A family's data, precomputed, before the first deletion."""

    data: Data
    objective: Objective
    rows: Rows
    made: Precomputation
    generation: Generation
    stream: Stream

    def delete(self, stream: Stream, index: Index, method: str) -> Stream:
        """Return the stream after one batch."""
        rows, W = self.rows.take(index), self.made.dual_rows[index]
        return delete(self.generation, stream, rows, W, method_named(method)).stream

    def delete_in(self, sizes: list[int], method: str) -> Stream:
        """Return the stream after deleting the family's rows in batches of these sizes."""
        stream, first = self.stream, 0
        for size in sizes:
            stream = self.delete(stream, self.data.deleted[first : first + size], method)
            first += size
        return stream

    def retrained(self, deleted: int) -> Wide:
        """Return the minimiser without the first ``deleted`` rows, by the oracle."""
        live = self.data.live(deleted)
        data = self.data
        return retrain_wide(
            data.kind, data.design[live], data.y[live], data.weight[live], data.penalty
        )

    def live_rows(self, deleted: int) -> tuple[Rows, Array]:
        """Return the live rows and their base dual rows."""
        live = self.data.live(deleted)
        return self.rows.take(live), self.made.dual_rows[live]


def start(data: Data) -> Started:
    """Precompute and begin."""
    objective = Objective(Kind(data.kind), data.penalty)
    rows = Rows(data.design, data.y, data.weight)
    made = precompute_blocks(objective, rows)
    generation, stream = begin(0, objective, made)
    return Started(data, objective, rows, made, generation, stream)


def started(name: str, kind: str, seed: int = 0) -> Started:
    """Precompute a family by name."""
    return start(make(name, kind, seed))


def singles(data: Data) -> list[int]:
    """Return the batch sizes that delete one row at a time."""
    return [1] * len(data.deleted)


def as_double(theta: Wide) -> Array:
    """Return the oracle's answer in double precision."""
    return np.asarray(theta, dtype=np.float64)
