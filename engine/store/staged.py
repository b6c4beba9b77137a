"""Reading a staged generation back, and catching up with deletions that it does not include."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from lethe.engine.deletion.growing import GrowingRows
from lethe.engine.deletion.methods import method_named
from lethe.engine.deletion.stream import Deletion, Generation, Stream, delete
from lethe.engine.error.certified import Ledger, after_deletion
from lethe.engine.error.estimate import Sentinels
from lethe.engine.errors import CorruptState
from lethe.engine.fit.classes import class_counts
from lethe.engine.fit.objective import Array, Kind, Rows
from lethe.engine.store import codec
from lethe.engine.store.connection import reachable
from lethe.engine.store.generation import THETAS, read_fixed, read_stream
from lethe.engine.store.head import Meta
from lethe.engine.store.jobs import JobResult
from lethe.engine.store.keys import GenerationKeys
from lethe.engine.store.store import ModelStore

_SCALARS = frozenset(("v_trace", "residual", "carried", "completions", "least_pivot"))


@dataclass(frozen=True, slots=True)
class Staged:
    """A staged generation as it lies in the store."""

    keys: GenerationKeys
    generation: Generation
    stream: Stream
    sentinels: Sentinels
    ledger: Ledger | None = None


@dataclass(frozen=True, slots=True)
class CaughtUp:
    """A staged generation after it has caught up with later deletions.

    ``rows`` are the deleted rows that it had, ``gone`` how many of them each class had.
    """

    staged: Staged
    deletion: Deletion | None
    rows: tuple[str, ...]
    gone: tuple[int, ...]

    def class_counts(self, before: tuple[int, ...] | None) -> tuple[int, ...] | None:
        """Return the counts of rows by class without the deleted rows."""
        if before is None or not self.rows:
            return before
        return tuple(count - gone for count, gone in zip(before, self.gone, strict=True))


def stream_fields(stream: Stream) -> tuple[dict[str, float], dict[str, Array]]:
    """Return a stream's scalars and thetas, as a job result keeps them."""
    scalars = {
        "v_trace": stream.v_trace,
        "residual": stream.residual,
        "carried": stream.carried,
        "completions": float(stream.completions),
        "v_seconds": stream.v_seconds,
        "least_pivot": stream.least_pivot,
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
    scalars = result.stream
    if not scalars.keys() >= _SCALARS:
        raise CorruptState(f"{what}: its result has no stream; run `lethe check`")
    with reachable(store.client):
        pipeline = store.client.pipeline(transaction=True)
        pipeline.hgetall(where.fixed)
        pipeline.lrange(where.V, 0, -1)
        pipeline.lrange(where.Q, 0, -1)
        fixed, V, Q = pipeline.execute()
    if not fixed:
        return None
    generation, sampled = read_fixed(
        fixed, meta.model_copy(update={"generation": result.generation})
    )
    shape = (config.d, config.m)
    thetas = {name: codec.unpack(arrays.get(name.encode()), shape, what) for name in THETAS}
    stream = Stream(
        **thetas,
        V=GrowingRows.of(codec.unpack_signed_rows(V, config.blocks * config.d, what)),
        Q=GrowingRows.of(codec.unpack_matrix(Q, config.d, what)),
        v_trace=scalars["v_trace"],
        residual=scalars["residual"],
        carried=scalars["carried"],
        completions=int(scalars["completions"]),
        v_seconds=scalars.get("v_seconds", 0.0),
        least_pivot=scalars["least_pivot"],
    )
    sentinels = store.sentinels(where, meta, sampled)
    return Staged(where, generation, stream, sentinels, result.ledger)


def read_live(
    store: ModelStore, where: GenerationKeys, meta: Meta, thetas: Mapping[str, bytes]
) -> tuple[Generation, Stream] | None:
    """Return a staged generation with the thetas of the commit that makes it live.

    None if it has expired. Scalars are the commit's; V and Q are as they were staged.
    """
    with reachable(store.client):
        pipeline = store.client.pipeline(transaction=True)
        pipeline.hgetall(where.fixed)
        pipeline.lrange(where.V, 0, -1)
        pipeline.lrange(where.Q, 0, -1)
        fixed, V, Q = pipeline.execute()
    if not fixed:
        return None
    generation, _ = read_fixed(fixed, meta)
    head = {name.encode(): data for name, data in thetas.items()}
    return generation, read_stream(head, meta, V, Q)


def catch_up(store: ModelStore, staged: Staged, meta: Meta, row_ids: Sequence[str]) -> CaughtUp:
    """Delete rows from a staged generation, with its own records of them.

    Raises
    ------
    IllConditioned
        A guard refused; the generation cannot be used.
    """
    records = store.row_records(staged.keys, row_ids)
    staged_rows = tuple(row for row in row_ids if row in records)
    if not staged_rows:
        return CaughtUp(staged, None, (), ())
    config = meta.config
    what = f"model {config.model_id!r}, staged rows"
    packed = [records[row] for row in staged_rows]
    decoded = codec.unpack_rows(packed, config.d, config.m, what, config.blocks)
    rows = Rows(decoded.X, decoded.y, decoded.weight)
    method = method_named(config.method)
    deletion = delete(staged.generation, staged.stream, rows, decoded.W, method)
    ledger = staged.ledger
    if ledger is not None:
        ledger = after_deletion(ledger, staged.generation, staged.stream, deletion.stream, rows)
    sentinels = staged.sentinels.without(frozenset(staged_rows))
    after = replace(staged, stream=deletion.stream, sentinels=sentinels, ledger=ledger)
    gone = class_counts(decoded.y) if config.kind is Kind.LOGISTIC else ()
    return CaughtUp(after, deletion, staged_rows, gone)
