"""A deletion that can be timed again and again."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from lethe.engine.deletion.growing import GrowingRows
from lethe.engine.deletion.methods import method_named
from lethe.engine.deletion.stream import Generation, Stream, delete
from lethe.engine.fit.objective import Array, Rows


class Deletion:
    """`engine.deletion.stream.delete` of the same rows from the same stream."""

    def __init__(
        self, generation: Generation, stream: Stream, rows: Rows, W: Array, method: str
    ) -> None:
        self.generation, self.stream, self.rows, self.W = generation, stream, rows, W
        self.method = method_named(method)

    def renew(self) -> None:
        """Give the stream buffers that have room, as that of a running worker has.

        Appending twice to one stream copies its history; a stream that moves on never does that.
        """
        V, Q = (GrowingRows.of(rows.array) for rows in (self.stream.V, self.stream.Q))
        self.stream = replace(self.stream, V=V, Q=Q)

    def __call__(self) -> object:
        """Delete."""
        return delete(self.generation, self.stream, self.rows, self.W, self.method)


def renew_all(deletions: Iterable[Deletion]) -> None:
    """Renew each."""
    for deletion in deletions:
        deletion.renew()
