"""Reading a staged generation back, and catching up with deletions that it does not know."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from engine.error import Sentinels
from engine.growing import GrowingRows
from engine.methods import method_named
from engine.objective import Array, Rows
from engine.store import codec
from engine.store.connection import reachable
from engine.store.generation import read_fixed
from engine.store.head import Meta
from engine.store.jobs import JobResult
from engine.store.keys import GenerationKeys
from engine.store.store import ModelStore
from engine.stream import Deletion, Generation, Stream, delete

THETAS = ("theta_exact", "theta_r", "anchor", "published")


@dataclass(frozen=True, slots=True)
class Staged:
    """A staged generation as it lies in the store."""

    keys: GenerationKeys
    generation: Generation
    stream: Stream
    sentinels: Sentinels


@dataclass(frozen=True, slots=True)
class CaughtUp:
    """A staged generation after it learnt of later deletions.

    ``rows`` are those of them that it held, ``ones`` how many had target 1.
    """

    staged: Staged
    deletion: Deletion | None
    rows: tuple[str, ...]
    ones: int

    def class_counts(self, before: tuple[int, int] | None) -> tuple[int, int] | None:
        """Return the counts of targets 0 and 1 without the rows that it learnt of."""
        if before is None:
            return None
        return before[0] - (len(self.rows) - self.ones), before[1] - self.ones


def stream_fields(stream: Stream) -> tuple[dict[str, float], dict[str, Array]]:
    """Return a stream's scalars and thetas, as a job result keeps them."""
    scalars = {
        "v_trace": stream.v_trace,
        "rounding": stream.rounding,
        "carried": stream.carried,
        "completions": float(stream.completions),
        "v_seconds": stream.v_seconds,
    }
    return scalars, {name: getattr(stream, name) for name in THETAS}


def read_staged(
    store: ModelStore,
    where: GenerationKeys,
    meta: Meta,
    result: JobResult,
    arrays: Mapping[bytes, bytes],
) -> Staged | None:
    """Return a staged generation, or None when it has expired."""
    config = meta.config
    what = f"model {config.model_id!r}, job {result.job_id}"
    with reachable(store.client):
        pipeline = store.client.pipeline(transaction=True)
        pipeline.hgetall(where.fixed)
        pipeline.lrange(where.V, 0, -1)
        pipeline.lrange(where.Q, 0, -1)
        fixed, V, Q = pipeline.execute()
    if not fixed:
        return None
    generation, sentinel_ids = read_fixed(
        fixed, meta.model_copy(update={"generation": result.generation})
    )
    shape = (config.d, config.m)
    thetas = {name: codec.unpack(arrays.get(name.encode()), shape, what) for name in THETAS}
    stream = Stream(
        **thetas,
        V=GrowingRows.of(codec.unpack_signed_rows(V, config.d, what)),
        Q=GrowingRows.of(codec.unpack(b"".join(Q), (len(Q), config.d), what)),
        v_trace=result.stream["v_trace"],
        rounding=result.stream["rounding"],
        carried=result.stream["carried"],
        completions=int(result.stream["completions"]),
        v_seconds=result.stream.get("v_seconds", 0.0),
    )
    sentinels = store.sentinels(where, meta, sentinel_ids)
    return Staged(where, generation, stream, sentinels)


def catch_up(store: ModelStore, staged: Staged, meta: Meta, row_ids: Sequence[str]) -> CaughtUp:
    """Delete rows from a staged generation, with its own records of them.

    Raises
    ------
    IllConditioned
        A guard refused; the generation cannot be used.
    """
    records = store.row_records(staged.keys, row_ids)
    held = tuple(row for row in row_ids if row in records)
    if not held:
        return CaughtUp(staged, None, (), 0)
    config = meta.config
    what = f"model {config.model_id!r}, staged rows"
    decoded = codec.unpack_rows([records[row] for row in held], config.d, config.m, what)
    done = delete(
        staged.generation,
        staged.stream,
        Rows(decoded.X, decoded.y, decoded.weight),
        decoded.W,
        method_named(config.method),
    )
    after = replace(staged, stream=done.stream, sentinels=staged.sentinels.without(frozenset(held)))
    return CaughtUp(after, done, held, int(np.sum(decoded.y)))
