"""Reading of many models in one round trip: what requests refer to, heads, versions, summaries.

Nothing here loads a model's state.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from typing import Any

import redis

from lethe.engine.errors import CorruptState, LetheError
from lethe.engine.fit.objective import Array
from lethe.engine.store.counts import COUNT, FIELDS, lost_of, queue_count
from lethe.engine.store.cursors import Cursors, PartitionCursors
from lethe.engine.store.generation import read_published, theta_of
from lethe.engine.store.layout import codec
from lethe.engine.store.layout.columns import FittedColumn
from lethe.engine.store.layout.config import ModelConfig, parse_config
from lethe.engine.store.layout.keys import ModelKeys, PartitionKeys, by_shard, shard_of
from lethe.engine.store.layout.meta import Meta, parse_meta
from lethe.engine.store.layout.reading import integer, parse_text
from lethe.engine.store.layout.state import Head, ModelState, check_stored_format
from lethe.engine.store.membership import unknown
from lethe.engine.store.server.connection import reachable, text
from lethe.engine.store.server.pipeline import chunks, present, read_shards, run_pipeline

_SUMMARY_FIELDS = ("format", "status", "version", "config", "meta")
_SHOWN_FIELDS = (
    "format", "newest", "status", "config", "theta_exact", "published", "parameters", "columns"
)  # fmt: skip


@dataclass(frozen=True)
class LookupRequest:
    """What the requests for one model name."""

    state: ModelState
    request_ids: Sequence[str]
    row_ids: Sequence[str]
    marks: Sequence[str] = ()

    @cached_property
    def too_many(self) -> bool:
        """Whether it names more rows than a generation takes (a subject may have any number)."""
        return len(self.row_ids) > self.state.meta.config.hard_rows


@dataclass(frozen=True, slots=True)
class Lookup:
    """What a batch of requests needs to know of the store.

    Attributes
    ----------
    head, arrays_id
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
    tombstones
        By mark that was asked for, if it is stored, when it is forgotten (s).
    clock
        The time by the store's clock (s), which is one for all workers.
    whole
        Whether the keys that the head counts have as many entries as it says
        (`engine.store.counts`).
    missing
        How many live rows of which the store has the records have none.
    in_files
        Rows whose records are those of files.
    shredded
        Rows that are not in the ledger and whose encrypted records no longer have a key.
    """

    head: Head
    arrays_id: str
    receipts: Mapping[str, bytes]
    ledger: Mapping[str, int]
    records: Mapping[str, bytes]
    retired: frozenset[str]
    unread: frozenset[str] = frozenset()
    shredded: frozenset[str] = frozenset()
    tombstones: Mapping[str, float] = field(default_factory=dict)
    clock: float = field(default_factory=time.time)
    whole: bool = True
    missing: int = 0
    in_files: frozenset[str] = frozenset()

    def is_of(self, state: ModelState) -> bool:
        """Return whether it was read from the state that is in memory, and no key was lost."""
        return self.whole and (self.head, self.arrays_id) == (state.head, state.arrays_id)


def look_up(client: redis.Redis, requests: Sequence[LookupRequest]) -> list[Lookup]:
    """Read what all requests name, in one round trip whatever the number of models. Cost O(k d).

    If a request names more rows than a generation takes, only the ledger and the retired rows are
    read at first, and the records afterwards if few enough of the rows are live.
    """

    def fill(pipeline: Any) -> None:
        pipeline.time()
        for request in requests:
            _queue(pipeline, request)

    if not requests:
        return []
    answers = iter(run_pipeline(client, (COUNT,), fill))
    seconds, microseconds = next(answers)
    clock = seconds + microseconds / 1e6
    lookups = [_read_answers(answers, one, clock) for one in requests]
    return [
        _look_up_many(client, request, lookup) if request.too_many else lookup
        for request, lookup in zip(requests, lookups, strict=True)
    ]


def _look_up_many(client: redis.Redis, request: LookupRequest, lookup: Lookup) -> Lookup:
    state, live = request.state, []
    for chunk in chunks(request.row_ids):
        with reachable(client):
            pipeline = client.pipeline(transaction=False)
            for row in chunk:
                pipeline.hexists(state.generation_keys.rows(shard_of(row)), row)
            answers = pipeline.execute()
        live += [row for row, exists in zip(chunk, answers, strict=True) if exists]
    if len(live) > state.meta.config.hard_rows:
        return replace(lookup, unread=frozenset(live))
    return replace(lookup, records=read_shards(client, state.generation_keys.rows, live))


def _queue(pipeline: Any, request: LookupRequest) -> None:
    model = request.state.keys
    pipeline.hmget(model.head, ["commit", "digest", "arrays", *FIELDS])
    queue_count(pipeline, request.state)
    for chunk in chunks(request.request_ids):
        pipeline.hmget(model.requests, chunk)
    for chunk in chunks(request.row_ids):
        pipeline.hmget(model.ledger, chunk)
        pipeline.smismember(model.retired, chunk)
    for chunk in chunks(request.marks):
        pipeline.zmscore(model.tombstones, chunk)
    if not request.too_many:
        for shard, rows in by_shard(request.row_ids).items():
            for chunk in chunks(rows):
                pipeline.hmget(request.state.generation_keys.rows(shard), chunk)


def _read_answers(answers: Iterator[Any], request: LookupRequest, clock: float) -> Lookup:
    """Return what `_queue` queried."""
    what = f"model {request.state.model_id!r}"
    commit, digest, arrays, *counted = next(answers)
    *lengths, held = next(answers)
    lost = lost_of(counted, request.state.meta.dataset_key, lengths)
    receipts: dict[str, bytes] = {}
    for chunk in chunks(request.request_ids):
        receipts |= present(chunk, next(answers))
    ledger: dict[str, int] = {}
    retired: set[str] = set()
    for chunk in chunks(request.row_ids):
        deleted = present(chunk, next(answers))
        ledger |= {row: integer(version, f"{what}, the ledger") for row, version in deleted.items()}
        retired |= {row for row, member in zip(chunk, next(answers), strict=True) if member}
    tombstones: dict[str, float] = {}
    for chunk in chunks(request.marks):
        scores = zip(chunk, next(answers), strict=True)
        tombstones |= {mark: float(score) for mark, score in scores if score is not None}
    records: dict[str, bytes] = {}
    if not request.too_many:
        for rows in by_shard(request.row_ids).values():
            for chunk in chunks(rows):
                records |= present(chunk, next(answers))
    head = Head(
        -1 if commit is None else integer(commit, f"{what}, its newest commit"),
        "" if digest is None else text(digest),
    )
    arrays_id = "" if arrays is None else text(arrays)
    return Lookup(
        head,
        arrays_id,
        receipts,
        ledger,
        records,
        frozenset(retired),
        tombstones=tombstones,
        clock=clock,
        whole=not lost,
        missing=max(request.state.meta.rows_in_store - held, 0),
    )


# -- heads ----------------------------------------------------------------------------------------


def read_heads(
    client: redis.Redis, model_ids: Sequence[str], partition: PartitionKeys
) -> tuple[dict[str, Head | CorruptState], PartitionCursors]:
    """Return the newest commit of each model that has one, and the partition's cursors.

    A model with a damaged head has the error instead. One round trip.
    """

    def fill(pipeline: Any) -> None:
        for name in model_ids:
            pipeline.hmget(ModelKeys(name).head, ["commit", "digest", "offset"])
        pipeline.hgetall(partition.cursors)

    *stored, cursors = run_pipeline(client, (), fill, each=True)
    if isinstance(cursors, CorruptState):
        raise cursors
    heads = {name: _head(name, fields) for name, fields in zip(model_ids, stored, strict=True)}
    registered = {name: head for name, head in heads.items() if head is not None}
    return registered, Cursors.parsed(partition, cursors)


def _head(model_id: str, stored: Any) -> Head | CorruptState | None:
    if isinstance(stored, CorruptState):
        return stored
    commit, digest, offset = stored
    what = f"model {model_id!r}, its newest commit"
    try:
        if commit is None:
            return None
        return Head(
            integer(commit, what),
            parse_text(digest or b"", f"{what}, its digest"),
            integer(offset or b"-1", f"{what}, its offset"),
        )
    except CorruptState as error:
        return error


# -- newest versions ------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Shown:
    """The newest version of a model that readers were shown.

    Attributes
    ----------
    version
        The version event, as it was published.
    config
        The configuration that it was made with.
    theta
        d x m, any intercept last.
    columns
        The fitted columns of a model with preprocessing.
    """

    version: bytes
    config: ModelConfig
    theta: Array
    columns: tuple[FittedColumn, ...] = ()


def read_shown(client: redis.Redis, models: Sequence[str]) -> Iterator[Shown]:
    """Yield the newest version of each registered model. Cost O(m d) each.

    A model whose head is damaged is left out: it halts when it is needed. A few hundred models
    take one round trip.
    """
    for chunk in chunks(models):
        stored = run_pipeline(client, (), partial(_queue_heads, models=chunk), each=True)
        for model, head in zip(chunk, stored, strict=True):
            with suppress(CorruptState):
                shown = _shown(model, head)
                if shown is not None:
                    yield shown


def _queue_heads(pipeline: Any, models: Sequence[str]) -> None:
    for model in models:
        pipeline.hmget(ModelKeys(model).head, _SHOWN_FIELDS)


def _shown(model_id: str, stored: Any) -> Shown | None:
    if isinstance(stored, CorruptState):
        raise stored
    stored_format, version, status, stored_config, exact, published, parameters, columns = stored
    if not version or status == b"UNREGISTERED":
        return None
    check_stored_format(stored_format, model_id)
    config = parse_config(stored_config, model_id)
    pipeline = read_published(parameters, columns, config)
    if pipeline is not None:
        return Shown(version, config, pipeline.theta, pipeline.columns)
    what = f"model {model_id!r}, its parameters"
    theta = codec.unpack(exact, (config.d, config.m), f"{what}, theta_exact")
    return Shown(version, config, theta_of(published, theta, what))


# -- summaries ------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Summary:
    """Where a registered model stands: its head without arrays, and how many requests wait in it.

    Attributes
    ----------
    deferred
        Number of requests that wait for a rebuild.
    """

    model_id: str
    version: int
    meta: Meta
    deferred: int


def read_summary(client: redis.Redis, model_id: str) -> Summary:
    """Return where a registered model stands. Cost O(d): of its state, nothing is loaded.

    Raises
    ------
    UnknownModel
        It is not registered.
    CorruptState
        Its head does not parse.
    """
    stored = run_pipeline(client, (), partial(_queue_summaries, models=[model_id]), each=True)
    summary = _summary(model_id, *stored)
    if summary is None:
        raise unknown(model_id)
    return summary


def read_summaries(client: redis.Redis, models: Sequence[str]) -> Iterator[Summary]:
    """Yield where each registered model stands. Cost O(d) each: the names of its features.

    A model that is damaged, or of another format, is left out: it halts when it is needed. A few
    hundred models take one round trip.
    """
    for chunk in chunks(models):
        stored = run_pipeline(client, (), partial(_queue_summaries, models=chunk), each=True)
        answers = iter(stored)
        for model, head, deferred in zip(chunk, answers, answers, strict=True):
            with suppress(LetheError):
                summary = _summary(model, head, deferred)
                if summary is not None:
                    yield summary


def _queue_summaries(pipeline: Any, models: Sequence[str]) -> None:
    for model in models:
        keys = ModelKeys(model)
        pipeline.hmget(keys.head, _SUMMARY_FIELDS)
        pipeline.hlen(keys.deferred)


def _summary(model_id: str, head: Any, deferred: Any) -> Summary | None:
    for answer in (head, deferred):
        if isinstance(answer, CorruptState):
            raise answer
    stored_format, status, version, config, meta = head
    if meta is None or status == b"UNREGISTERED":
        return None
    check_stored_format(stored_format, model_id)
    number = integer(version, f"model {model_id!r}, version")
    return Summary(model_id, number, parse_meta(meta, parse_config(config, model_id)), deferred)
