"""Section ``cost against d``: the product's deletion step, and its slope in d.

`engine.deletion.stream.delete` of k rows of a fresh generation, methods exact and PRU. The
precomputation is synthetic: A = c I with c above anything that the deleted rows can take away, so
that dual rows are exact (x / c) and no d x d matrix is needed. No time depends on the values. Rows
stay the same, so that they are in the caches wherever these can hold them.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np

from harness.records import Record, slope, timed
from harness.study import Section, Setup
from harness.timing import in_turns
from lethe.engine.deletion.correction import Correction
from lethe.engine.deletion.generation import Generation, Stream, at_rest
from lethe.engine.deletion.growing import GrowingRows
from lethe.engine.deletion.methods import method_named
from lethe.engine.deletion.stream import delete
from lethe.engine.fit.objective import Array, Kind, Objective, Rows

METHODS = ("exact", "pru")


class Deletion:
    """`engine.deletion.stream.delete` of the same rows from the same stream, again and again."""

    def __init__(
        self, generation: Generation, stream: Stream, rows: Rows, W: Array, method: str
    ) -> None:
        self.generation, self.stream, self.rows, self.W = generation, stream, rows, W
        self.method = method_named(method)

    def renew(self) -> None:
        """Give the stream buffers that have room, as that of a running worker has.

        Appending twice to one stream copies its history; a stream that moves on never does that.
        """
        V, Q = Correction.of(self.stream.V.array), GrowingRows.of(self.stream.Q.array)
        self.stream = self.stream._replace(V=V, Q=Q)

    def first(self, k: int) -> Deletion:
        """Return the deletion of the first k of the rows."""
        rows, W = self.rows.take(slice(0, k)), self.W[:k]
        return Deletion(self.generation, self.stream, rows, W, self.method.name)

    def __call__(self) -> object:
        """Delete."""
        return delete(self.generation, self.stream, self.rows, self.W, self.method)


def renew_all(deletions: Iterable[Deletion]) -> None:
    """Renew each."""
    for deletion in deletions:
        deletion.renew()


def synthetic_deletion(rng: np.random.Generator, d: int, K: int, k: int, method: str) -> Deletion:
    """Return the deletion of k rows from a stream that has lost K rows before."""
    c = 2.0 * (np.sqrt(d) + np.sqrt(K + k)) ** 2
    X, y = rng.standard_normal((K + k, d)), rng.standard_normal((K + k, 1))
    rows, W, theta = Rows(X, y, np.ones(K + k)), X / c, rng.standard_normal((d, 1))
    objective = Objective(Kind.LINEAR, np.ones(d))
    generation = Generation(0, objective, theta, smallest=c, largest=c, dual_error=0.0)
    before, last = slice(0, K), slice(K, K + k)
    stream = delete(
        generation, at_rest(theta, 0.0), rows.take(before), W[before], method_named(method)
    ).stream
    return Deletion(generation, stream, rows.take(last), W[last], method)


@dataclass(frozen=True, slots=True)
class Plan:
    """Sizes."""

    d: Sequence[int] = (250, 500, 1000, 2000, 4000)
    k: Sequence[int] = (1, 10, 100)
    repeats: int = 41


def run(plan: Plan, setup: Setup) -> Iterable[Record]:
    """Time the steps, sizes and methods in turns, and fit the slopes."""
    for k in plan.k:
        calls = {
            f"{method} {d}": synthetic_deletion(
                np.random.default_rng((setup.seed, d, k)), d, 0, k, method
            )
            for d in plan.d
            for method in METHODS
        }
        samples = in_turns(calls, plan.repeats, partial(renew_all, calls.values()))
        for method in METHODS:
            records = [
                timed({"method": method, "d": d, "k": k}, "step", samples[f"{method} {d}"])
                for d in plan.d
            ]
            yield from records
            steepness = slope(plan.d, [record.value for record in records])
            setting: dict[str, str | int] = {"method": method, "k": k}
            yield Record(setting, "slope in d", "1", steepness, len(records), goal=1.1)


SECTION = Section("cost against d", Plan(), Plan(d=(50, 100), k=(1, 10), repeats=5), run)
