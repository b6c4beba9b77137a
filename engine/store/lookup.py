"""Looking up what a batch of requests names: receipts, ledger, row records."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import redis

from engine.store import keys
from engine.store.connection import text
from engine.store.keys import GenerationKeys
from engine.store.reading import integer
from engine.store.state import ModelState, State

CHUNK = 500  # elements a command takes at once: with d = 4000, 32 MB of row records


@dataclass(frozen=True, slots=True)
class Lookup:
    """What a batch of requests needs to know of the store.

    Attributes
    ----------
    commit_seq
        Of the head when it was read: another one than the cached state's means reload.
    receipts
        Stored receipts by request id, absent where there is none.
    ledger
        Version that deleted a row, by row id.
    records
        Encoded row records, by row id.
    retired
        Row ids that were members once.
    unread
        Live rows whose records were not read: they are more than any update takes.
    shredded
        Rows that the ledger does not know and whose encrypted records have no key any more.
    """

    commit_seq: int
    receipts: Mapping[str, str]
    ledger: Mapping[str, int]
    records: Mapping[str, bytes]
    retired: frozenset[str]
    unread: frozenset[str] = frozenset()
    shredded: frozenset[str] = frozenset()


def look_up(
    client: redis.Redis, state: State, request_ids: Sequence[str], row_ids: Sequence[str]
) -> Lookup:
    """Read receipts, ledger and row records in one round trip. Cost O(k d).

    Of more rows than a generation takes (a subject may have any number) only what is known of
    them is read at first, and their records if few enough of them are live.
    """
    if isinstance(state, ModelState):
        config = state.meta.config
        if len(row_ids) > config.limits.limits().hard_rows(config.d):
            return _look_up_many(client, state, request_ids, row_ids)
    pipeline = client.pipeline(transaction=False)
    _ask(pipeline, state, request_ids, row_ids)
    shards = _by_shard(row_ids) if isinstance(state, ModelState) else {}
    if isinstance(state, ModelState):
        for shard, rows in shards.items():
            _hmget(pipeline, state.generation_keys.rows(shard), rows)
    answers = iter(pipeline.execute())
    known = _known(answers, state, request_ids, row_ids)
    records: dict[str, bytes] = {}
    for rows in shards.values():
        records |= _gather(answers, rows)
    return Lookup(*known[:3], records, known[3])


def _look_up_many(
    client: redis.Redis, state: ModelState, request_ids: Sequence[str], row_ids: Sequence[str]
) -> Lookup:
    pipeline = client.pipeline(transaction=False)
    _ask(pipeline, state, request_ids, row_ids)
    known = _known(iter(pipeline.execute()), state, request_ids, row_ids)
    live: list[str] = []
    for start in range(0, len(row_ids), CHUNK):
        chunk = row_ids[start : start + CHUNK]
        pipeline = client.pipeline(transaction=False)
        for row in chunk:
            pipeline.hexists(state.generation_keys.rows(keys.shard_of(row)), row)
        live += [row for row, there in zip(chunk, pipeline.execute(), strict=True) if there]
    config = state.meta.config
    if len(live) > config.limits.limits().hard_rows(config.d):
        return Lookup(*known[:3], {}, known[3], frozenset(live))
    return Lookup(*known[:3], row_records(client, state.generation_keys, live), known[3])


def row_records(
    client: redis.Redis, live: GenerationKeys, row_ids: Sequence[str]
) -> dict[str, bytes]:
    """Return the records of those rows that have one."""
    records: dict[str, bytes] = {}
    for start in range(0, len(row_ids), CHUNK):
        shards = _by_shard(row_ids[start : start + CHUNK])
        pipeline = client.pipeline(transaction=False)
        for shard, rows in shards.items():
            _hmget(pipeline, live.rows(shard), rows)
        answers = iter(pipeline.execute())
        for rows in shards.values():
            records |= _gather(answers, rows)
    return records


def _ask(pipeline: Any, state: State, request_ids: Sequence[str], row_ids: Sequence[str]) -> None:
    """Ask for the head, receipts and, of a registered model, what became of rows."""
    pipeline.hget(state.keys.head, "commit_seq")
    _hmget(pipeline, state.keys.requests, request_ids)
    if isinstance(state, ModelState):
        _hmget(pipeline, state.keys.ledger, row_ids)
        for start in range(0, len(row_ids), CHUNK):
            pipeline.smismember(state.keys.retired, list(row_ids[start : start + CHUNK]))


def _known(
    answers: Any, state: State, request_ids: Sequence[str], row_ids: Sequence[str]
) -> tuple[int, dict[str, str], dict[str, int], frozenset[str]]:
    """Return what `_ask` asked for."""
    commit_seq = integer(next(answers) or b"0", f"{state.keys.tag}, commit_seq")
    receipts = {name: text(kept) for name, kept in _gather(answers, request_ids).items()}
    if not isinstance(state, ModelState):
        return commit_seq, receipts, {}, frozenset()
    what = f"{state.keys.tag}, the ledger"
    ledger = {row: integer(version, what) for row, version in _gather(answers, row_ids).items()}
    retired: set[str] = set()
    for start in range(0, len(row_ids), CHUNK):
        chunk = row_ids[start : start + CHUNK]
        retired |= {row for row, member in zip(chunk, next(answers), strict=True) if member}
    return commit_seq, receipts, ledger, frozenset(retired)


def _hmget(pipeline: Any, key: str, fields: Sequence[str]) -> None:
    for start in range(0, len(fields), CHUNK):
        pipeline.hmget(key, list(fields[start : start + CHUNK]))


def _gather(answers: Any, fields: Sequence[str]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for start in range(0, len(fields), CHUNK):
        chunk = fields[start : start + CHUNK]
        found |= {f: v for f, v in zip(chunk, next(answers), strict=True) if v is not None}
    return found


def _by_shard(row_ids: Sequence[str]) -> dict[int, list[str]]:
    shards: dict[int, list[str]] = {}
    for row in row_ids:
        shards.setdefault(keys.shard_of(row), []).append(row)
    return shards
