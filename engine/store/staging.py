"""Staging: a whole generation (or data set) written beside the live one, with a time to live.

Nothing here touches live state. The commit makes a staged generation live by naming it in the
head and lifting its time to live; one that is never named expires, and with it whatever it holds
of rows that were deleted meanwhile. A key and its time to live are written in one transaction: a
process that is killed in between would leave rows behind for ever.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence

import redis

from engine.objective import Array, Rows
from engine.store import codec
from engine.store.connection import Fields, reachable
from engine.store.generation import Sampled, generation_info
from engine.store.keys import DatasetKeys, GenerationKeys, shard_of
from engine.store.row_keys import RowKeys
from engine.store.store import CHUNK
from engine.stream import Generation, Stream

TIME_TO_LIVE = 6 * 3600
"""Seconds: longer than any rebuild, and within the erasure deadline of the promises."""

_CHUNK_BYTES = 8 << 20

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
    on_rows: Progress = lambda _: None,
    row_keys: RowKeys | None = None,
) -> None:
    """Write a generation: fixed part, factor, V, Q and row records.

    ``L`` is stacked and ``W`` wide where there are several blocks. Cost O(n d + d^2) bytes each.
    """
    with reachable(client):
        fixed: Fields = generation_info(generation, sentinels)
        pipeline = client.pipeline(transaction=True)
        pipeline.hset(where.fixed, mapping=fixed)
        pipeline.expire(where.fixed, TIME_TO_LIVE)
        pipeline.set(where.factor, codec.pack(L), ex=TIME_TO_LIVE)
        pipeline.execute()
        stage_stream(client, where, stream)
        per_row = codec.row_size(rows.X.shape[1], rows.y.shape[1], generation.blocks)
        per_chunk = max(1, min(CHUNK, _CHUNK_BYTES // per_row))
        for start in range(0, len(ids), per_chunk):
            end = min(start + per_chunk, len(ids))
            pipeline = client.pipeline(transaction=True)
            packed = {
                ids[i]: codec.pack_row(rows.X[i], rows.y[i], float(rows.weight[i]), W[i])
                for i in range(start, end)
            }
            if row_keys is not None:
                packed = row_keys.seal(where, packed)
            shards: dict[int, Fields] = {}
            for row, record in packed.items():
                shards.setdefault(shard_of(row), {})[row] = record
            for shard, records in shards.items():
                pipeline.hset(where.rows(shard), mapping=records)
                pipeline.expire(where.rows(shard), TIME_TO_LIVE)
            pipeline.execute()
            on_rows(end)


def stage_stream(client: redis.Redis, where: GenerationKeys, stream: Stream) -> None:
    """Write V and Q of a staged generation, replacing what was staged before."""
    pipeline = client.pipeline(transaction=True)
    pipeline.delete(where.V, where.Q)
    for row in stream.V.array:
        pipeline.rpush(where.V, codec.pack_signed_row(row))
    for row in stream.Q.array:
        pipeline.rpush(where.Q, codec.pack(row))
    pipeline.expire(where.V, TIME_TO_LIVE)
    pipeline.expire(where.Q, TIME_TO_LIVE)
    pipeline.execute()


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
        for start in range(0, len(ids), CHUNK):
            pipeline = client.pipeline(transaction=True)
            pipeline.rpush(where.ids, *ids[start : start + CHUNK])
            pipeline.expire(where.ids, TIME_TO_LIVE)
            pipeline.execute()


def stage_subjects(
    client: redis.Redis, where: DatasetKeys, subjects: Mapping[str, Sequence[str]]
) -> None:
    """Write the rows of each subject, replacing what was staged before."""
    names = list(subjects)
    with reachable(client):
        client.unlink(where.subjects)
        for start in range(0, len(names), CHUNK):
            chunk = names[start : start + CHUNK]
            pipeline = client.pipeline(transaction=True)
            pipeline.hset(
                where.subjects, mapping={name: json.dumps(list(subjects[name])) for name in chunk}
            )
            pipeline.expire(where.subjects, TIME_TO_LIVE)
            pipeline.execute()


def to_persist(
    client: redis.Redis, required: Sequence[str], others: Sequence[str]
) -> list[str] | None:
    """Return which staged keys a commit makes live, or None when a required one is gone.

    Of the others (V, Q, a shard, subjects) those that exist: what is empty has no key. The
    required ones are written first and so expire first: while the script finds them all, no
    other key has expired since this looked.
    """
    found = staged(client, [*required, *others])
    return found if set(required).issubset(found) else None


def staged(client: redis.Redis, keys: Sequence[str]) -> list[str]:
    """Return those of the keys that exist."""
    with reachable(client):
        pipeline = client.pipeline(transaction=False)
        for key in keys:
            pipeline.exists(key)
        return [key for key, there in zip(keys, pipeline.execute(), strict=True) if there]


def discard(client: redis.Redis, keys: Sequence[str]) -> None:
    """Remove staged keys that will not become live."""
    with reachable(client):
        for key in keys:
            client.unlink(key)
