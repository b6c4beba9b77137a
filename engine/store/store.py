"""The store: load models' states, look up what requests refer to, apply commits."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any

import numpy as np
import redis

from lethe.engine.error.estimate import Sentinels
from lethe.engine.errors import CorruptState, StoreUnavailable, UnknownModel
from lethe.engine.fit.objective import Kind, Rows
from lethe.engine.store import codec, model_names
from lethe.engine.store.apply import APPLY, Applied, Change
from lethe.engine.store.connection import Barrier, reachable, surface_breaks, text
from lethe.engine.store.cursors import (
    MOVE,
    RAISE,
    Cursors,
    PartitionCursors,
    applied_of,
    queue_applied,
)
from lethe.engine.store.format import check_format
from lethe.engine.store.generation import Sampled, placeholder_stream, read_fixed, read_stream
from lethe.engine.store.head import Meta, parse_config, parse_meta, secret_of
from lethe.engine.store.keys import (
    SHARDS,
    GenerationKeys,
    ModelKeys,
    PartitionKeys,
)
from lethe.engine.store.lookup import CHUNK, Lookup, LookupRequest, look_up, row_records
from lethe.engine.store.reading import integer, parse_ids, parse_json_value, parse_text
from lethe.engine.store.row_keys import SEALED, Opened, RowKeys, no_key
from lethe.engine.store.scripts import run_pipeline
from lethe.engine.store.state import Head, ModelState, parse_deferred, parse_offsets

__all__ = ["CHUNK", "Answer", "Lookup", "ModelStore"]

_LOAD_TRIES = 5  # the first finds the live generation; more are needed only while that changes


@dataclass(frozen=True, slots=True)
class Answer:
    """The script's answer to one change, and what it found."""

    applied: Applied
    found: str

    @property
    def done(self) -> bool:
        """Whether the head has the commit now."""
        return self.applied in (Applied.APPLIED, Applied.ALREADY)


@dataclass(frozen=True, slots=True)
class _Stored:
    """What one transaction read."""

    head: Mapping[bytes, bytes]
    offsets: Mapping[bytes, bytes]
    deferred: Mapping[bytes, bytes]
    fixed: Mapping[bytes, bytes]
    V: list[bytes]
    Q: list[bytes]
    cursors: list[bytes | None]


class ModelStore:
    """Models' state in one Redis or Valkey; one thread uses an instance.

    ``cursors`` tells how far the store has come.
    """

    def __init__(
        self, client: redis.Redis, barrier: Barrier, row_keys: RowKeys | None = None
    ) -> None:
        surface_breaks(client)
        self.row_keys = row_keys
        self.cursors = Cursors(client)
        self._client = client
        self._barrier = barrier

    @property
    def client(self) -> redis.Redis:
        """The client of this store."""
        return self._client

    @property
    def barrier(self) -> Barrier:
        """The barrier that waits until writes are on disk."""
        return self._barrier

    def close(self) -> None:
        """Release the connections."""
        if self.row_keys is not None:
            self.row_keys.close()
        self._client.close()

    def wait_durable(self) -> None:
        """Return once everything written so far is on disk, where the server can say so.

        What only the store holds (a registration's rows, a new generation, a seal secret) must be
        on disk before the log names it.

        Raises
        ------
        NotDurable
            The server did not sync in time.
        """
        with reachable(self._client):
            self._barrier.sync(self._client)

    # -- models -------------------------------------------------------------------------------

    def every_model(self) -> list[str]:
        """Return the ids of all models that were ever registered, sorted."""
        return model_names.every_one(self._client)

    def models_in(self, partition: PartitionKeys) -> list[str]:
        """Return the ids of the models of one commits partition, sorted."""
        with reachable(self._client):
            members: Any = self._client.smembers(partition.models)
        return sorted(text(member) for member in members)

    def model_ids(self) -> list[str]:
        """Return the ids of the registered models, sorted."""
        return model_names.registered(self._client)

    def load_model(self, model_id: str) -> ModelState:
        """Return the state of a registered model.

        Raises
        ------
        UnknownModel
            It is not registered.
        CorruptState
            The stored values contradict each other.
        """
        state = self.load(model_id)
        if state is None or not state.registered:
            raise unknown(model_id)
        return state

    def load(self, model_id: str) -> ModelState | None:
        """Return a model's state, None if there never was one. Cost O(K d + m' d)."""
        return self.load_as_of(model_id)[0]

    def load_as_of(self, model_id: str) -> tuple[ModelState | None, int]:
        """Return a model's state, and the apply cursor that was read at the same moment.

        All commits of the model below it are in the state: this shows when a store has gone back
        since its partition was folded.
        """
        where = ModelKeys(model_id)
        generation = ""
        for _ in range(_LOAD_TRIES):
            with reachable(self._client):
                stored = self._read(where, generation)
            applied = applied_of(stored.cursors, model_id)
            check_format(stored.head.get(b"format"), model_id)
            if b"commit" not in stored.head:
                return None, applied
            live = parse_text(stored.head.get(b"rows", b""), f"model {model_id!r}, its generation")
            if live == generation:
                return self._decode(where, stored), applied
            generation = live
        raise StoreUnavailable(
            f"model {model_id!r}: its generation changed {_LOAD_TRIES} times while it was read"
        )

    def _read(self, where: ModelKeys, generation: str) -> _Stored:
        """Read everything at one moment; ``generation`` is a guess of the live one's name."""
        live = where.generation(generation)
        pipeline = self._client.pipeline(transaction=True)
        pipeline.hgetall(where.head)
        pipeline.hgetall(where.offsets)
        pipeline.hgetall(where.deferred)
        pipeline.hgetall(live.fixed)
        pipeline.lrange(live.V, 0, -1)
        pipeline.lrange(live.Q, 0, -1)
        queue_applied(pipeline, where)
        return _Stored(*pipeline.execute())

    def _decode(self, where: ModelKeys, stored: _Stored) -> ModelState:
        head, model_id = stored.head, where.model_id
        what = f"model {model_id!r}"
        meta = parse_meta(head.get(b"meta"), parse_config(head.get(b"config"), model_id))
        arrays = parse_text(head.get(b"arrays", b""), f"{what}, its arrays")
        rows = parse_text(head.get(b"rows", b""), f"{what}, its generation")
        if not arrays:
            stream = placeholder_stream(head, meta)
            generation, sampled = read_fixed(stored.fixed, meta, lost=True)
        elif len(stored.V) != meta.K:
            raise CorruptState(
                f"{what}: its head and the stored rows of V disagree; run `lethe check`"
            )
        else:
            # The stream first: the sizes of its bytes bound what an empty generation allocates.
            stream = read_stream(head, meta, stored.V, stored.Q)
            generation, sampled = read_fixed(stored.fixed, meta)
        return ModelState(
            keys=where,
            head=Head(
                integer(head.get(b"commit"), f"{what}, its newest commit"),
                parse_text(head.get(b"digest"), f"{what}, the digest of its newest commit"),
            ),
            version=integer(head.get(b"version"), f"{what}, version"),
            digest=parse_text(head.get(b"version_digest"), f"{what}, digest"),
            meta=meta,
            generation=generation,
            stream=stream,
            sentinels=self.sentinels(where.generation(rows), meta, sampled),
            offsets=parse_offsets(stored.offsets, what),
            deferred={
                text(request): parse_deferred(value, text(request), model_id)
                for request, value in stored.deferred.items()
            },
            opening=_opening(head.get(b"opening"), what),
            arrays=arrays,
            rows=rows,
            deletions_from=integer(head.get(b"deletions_from", b"0"), f"{what}, deletions"),
            newest=head.get(b"newest", b""),
            seal=parse_text(head.get(b"seal", b""), f"{what}, its seal"),
            secret=secret_of(head.get(b"secret"), what),
        )

    def sentinels(self, live: GenerationKeys, meta: Meta, sampled: Sampled) -> Sentinels:
        """Return those of the chosen sentinels whose rows are still live.

        A linear model's error needs no estimate, so it has none.
        """
        records: Mapping[str, bytes] = {}
        if meta.config.kind is not Kind.LINEAR:
            records = self._open(live, row_records(self._client, live, sampled.ids)).records
        live_ids = tuple(row for row in sampled.ids if row in records)
        config = meta.config
        what = f"model {config.model_id!r}, sentinels"
        packed = [records[row] for row in live_ids]
        rows = codec.unpack_rows(packed, config.d, config.m, what, config.blocks)
        pi = None
        if sampled.pi is not None:
            chances = dict(zip(sampled.ids, sampled.pi, strict=True))
            pi = np.array([chances[row] for row in live_ids])
        return Sentinels(live_ids, Rows(rows.X, rows.y, rows.weight), rows.W, pi)

    # -- looking up ---------------------------------------------------------------------------

    def heads(
        self, model_ids: Sequence[str], partition: PartitionKeys
    ) -> tuple[dict[str, Head | CorruptState], PartitionCursors]:
        """Return the newest commit of each model that has one, and the partition's cursors.

        A model with a damaged head has the error instead. One round trip.
        """

        def fill(pipeline: Any) -> None:
            for name in model_ids:
                pipeline.hmget(ModelKeys(name).head, ["commit", "digest", "offset"])
            pipeline.hgetall(partition.cursors)

        *stored, cursors = run_pipeline(self._client, (), fill, each=True)
        if isinstance(cursors, CorruptState):
            raise cursors
        heads = {name: _head(name, fields) for name, fields in zip(model_ids, stored, strict=True)}
        registered = {name: head for name, head in heads.items() if head is not None}
        return registered, Cursors.parsed(partition, cursors)

    def subjects(
        self, requests: Sequence[tuple[ModelState, Sequence[str]]]
    ) -> list[dict[str, Any]]:
        """Return, for each model, the row ids of each subject that it knows. One round trip."""
        answers = run_pipeline(
            self._client,
            (),
            lambda pipe: [
                pipe.hmget(state.keys.dataset(state.meta.dataset_key).subjects, list(subject_ids))
                for state, subject_ids in requests
            ],
        )
        return [
            {
                subject: list(parse_ids(rows, f"model {state.model_id!r}, a subject's rows"))
                for subject, rows in zip(subject_ids, stored, strict=True)
                if rows is not None
            }
            for (state, subject_ids), stored in zip(requests, answers, strict=True)
        ]

    def row_ids(self, state: ModelState) -> frozenset[str]:
        """Return the ids of all rows that the model was registered with. Cost O(n)."""
        where = state.keys.dataset(state.meta.dataset_key)
        with reachable(self._client):
            ids = self._client.lrange(where.ids, 0, -1)
        return frozenset(text(row) for row in ids)

    def look_up(self, requests: Sequence[LookupRequest]) -> list[Lookup]:
        """Return what batches need from the store; see `engine.store.lookup`. One round trip."""
        lookups = look_up(self._client, requests)
        opened = []
        for request, lookup in zip(requests, lookups, strict=True):
            decrypted = self._open(request.state.generation_keys, lookup.records)
            shredded = decrypted.shredded - lookup.ledger.keys()
            opened.append(replace(lookup, records=decrypted.records, shredded=shredded))
        return opened

    def row_records(self, live: GenerationKeys, row_ids: Sequence[str]) -> dict[str, bytes]:
        """Return the records of those rows that have one.

        Raises
        ------
        CorruptState
            The key of an encrypted record is missing, and the row was not deleted.
        """
        opened = self._open(live, row_records(self._client, live, row_ids))
        lost = opened.shredded - self.ledgered(live.model, sorted(opened.shredded))
        if lost:
            raise no_key(live.model.model_id, lost)
        return dict(opened.records)

    def records_if_there(self, live: GenerationKeys, row_ids: Sequence[str]) -> dict[str, bytes]:
        """Return the records of those rows that have one, and its key if it is encrypted."""
        return dict(self._open(live, row_records(self._client, live, row_ids)).records)

    def _open(self, live: GenerationKeys, records: Mapping[str, bytes]) -> Opened:
        """Decrypt encrypted records; without a store of keys, none may be encrypted."""
        if self.row_keys is not None:
            return self.row_keys.open(live, records)
        if any(record[:1] == bytes([SEALED]) for record in records.values()):
            raise CorruptState(
                f"model {live.model.model_id!r}: its row records are encrypted; name the store of "
                "their keys in LETHE_ROW_KEYS_URL"
            )
        return Opened(records, frozenset())

    def without_all_rows(self, partition: PartitionKeys) -> list[str]:
        """Return the models of a partition that have fewer row records than live rows.

        Those that seem to are checked again: others may commit in between.
        """
        lacking = self._lacking(self.models_in(partition))
        for _ in range(_LOAD_TRIES):
            rechecked = self._lacking(list(lacking))
            if rechecked == lacking:
                break
            lacking = rechecked
        return list(lacking)

    def _lacking(self, models: Sequence[str]) -> dict[str, Any]:
        """Return the models that have too few row records, with fields of their heads."""
        if not models:
            return {}
        heads = run_pipeline(
            self._client,
            (),
            lambda pipe: [
                pipe.hmget(ModelKeys(name).head, ["meta", "rows", "status"]) for name in models
            ],
            each=True,
        )
        wanted: dict[str, int] = {}
        shards: list[str] = []
        for name, stored in zip(models, heads, strict=True):
            try:
                live = _live_rows(name, stored)
            except CorruptState:
                continue  # whoever loads it gets the error
            if live is not None:
                wanted[name], generation = live
                shards += ModelKeys(name).generation(generation).every_rows()
        counts = iter(
            run_pipeline(self._client, (), lambda p: [p.hlen(key) for key in shards], each=True)
        )
        record_counts = {
            name: sum(n for n in islice(counts, SHARDS) if isinstance(n, int)) for name in wanted
        }
        head_of = dict(zip(models, heads, strict=True))
        return {
            name: head_of[name]
            for name, rows_live in wanted.items()
            if record_counts[name] < rows_live
        }

    def receipt(self, model_id: str, request_id: str) -> bytes | None:
        """Return a packed receipt, final or pending, or None."""
        with reachable(self._client):
            stored = self._client.hget(ModelKeys(model_id).requests, request_id)
        return stored if isinstance(stored, bytes) else None

    def deletions_since(self, state: ModelState, position: int, end: int) -> list[str]:
        """Return the row ids deleted from ``position`` up to ``end``, in commit order.

        Raises
        ------
        CorruptState
            The list does not reach back so far: a generation was swapped in since.
        """
        first, last = position - state.deletions_from, end - state.deletions_from
        if last <= first:
            return []
        if first < 0:
            raise CorruptState(
                f"model {state.model_id!r}: its list of deletions begins after {position}"
            )
        with reachable(self._client):
            deleted = self._client.lrange(state.keys.deletions, first, last - 1)
        return [text(row) for row in deleted]

    def ledgered(self, where: ModelKeys, row_ids: Sequence[str]) -> frozenset[str]:
        """Return those of the rows that are in the deletion ledger."""
        deleted: set[str] = set()
        for start in range(0, len(row_ids), CHUNK):
            chunk = row_ids[start : start + CHUNK]
            with reachable(self._client):
                versions = self._client.hmget(where.ledger, list(chunk))
            deleted |= {
                row for row, version in zip(chunk, versions, strict=True) if version is not None
            }
        return frozenset(deleted)

    # -- step 7 -------------------------------------------------------------------------------

    def apply(
        self, changes: Sequence[Change], queue: Callable[[Any], None] | None = None
    ) -> tuple[list[Answer], list[Any]]:
        """Apply changes in one round trip; return an answer for each, and those to ``queue``.

        ``queue`` adds commands to the same pipeline, after the changes: cursors and watermarks
        of what was published meanwhile.

        Raises
        ------
        StoreUnavailable
            No answer: some of it may have happened. Fold.
        """

        def fill(pipeline: Any) -> None:
            for change in changes:
                APPLY.queue(pipeline, *change.call())
            if queue is not None:
                queue(pipeline)

        answers = run_pipeline(self._client, (APPLY, MOVE, RAISE), fill, each=True)
        return [_answer(one) for one in answers[: len(changes)]], answers[len(changes) :]


def unknown(model_id: str) -> UnknownModel:
    """Return the error of a model that is not registered."""
    return UnknownModel(
        f"model {model_id!r} is not registered; `lethe status` lists those that are, "
        "`lethe register` adds one"
    )


def _answer(answer: Any) -> Answer:
    if isinstance(answer, CorruptState):
        return Answer(Applied.CORRUPT, str(answer))
    kind, detail = answer
    return Answer(Applied(text(kind)), text(detail))


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


def _live_rows(model_id: str, stored: Any) -> tuple[int, str] | None:
    """Return how many live rows a model has, and the generation that holds their records."""
    if isinstance(stored, CorruptState):
        raise stored
    meta, rows, status = stored
    if meta is None or rows is None or status == b"UNREGISTERED":
        return None
    what = f"model {model_id!r}, its stored head"
    fields = parse_json_value(meta, what)
    if not isinstance(fields, dict):
        raise CorruptState(f"{what}: is not an object; run `lethe check`")
    return integer(fields.get("rows_live"), f"model {model_id!r}, its live rows"), parse_text(
        rows, what
    )


def _opening(stored: bytes | None, what: str) -> dict[str, int] | None:
    if stored is None:
        return None
    opening = parse_json_value(stored, f"{what}, its opening")
    if not isinstance(opening, dict):
        raise CorruptState(f"{what}: its opening names no partitions; run `lethe check`")
    return {name: integer(offset, f"{what}, its opening") for name, offset in opening.items()}


def corrupt(change: Change, detail: str) -> CorruptState:
    """Return the error of a change that the script could not apply."""
    return CorruptState(
        f"model {change.keys.model_id!r}: commit {change.commit} cannot be applied ({detail}): the "
        "store was restored in part, or changed by hand. Restore the whole of it, or register the "
        "model again with --replace"
    )
