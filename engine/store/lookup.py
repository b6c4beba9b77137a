"""Looking up what the requests of one poll refer to: heads, receipts, ledger, row records."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import redis

from lethe.engine.store import keys
from lethe.engine.store.connection import reachable, text
from lethe.engine.store.keys import GenerationKeys
from lethe.engine.store.reading import integer
from lethe.engine.store.scripts import run_pipeline
from lethe.engine.store.state import Head, ModelState

CHUNK = 500  # elements in one command: with d = 4000, 32 MB of row records


@dataclass(frozen=True, slots=True)
class LookupRequest:
    """What the requests for one model name."""

    state: ModelState
    request_ids: Sequence[str]
    row_ids: Sequence[str]

    @property
    def too_many(self) -> bool:
        """Whether it names more rows than a generation takes (a subject may have any number)."""
        config = self.state.meta.config
        return len(self.row_ids) > config.limits.limits().hard_rows(config.d)


@dataclass(frozen=True, slots=True)
class Lookup:
    """What a batch of requests needs to know of the store.

    Attributes
    ----------
    head, arrays
        Of the stored model when it was read: if they differ from the state in memory, reload.
    receipts
        Packed receipts by request id, absent if there is none.
    ledger
        Version that deleted a row, by row id.
    records
        Encoded row records, by row id.
    retired
        Row ids that were members once.
    unread
        Live rows whose records were not read, because they are more than any update takes.
    shredded
        Rows that are not in the ledger and whose encrypted records no longer have a key.
    """

    head: Head
    arrays: str
    receipts: Mapping[str, bytes]
    ledger: Mapping[str, int]
    records: Mapping[str, bytes]
    retired: frozenset[str]
    unread: frozenset[str] = frozenset()
    shredded: frozenset[str] = frozenset()

    def is_of(self, state: ModelState) -> bool:
        """Return whether it was read of a state as it is in memory."""
        return (self.head, self.arrays) == (state.head, state.arrays)


def look_up(client: redis.Redis, requests: Sequence[LookupRequest]) -> list[Lookup]:
    """Read what all requests name, in one round trip whatever the number of models. Cost O(k d).

    If a request names more rows than a generation takes, only the ledger and the retired rows are
    read at first, and the records afterwards if few enough of the rows are live.
    """

    def fill(pipeline: Any) -> None:
        for request in requests:
            _queue(pipeline, request)

    answers = iter(run_pipeline(client, (), fill))
    lookups = [_read_answers(answers, request) for request in requests]
    return [
        _look_up_many(client, request, lookup) if request.too_many else lookup
        for request, lookup in zip(requests, lookups, strict=True)
    ]


def _look_up_many(client: redis.Redis, request: LookupRequest, lookup: Lookup) -> Lookup:
    state, live = request.state, []
    for start in range(0, len(request.row_ids), CHUNK):
        chunk = request.row_ids[start : start + CHUNK]
        with reachable(client):
            pipeline = client.pipeline(transaction=False)
            for row in chunk:
                pipeline.hexists(state.generation_keys.rows(keys.shard_of(row)), row)
            answers = pipeline.execute()
        live += [row for row, exists in zip(chunk, answers, strict=True) if exists]
    config = state.meta.config
    if len(live) > config.limits.limits().hard_rows(config.d):
        return replace(lookup, unread=frozenset(live))
    return replace(lookup, records=row_records(client, state.generation_keys, live))


def row_records(
    client: redis.Redis, live: GenerationKeys, row_ids: Sequence[str]
) -> dict[str, bytes]:
    """Return the records of those rows that have one."""
    records: dict[str, bytes] = {}
    for start in range(0, len(row_ids), CHUNK):
        shards = _by_shard(row_ids[start : start + CHUNK])
        with reachable(client):
            pipeline = client.pipeline(transaction=False)
            for shard, rows in shards.items():
                pipeline.hmget(live.rows(shard), rows)
            answers = pipeline.execute()
        for rows, values in zip(shards.values(), answers, strict=True):
            records |= {
                row: record for row, record in zip(rows, values, strict=True) if record is not None
            }
    return records


def _queue(pipeline: Any, request: LookupRequest) -> None:
    model = request.state.keys
    pipeline.hmget(model.head, ["commit", "digest", "arrays"])
    for chunk in _chunks(request.request_ids):
        pipeline.hmget(model.requests, chunk)
    for chunk in _chunks(request.row_ids):
        pipeline.hmget(model.ledger, chunk)
        pipeline.smismember(model.retired, chunk)
    if not request.too_many:
        for shard, rows in _by_shard(request.row_ids).items():
            for chunk in _chunks(rows):
                pipeline.hmget(request.state.generation_keys.rows(shard), chunk)


def _read_answers(answers: Iterator[Any], request: LookupRequest) -> Lookup:
    """Return what `_queue` queried."""
    what = f"model {request.state.model_id!r}"
    commit, digest, arrays = next(answers)
    receipts: dict[str, bytes] = {}
    for chunk in _chunks(request.request_ids):
        receipts |= _present(chunk, next(answers))
    ledger: dict[str, int] = {}
    retired: set[str] = set()
    for chunk in _chunks(request.row_ids):
        deleted = _present(chunk, next(answers))
        ledger |= {row: integer(version, f"{what}, the ledger") for row, version in deleted.items()}
        retired |= {row for row, member in zip(chunk, next(answers), strict=True) if member}
    records: dict[str, bytes] = {}
    if not request.too_many:
        for rows in _by_shard(request.row_ids).values():
            for chunk in _chunks(rows):
                records |= _present(chunk, next(answers))
    head = Head(
        -1 if commit is None else integer(commit, f"{what}, its newest commit"),
        "" if digest is None else text(digest),
    )
    arrays_id = "" if arrays is None else text(arrays)
    return Lookup(head, arrays_id, receipts, ledger, records, frozenset(retired))


def _present(fields: Sequence[str], values: Sequence[Any]) -> dict[str, Any]:
    return {f: value for f, value in zip(fields, values, strict=True) if value is not None}


def _chunks(names: Sequence[str]) -> Iterator[list[str]]:
    for start in range(0, len(names), CHUNK):
        yield list(names[start : start + CHUNK])


def _by_shard(row_ids: Sequence[str]) -> dict[int, list[str]]:
    shards: dict[int, list[str]] = {}
    for row in row_ids:
        shards.setdefault(keys.shard_of(row), []).append(row)
    return shards
