"""The store: load models' states, look up what requests refer to, apply commits."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import redis

from lethe.engine.error.sentinels import SENTINELS, Sentinels
from lethe.engine.errors import CorruptState, StoreUnavailable
from lethe.engine.fit.objective import Kind
from lethe.engine.store.apply import APPLY, ApplyAnswer, StoreChange
from lethe.engine.store.counts import lost_keys
from lethe.engine.store.cursors import MOVE, RAISE, Cursors, applied_of, queue_applied
from lethe.engine.store.factors import Factors
from lethe.engine.store.generation import (
    Sampled,
    queue_generation,
    read_fixed,
    read_pipeline,
    read_published,
    read_stream,
    with_factor,
    with_solution,
)
from lethe.engine.store.layout.config import parse_config
from lethe.engine.store.layout.keys import GenerationKeys, ModelKeys
from lethe.engine.store.layout.meta import Meta, parse_meta
from lethe.engine.store.layout.reading import integer, parse_ids, parse_text
from lethe.engine.store.layout.state import (
    Head,
    ModelState,
    check_stored_format,
    parse_deferred,
    parse_offsets,
    parse_opening,
    secret_of,
)
from lethe.engine.store.layout.stored_rows import read_rows
from lethe.engine.store.lookup import Lookup, LookupRequest, look_up
from lethe.engine.store.membership import unknown
from lethe.engine.store.row_files import RowFilesOfModels, with_those_of_files
from lethe.engine.store.server.barrier import Barrier
from lethe.engine.store.server.connection import reachable, surface_breaks, text
from lethe.engine.store.server.pipeline import CHUNK, chunks, present, read_shards, run_pipeline
from lethe.engine.store.server.row_keys import SEALED, Opened, RowKeys, no_key
from lethe.engine.store.topics import KnownTopics

if TYPE_CHECKING:
    from lethe.engine.rowstore.passes import Workers

_LOAD_TRIES = 5  # the first finds the live generation; more are needed only while that changes


@dataclass(frozen=True, slots=True)
class _Stored:
    """What one transaction read."""

    head: Mapping[bytes, bytes]
    offsets: Mapping[bytes, bytes]
    deferred: Mapping[bytes, bytes]
    fixed: Mapping[bytes, bytes]
    V: list[bytes]
    Q: list[bytes]
    sums: Mapping[bytes, bytes]
    cursors: list[bytes | None]
    changed: list[bytes]


class ModelStore:
    """Models' state in one Redis or Valkey; one thread uses an instance.

    ``barrier`` waits until writes are on disk; ``cursors`` tells how far the store has come, and
    ``topics`` of which topics. ``workers``: as of `RowFilesOfModels`.
    """

    def __init__(
        self,
        client: redis.Redis,
        barrier: Barrier,
        row_keys: RowKeys | None = None,
        workers: Workers | None = None,
    ) -> None:
        surface_breaks(client)
        self.row_keys = row_keys
        self.row_files = RowFilesOfModels(workers, row_keys)
        self.factors = Factors(client)
        self.cursors = Cursors(client)
        self.topics = KnownTopics(client)
        self.client = client
        self.barrier = barrier

    def close(self) -> None:
        """Release the connections."""
        if self.row_keys is not None:
            self.row_keys.close()
        self.client.close()

    def wait_durable(self) -> None:
        """Return once everything written so far is on disk, where the server can say so.

        What only the store holds (a registration's rows, a new generation, a seal secret) must be
        on disk before the log names it.

        Raises
        ------
        NotDurable
            The server did not sync in time.
        """
        with reachable(self.client):
            self.barrier.sync(self.client)

    # -- models -------------------------------------------------------------------------------

    def load_model(self, model_id: str) -> ModelState:
        """Return the state of a registered model.

        Raises
        ------
        UnknownModel
            It is not registered.
        CorruptState
            The stored values contradict each other.
        """
        state, _ = self.load_as_of(model_id)
        if state is None or not state.registered:
            raise unknown(model_id)
        return state

    def load(self, model_id: str) -> ModelState | None:
        """Return a model's state, None if there never was one. Cost O(K d + m' d).

        For a fold, which restores keys that were lost: they are not looked for.
        """
        return self._load(model_id)[0]

    def load_as_of(self, model_id: str) -> tuple[ModelState | None, int]:
        """Return a model's state, and the apply cursor that was read at the same moment.

        All commits of the model below it are in the state: this shows when a store has gone back
        since its partition was folded.

        Raises
        ------
        KeysLost
            Keys that the head counts have lost entries.
        """
        loaded = self._load(model_id)
        if loaded[0] is not None:
            for error in lost_keys(self.client, [model_id]).values():
                raise error
        return loaded

    def _load(self, model_id: str) -> tuple[ModelState | None, int]:
        where = ModelKeys(model_id)
        generation = ""
        for _ in range(_LOAD_TRIES):
            with reachable(self.client):
                stored = self._read(where, generation)
            applied = applied_of(stored.cursors, model_id)
            check_stored_format(stored.head.get(b"format"), model_id)
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
        pipeline = self.client.pipeline(transaction=True)
        pipeline.hgetall(where.head)
        pipeline.hgetall(where.offsets)
        pipeline.hgetall(where.deferred)
        queue_generation(pipeline, where.generation(generation))
        queue_applied(pipeline, where)
        pipeline.lrange(where.generation(generation).changed, 0, -1)
        return _Stored(*pipeline.execute())

    def _decode(self, where: ModelKeys, stored: _Stored) -> ModelState:
        head, model_id = stored.head, where.model_id
        what = f"model {model_id!r}"
        meta = parse_meta(head.get(b"meta"), parse_config(head.get(b"config"), model_id))
        arrays = parse_text(head.get(b"arrays", b""), f"{what}, its arrays")
        rows = parse_text(head.get(b"rows", b""), f"{what}, its generation")
        pipeline = None
        if not arrays:
            stream = read_stream(head, meta, [], [])  # its thetas: no step is possible from it
            generation, sampled = read_fixed(stored.fixed, meta, lost=True)
        elif len(stored.V) != meta.K:
            raise CorruptState(
                f"{what}: its head and the stored rows of V disagree; run `lethe check`"
            )
        else:
            # The stream first: the sizes of its bytes bound what an empty generation allocates.
            stream = read_stream(head, meta, stored.V, stored.Q)
            generation, sampled = read_fixed(stored.fixed, meta)
            if meta.rows_live:
                generation = with_factor(self.client, where.generation(rows), generation)
            stream = with_solution(
                stream, stored.sums, meta, generation, encrypted=self.row_keys is not None
            )
            pipeline = read_pipeline(stored.fixed, stored.sums, meta, generation, stream)
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
            sentinels=self._sentinels_now(where.generation(rows), meta, sampled, stored.changed),
            offsets=parse_offsets(stored.offsets, what),
            deferred={
                text(request): parse_deferred(value, text(request), model_id)
                for request, value in stored.deferred.items()
            },
            opening=parse_opening(head.get(b"opening"), what),
            arrays_id=arrays,
            rows_generation=rows,
            deletions_from=integer(head.get(b"deletions_from", b"0"), f"{what}, deletions"),
            newest=head.get(b"newest", b""),
            seal=parse_text(head.get(b"seal", b""), f"{what}, its seal"),
            secret=secret_of(head.get(b"secret"), what),
            pipeline=pipeline,
            published_pipeline=read_published(
                head.get(b"parameters"), head.get(b"columns"), meta.config
            ),
        )

    def _sentinels_now(
        self, live: GenerationKeys, meta: Meta, sampled: Sampled, changed: Sequence[bytes]
    ) -> Sentinels:
        """Return the sentinels of a generation in which rows were inserted or corrected.

        These are sentinels for certain (`Sentinels.with_rows`). If there are many, there is no
        sample, and another one must be drawn (`offline.snapshot.with_enough_sentinels`).
        """
        rows = dict.fromkeys(text(row) for row in changed)
        if len(rows) > SENTINELS:
            return self.sentinels(live, meta, Sampled())
        if not rows or sampled.pi is None:
            return self.sentinels(live, meta, sampled)
        kept = {row: pi for row, pi in zip(sampled.ids, sampled.pi, strict=True) if row not in rows}
        together = kept | dict.fromkeys(rows, 1.0)
        chances = tuple(together.values())
        return self.sentinels(live, meta, Sampled(tuple(together), chances, sampled.records))

    def sentinels(self, live: GenerationKeys, meta: Meta, sampled: Sampled) -> Sentinels:
        """Return those of the chosen sentinels whose rows are still live.

        A linear model's error needs no estimate, so it has none.
        """
        records: Mapping[str, bytes] = {}
        if meta.config.kind is not Kind.LINEAR:
            records = self._sentinel_records(live, sampled)
        live_ids = tuple(row for row in sampled.ids if row in records)
        config = meta.config
        what = f"model {config.model_id!r}, sentinels"
        packed = [records[row] for row in live_ids]
        decoded = read_rows(config, None, packed, what)
        pi = None
        if sampled.pi is not None:
            chances = dict(zip(sampled.ids, sampled.pi, strict=True))
            pi = np.array([chances[row] for row in live_ids])
        return Sentinels(live_ids, decoded.rows, decoded.W, pi)

    def _sentinel_records(self, live: GenerationKeys, sampled: Sampled) -> Mapping[str, bytes]:
        """Return the records of those sentinels that are live.

        Of rows in files, the generation has copies: a row of the store stands in place of them.
        """
        records = self.records_if_there(live, sampled.ids)
        if not sampled.records:
            return records
        copies = self.open_records(live, sampled.records)
        gone = self.rows_in_ledger(live.model, sampled.ids)
        there = {row: copy for row, copy in copies.records.items() if row not in gone}
        return {**there, **records}

    def _records_in_files(self, state: ModelState, row_ids: Sequence[str]) -> dict[str, bytes]:
        """Return records of files; while a model waits for a rebuild, nothing is computed."""
        duals = None if state.awaiting_rebuild else partial(self.factors.dual_rows_of, state)
        return self.row_files.records(state.meta, row_ids, duals)

    # -- looking up ---------------------------------------------------------------------------

    def subjects(
        self, requests: Sequence[tuple[ModelState, Sequence[str]]]
    ) -> list[dict[str, tuple[str, ...]]]:
        """Return, for each model, the row ids of each subject that it knows. One round trip."""
        answers = run_pipeline(
            self.client,
            (),
            lambda pipe: [
                pipe.hmget(state.keys.dataset(state.meta.dataset_key).subjects, list(subject_ids))
                for state, subject_ids in requests
            ],
        )
        return [
            with_those_of_files(
                {
                    subject: parse_ids(rows, f"model {state.model_id!r}, a subject's rows")
                    for subject, rows in zip(subject_ids, stored, strict=True)
                    if rows is not None
                },
                self.row_files.subjects(state.meta, subject_ids),
            )
            for (state, subject_ids), stored in zip(requests, answers, strict=True)
        ]

    def row_ids(self, state: ModelState) -> frozenset[str]:
        """Return the ids of all rows that the model was registered with. Cost O(n)."""
        where = state.keys.dataset(state.meta.dataset_key)
        with reachable(self.client):
            ids = self.client.lrange(where.ids, 0, -1)
        in_files = (row for bucket in self.row_files.every(state.meta) for row in bucket.ids)
        return frozenset((*(text(row) for row in ids), *in_files))

    def look_up(self, requests: Sequence[LookupRequest]) -> list[Lookup]:
        """Return what batches need from the store; see `engine.store.lookup`. One round trip."""
        lookups = look_up(self.client, requests)
        opened = []
        for request, lookup in zip(requests, lookups, strict=True):
            decrypted = self.open_records(request.state.generation_keys, lookup.records)
            shredded = decrypted.shredded - lookup.ledger.keys()
            read = replace(lookup, records=decrypted.records, shredded=shredded)
            opened.append(self._with_row_files(request, read))
        return opened

    def _with_row_files(self, request: LookupRequest, lookup: Lookup) -> Lookup:
        """Return a lookup with the live rows that files have."""
        state = request.state
        if state.meta.row_files is None or not lookup.is_of(state):
            return lookup
        here = lookup.ledger.keys() | lookup.records.keys() | lookup.unread
        wanted = [row for row in request.row_ids if row not in here]
        try:
            records = self._records_in_files(state, wanted)
        except CorruptState:
            [again] = look_up(self.client, [LookupRequest(state, (), ())])
            if again.is_of(state):
                raise
            return again  # a refresh has written the files anew since
        lookup = replace(lookup, in_files=frozenset(records))
        live = lookup.records.keys() | lookup.unread | records.keys()
        if request.too_many and len(live) > state.meta.config.hard_rows:
            return replace(lookup, records={}, unread=frozenset(live))
        return replace(lookup, records={**records, **lookup.records})

    def records_of(self, state: ModelState, row_ids: Sequence[str]) -> dict[str, bytes]:
        """Return the records of those rows of a model that have one, in the store or in files."""
        records = self.records_if_there(state.generation_keys, row_ids)
        missing = [row for row in row_ids if row not in records]
        return {**self._records_in_files(state, missing), **records}

    def hidden(self, state: ModelState, row_ids: Sequence[str]) -> frozenset[str]:
        """Return those of some rows of files that are not live: deleted, or corrected since."""
        hidden = self.rows_in_ledger(state.keys, row_ids)
        if state.meta.rows_in_store:
            hidden |= read_shards(self.client, state.generation_keys.rows, row_ids).keys()
        return hidden

    def owners(self, state: ModelState) -> dict[str, str]:
        """Return whose the rows of subjects are that the store has. Cost O(these)."""
        where = state.keys.dataset(state.meta.dataset_key)
        what = f"model {state.model_id!r}, a subject's rows"
        with reachable(self.client):
            return {
                row: text(subject)
                for subject, rows in self.client.hscan_iter(where.subjects, count=CHUNK)
                for row in parse_ids(rows, what)
            }

    def row_records(self, live: GenerationKeys, row_ids: Sequence[str]) -> dict[str, bytes]:
        """Return the records of those rows that have one.

        Raises
        ------
        CorruptState
            The key of an encrypted record is missing, and the row was not deleted.
        """
        opened = self.open_records(live, read_shards(self.client, live.rows, row_ids))
        lost = opened.shredded - self.rows_in_ledger(live.model, sorted(opened.shredded))
        if lost:
            raise no_key(live.model.model_id, lost)
        return dict(opened.records)

    def records_if_there(self, live: GenerationKeys, row_ids: Sequence[str]) -> dict[str, bytes]:
        """Return the records of those rows that have one, and its key if it is encrypted."""
        return dict(self.open_records(live, read_shards(self.client, live.rows, row_ids)).records)

    def open_records(self, live: GenerationKeys, records: Mapping[str, bytes]) -> Opened:
        """Decrypt encrypted records; without a store of keys, none may be encrypted."""
        if self.row_keys is not None:
            return self.row_keys.open(live, records)
        if any(record[:1] == bytes([SEALED]) for record in records.values()):
            raise CorruptState(
                f"model {live.model.model_id!r}: its row records are encrypted; name the store of "
                "their keys in LETHE_ROW_KEYS_URL"
            )
        return Opened(records, frozenset())

    def receipt(self, model_id: str, request_id: str) -> bytes | None:
        """Return a packed receipt, final or pending, or None."""
        with reachable(self.client):
            stored = self.client.hget(ModelKeys(model_id).requests, request_id)
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
        with reachable(self.client):
            deleted = self.client.lrange(state.keys.deletions, first, last - 1)
        return [text(row) for row in deleted]

    def deleted_after(
        self, where: ModelKeys, version: int, *, until: float = math.inf
    ) -> list[str]:
        """Return the rows that later versions than this one deleted, ``until`` one the last.

        Cost O(rows ever deleted).
        """
        with reachable(self.client):
            return [
                text(row)
                for row, deleted_by in self.client.hscan_iter(where.ledger, count=CHUNK)
                if version < integer(deleted_by, f"model {where.model_id!r}, the ledger") <= until
            ]

    def rows_in_ledger(self, where: ModelKeys, row_ids: Sequence[str]) -> frozenset[str]:
        """Return those of the rows that are in the deletion ledger."""
        deleted: set[str] = set()
        if len(row_ids) > CHUNK:  # of a whole table: most models have no deletion then
            with reachable(self.client):
                if not self.client.exists(where.ledger):
                    return frozenset()
        for chunk in chunks(row_ids):
            with reachable(self.client):
                versions: Any = self.client.hmget(where.ledger, chunk)
            deleted |= present(chunk, versions).keys()
        return frozenset(deleted)

    # -- step 7 -------------------------------------------------------------------------------

    def apply(
        self, changes: Sequence[StoreChange], queue: Callable[[Any], None] | None = None
    ) -> tuple[list[ApplyAnswer], list[Any]]:
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

        answers = run_pipeline(self.client, (APPLY, MOVE, RAISE), fill, each=True)
        return [ApplyAnswer.of(one) for one in answers[: len(changes)]], answers[len(changes) :]
