"""Staging: a whole generation (or data set) written beside the live one, with a time to live.

What is staged is read back here too; `engine.store.offline.catch_up` brings it up to date.

Nothing here touches live state. The commit makes a staged generation live by naming it in the
head and lifting its time to live; one that is never named expires, and with it its copies of
rows that were deleted meanwhile. A key and its time to live are written in one transaction: a
process that is killed in between would leave rows behind for ever. What a registration has staged
to the end does not expire any more: see `note_registration`.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import redis

from lethe.engine.deletion.generation import Generation, Stream
from lethe.engine.error.certified import Ledger
from lethe.engine.error.sentinels import Sentinels
from lethe.engine.fit.objective import Array, Rows
from lethe.engine.preprocess.input.table import Table
from lethe.engine.preprocess.live import LivePipeline
from lethe.engine.store.generation import (
    Sampled,
    generation_info,
    packed_correction,
    queue_generation,
    read_fixed,
    read_pipeline,
    read_stream,
    with_factor,
    with_solution,
)
from lethe.engine.store.layout import codec
from lethe.engine.store.layout.exact_sums import packed_whole
from lethe.engine.store.layout.keys import (
    DatasetKeys,
    GenerationKeys,
    ModelKeys,
    by_shard,
    shard_of,
)
from lethe.engine.store.layout.meta import Meta
from lethe.engine.store.layout.pipeline_sums import packed_sums
from lethe.engine.store.layout.preprocessing import given_values
from lethe.engine.store.layout.reading import integer
from lethe.engine.store.offline.predecessor import read_predecessor
from lethe.engine.store.row_files import remove_all
from lethe.engine.store.server.connection import Fields, reachable, text
from lethe.engine.store.server.pipeline import CHUNK, chunks
from lethe.engine.store.server.row_keys import RowKeys
from lethe.engine.store.store import ModelStore

TIME_TO_LIVE = 6 * 3600
"""Seconds: longer than any rebuild, and within the erasure deadline of the promises."""

_CHUNK_BYTES = 8 << 20
_COMPLETE = "complete"
"""Field of a generation's fixed part: the mark of `mark_complete`."""

Progress = Callable[[int], None]


def stage_generation(
    client: redis.Redis,
    where: GenerationKeys,
    *,
    generation: Generation,
    stream: Stream,
    L: Array,
    ids: Sequence[str],
    rows: Rows,
    W: Array,
    sentinels: Sampled,
    pipeline: LivePipeline | None = None,
    table: Table | None = None,
    on_rows: Progress = lambda _: None,
    row_keys: RowKeys | None = None,
    seconds: int | None = TIME_TO_LIVE,
) -> None:
    """Write a generation: fixed part, factor, V, Q and row records.

    ``L`` is stacked and ``W`` wide where there are several blocks. With preprocessing, ``table``
    has the rows as they were given. With ``row_keys``, records are encrypted, those of copied
    sentinels, too. Cost O(n d + d^2) bytes each.
    """
    given = rows.X if table is None else given_values(table)
    if row_keys is not None and sentinels.records:
        sentinels = sentinels._replace(records=row_keys.seal(where, sentinels.records))
    with reachable(client):
        fixed: Fields = generation_info(generation, sentinels, pipeline)
        batch = client.pipeline(transaction=True)
        batch.hset(where.fixed, mapping=fixed)
        _expire(batch, where.fixed, seconds)
        batch.set(where.factor, codec.pack(L), ex=seconds)
        batch.execute()
        stage_stream(client, where, stream, seconds, pipeline)
        d, m = rows.X.shape[1], rows.y.shape[1]
        per_row = codec.row_size(d, m, generation.blocks, given=given.shape[1])
        per_chunk = max(1, min(CHUNK, _CHUNK_BYTES // per_row))
        for start in range(0, len(ids), per_chunk):
            end = min(start + per_chunk, len(ids))
            batch = client.pipeline(transaction=True)
            part = slice(start, end)
            records = codec.pack_rows(given[part], rows.y[part], rows.weight[part], W[part])
            packed = dict(zip(ids[part], records, strict=True))
            if row_keys is not None:
                packed = row_keys.seal(where, packed)
            _queue_records(batch, where, packed, seconds)
            batch.execute()
            on_rows(end)


def _queue_records(
    pipeline: Any, where: GenerationKeys, records: Mapping[str, bytes], seconds: int | None
) -> None:
    for shard, names in by_shard(records).items():
        fields: Fields = {row: records[row] for row in names}
        pipeline.hset(where.rows(shard), mapping=fields)
        _expire(pipeline, where.rows(shard), seconds)


def stage_records(client: redis.Redis, where: GenerationKeys, records: Mapping[str, bytes]) -> None:
    """Write records of rows that were inserted or corrected while the generation was made."""
    with reachable(client):
        pipeline = client.pipeline(transaction=True)
        _queue_records(pipeline, where, records, TIME_TO_LIVE)
        pipeline.execute()


def _expire(pipeline: Any, key: str, seconds: int | None) -> None:
    if seconds is not None:
        pipeline.expire(key, seconds)


def stage_stream(
    client: redis.Redis,
    where: GenerationKeys,
    stream: Stream,
    seconds: int | None = TIME_TO_LIVE,
    pipeline: LivePipeline | None = None,
) -> None:
    """Write V, Q and sums of a staged generation, replacing what was staged before."""
    batch = client.pipeline(transaction=True)
    batch.delete(where.V, where.Q, where.sums)
    for row in packed_correction(stream.V.array, stream.V.signs):
        batch.rpush(where.V, row)
    for row in stream.Q.array:
        batch.rpush(where.Q, codec.pack(row))
    sums: Fields | None = None
    if pipeline is not None:
        sums = packed_sums(pipeline.answer.sums)
    elif stream.solution is not None:
        sums = packed_whole(stream.solution.whole())
    if sums is not None:
        batch.hset(where.sums, mapping=sums)
    for key in (where.V, where.Q, where.sums):
        _expire(batch, key, seconds)
    batch.execute()


def unstage_rows(
    client: redis.Redis,
    where: GenerationKeys,
    row_ids: Sequence[str],
    row_keys: RowKeys | None = None,
) -> None:
    """Remove records of rows that were deleted while the generation was made."""
    if row_keys is not None:
        row_keys.drop(where, row_ids)
    with reachable(client):
        pipeline = client.pipeline(transaction=False)
        for row in row_ids:
            pipeline.hdel(where.rows(shard_of(row)), row)
        pipeline.execute()


def stage_dataset(client: redis.Redis, where: DatasetKeys, ids: Sequence[str]) -> None:
    """Write the row ids in order."""
    with reachable(client):
        for chunk in chunks(ids):
            batch = client.pipeline(transaction=True)
            batch.rpush(where.ids, *chunk)
            batch.expire(where.ids, TIME_TO_LIVE)
            batch.execute()


def stage_subjects(
    client: redis.Redis,
    where: DatasetKeys,
    subjects: Mapping[str, Sequence[str]],
    seconds: int | None = TIME_TO_LIVE,
) -> None:
    """Write the rows of each subject, replacing what was staged before."""
    with reachable(client):
        client.unlink(where.subjects)
        for chunk in chunks(list(subjects)):
            packed: Fields = {name: json.dumps(list(subjects[name])) for name in chunk}
            batch = client.pipeline(transaction=True)
            batch.hset(where.subjects, mapping=packed)
            _expire(batch, where.subjects, seconds)
            batch.execute()


def note_registration(
    client: redis.Redis, keys: ModelKeys, name: str, commit: int, rows_url: str | None = None
) -> None:
    """Note what a registration is about to stage, and the number of the commit that it will make.

    Until it is complete it expires, as what a refresh stages: nothing can name it. From then on it
    does not: an append whose answer was lost may land late, and must find it. Once the model has
    passed that number with another commit, nothing can make it live any more, and
    `sweep_registrations` removes it, unless its registration continues and notes a later number.
    """
    with reachable(client):
        client.hset(keys.stagings, name, f"{commit} {_now(client)} {rows_url or ''}".rstrip())


def mark_complete(
    client: redis.Redis,
    where: GenerationKeys,
    seconds: int | None = None,
    kept: Sequence[str] = (),
) -> str:
    """Return a new mark, which shows that staging is complete; a commit names it.

    The staged keys ``kept`` do not expire any more.

    A store that goes back to a time during the staging has some of the keys, but not this mark.
    """
    mark = secrets.token_hex(16)
    with reachable(client):
        pipeline = client.pipeline(transaction=True)
        pipeline.hset(where.fixed, _COMPLETE, mark)
        _expire(pipeline, where.fixed, seconds)
        for key in kept:
            pipeline.persist(key)
        pipeline.execute()
    return mark


def is_complete(client: redis.Redis, where: GenerationKeys, mark: str) -> bool:
    """Return whether everything is staged that a commit with this mark makes live."""
    with reachable(client):
        stored: Any = client.hget(where.fixed, _COMPLETE)
    return stored is not None and text(stored) == mark


def end_registration(client: redis.Redis, keys: ModelKeys, name: str) -> None:
    """Forget the note of a registration that is live now, or was removed."""
    with reachable(client):
        client.hdel(keys.stagings, name)


def sweep_registrations(
    client: redis.Redis,
    keys: ModelKeys,
    row_keys: RowKeys | None = None,
    *,
    seconds: int = TIME_TO_LIVE,
) -> int:
    """Remove staged registrations that can never become live; return how many there were.

    What was noted within the last ``seconds`` stays: a registration may be catching up with
    deletions that passed the number it noted.
    """
    with reachable(client):
        noted: Any = client.hgetall(keys.stagings)
    if not noted:
        return 0
    live, cutoff, swept = read_predecessor(client, keys), _now(client) - seconds, 0
    for stored, note in noted.items():
        name = text(stored)
        number, noted_at, *url = note.split(b" ", 2)
        if name in (*live.generations, *live.datasets):  # a rebuild keeps the data set
            end_registration(client, keys, name)
        elif (
            integer(number, "the commit of a registration") <= live.head.commit
            and integer(noted_at, "the time of a registration") <= cutoff
        ):
            if row_keys is not None:
                row_keys.retire_generation(keys.generation(name))
            everything = [*keys.generation(name).everything(), *keys.dataset(name).everything()]
            discard(client, everything)
            if url:
                remove_all(keys.model_id, name, text(url[0]), row_keys)
            end_registration(client, keys, name)
            swept += 1
    return swept


def _now(client: redis.Redis) -> int:
    """Return the server's time in seconds."""
    with reachable(client):
        server_time: Any = client.time()
    return int(server_time[0])


def to_persist(
    client: redis.Redis, required: Sequence[str], others: Sequence[str]
) -> list[str] | None:
    """Return which staged keys a commit makes live, or None when a required one is gone.

    Of the others (V, Q, a shard, subjects) those that exist are returned: an empty one has no key.
    The required keys are written first and so expire first: while the script finds them all, no
    other key has expired since this check.
    """
    existing = staged(client, [*required, *others])
    return existing if set(required).issubset(existing) else None


def staged(client: redis.Redis, keys: Sequence[str]) -> list[str]:
    """Return those of the keys that exist."""
    with reachable(client):
        pipeline = client.pipeline(transaction=False)
        for key in keys:
            pipeline.exists(key)
        return [key for key, exists in zip(keys, pipeline.execute(), strict=True) if exists]


def discard(client: redis.Redis, keys: Sequence[str]) -> None:
    """Remove staged keys that will not become live."""
    with reachable(client):
        for key in keys:
            client.unlink(key)


# -- reading back ---------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class StagedGeneration:
    """A staged generation as it lies in the store."""

    keys: GenerationKeys
    generation: Generation
    stream: Stream
    sentinels: Sentinels
    ledger: Ledger | None = None
    pipeline: LivePipeline | None = None


class StoredArrays(NamedTuple):
    """The ``fixed`` hash, V, Q and sums of a generation, as they are stored."""

    fixed: Mapping[bytes, bytes]
    V: list[bytes]
    Q: list[bytes]
    sums: Mapping[bytes, bytes]


def read_arrays(client: redis.Redis, where: GenerationKeys) -> StoredArrays | None:
    """Return what is stored of a staged generation; None if it has expired."""
    with reachable(client):
        pipeline = client.pipeline(transaction=True)
        queue_generation(pipeline, where)
        stored = StoredArrays(*pipeline.execute())
    return stored if stored.fixed else None


def read_live(
    store: ModelStore, where: GenerationKeys, meta: Meta, thetas: Mapping[str, bytes]
) -> StagedGeneration | None:
    """Return a staged generation with the thetas of the commit that makes it live.

    None if it has expired. Scalars are the commit's; V and Q are as they were staged. Sentinels and
    a ledger are left out: nothing is estimated from them.
    """
    stored = read_arrays(store.client, where)
    if stored is None:
        return None
    generation, _ = read_fixed(stored.fixed, meta)
    generation = with_factor(store.client, where, generation)
    head = {name.encode(): data for name, data in thetas.items()}
    stream = read_stream(head, meta, stored.V, stored.Q)
    encrypted = store.row_keys is not None
    stream = with_solution(
        stream, stored.sums, meta, generation, encrypted=encrypted, checked=False
    )
    pipeline = read_pipeline(stored.fixed, stored.sums, meta, generation, stream)
    nobody = store.sentinels(where, meta, Sampled())
    return StagedGeneration(where, generation, stream, nobody, None, pipeline)
