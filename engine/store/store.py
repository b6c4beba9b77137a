"""The store: load a model's state, look up rows and receipts, commit."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import redis

from engine.error import Sentinels
from engine.errors import CommitConflict, CorruptState, LetheError, StoreUnavailable, UnknownModel
from engine.objective import Kind, Rows
from engine.store import codec, keys
from engine.store.commit import Commit, script
from engine.store.connection import Barrier, reachable, surface_breaks, text
from engine.store.erasing import Eraser, Moment, pass_by
from engine.store.generation import Sampled, read_fixed, read_stream
from engine.store.handover import Handover
from engine.store.head import Meta, check_format, parse_meta, secret_of
from engine.store.keys import GenerationKeys, ModelKeys
from engine.store.lookup import CHUNK, Lookup, look_up, row_records
from engine.store.reading import integer, names, words
from engine.store.receipts import open_receipt
from engine.store.row_keys import SEALED, Opened, RowKeys, no_key
from engine.store.state import ModelState, State, Unregistered, parse_deferred, parse_offsets

__all__ = ["CHUNK", "Lookup", "ModelStore"]

_LOAD_TRIES = 5  # the first learns which generation is live; more only while that changes


@dataclass(frozen=True, slots=True)
class _Stored:
    """What one transaction read."""

    head: Mapping[bytes, bytes]
    offsets: Mapping[bytes, bytes]
    deferred: Mapping[bytes, bytes]
    receipts: int
    fixed: Mapping[bytes, bytes]
    V: list[bytes]
    Q: list[bytes]


class ModelStore:
    """Model state in one Redis or Valkey; one thread uses an instance.

    ``eraser`` does step 8 and ``handover`` step 9.
    """

    def __init__(
        self, client: redis.Redis, barrier: Barrier, row_keys: RowKeys | None = None
    ) -> None:
        self.row_keys = row_keys
        surface_breaks(client)
        self._client = client
        self._barrier = barrier
        self._script = client.register_script(script())
        self._connect_writer()
        self.handover = Handover(client)
        self.eraser = Eraser(client, row_keys)

    @property
    def client(self) -> redis.Redis:
        """The client for reading."""
        return self._client

    def _connect_writer(self) -> None:
        """Connect at once: the script and the barrier that waits for it share one connection."""
        with reachable(self._client):
            self._writer: redis.Redis = self._client.client()  # type: ignore[no-untyped-call]  # its gap

    def reconnect(self) -> None:
        """Go on with new connections, for a caller that reads everything again.

        It knows that one of them broke; the other's break would be said to it later, and make it
        read everything a second time.

        Raises
        ------
        StoreUnavailable
            The server is away.
        """
        self._writer.close()
        self._client.connection_pool.disconnect()
        self._client.connection_pool.reset()
        self._connect_writer()

    def close(self) -> None:
        """Release the connections."""
        if self.row_keys is not None:
            self.row_keys.close()
        self._writer.close()
        self._client.close()

    # -- models -------------------------------------------------------------------------------

    def model_ids(self) -> list[str]:
        """Return the ids of the registered models, sorted."""
        names = self.announced()
        registered: list[bool] = []
        for start in range(0, len(names), CHUNK):
            pipeline = self._client.pipeline(transaction=False)
            for name in names[start : start + CHUNK]:
                pipeline.hexists(ModelKeys.of_model(name).head, "version")
            with reachable(self._client):
                # One whose head is no hash is there as well: who works on it finds out.
                registered += [bool(found) for found in pipeline.execute(raise_on_error=False)]
        return [name for name, there in zip(names, registered, strict=True) if there]

    def announced(self) -> list[str]:
        """Return the ids of all models that a registration came near to committing, sorted.

        One without a version was never committed, or the store has lost it: a takeover and
        `lethe check` must see the latter.
        """
        with reachable(self._client):
            return sorted(text(member) for member in self._client.smembers(keys.MODELS))

    def announce(self, model_id: str) -> None:
        """Put a model on the list of `announced`, before it is committed."""
        with reachable(self._client):
            self._client.sadd(keys.MODELS, model_id)

    def load_model(self, model_id: str) -> ModelState:
        """Return the state of a registered model.

        Raises
        ------
        UnknownModel
            It is not registered.
        CorruptState
            What is stored does not fit together.
        """
        state = self.load(ModelKeys.of_model(model_id), model_id)
        if isinstance(state, Unregistered):
            raise UnknownModel(
                f"model {model_id!r} is not registered; `lethe status` lists those that are, "
                "`lethe register` adds one"
            )
        return state

    def load(self, where: ModelKeys, model_id: str) -> State:
        """Return whatever is stored under these keys. Cost O(K d + m' d), m' sentinels."""
        generation = ""
        for _ in range(_LOAD_TRIES):
            with reachable(self._client):
                stored = self._read(where, generation)
            check_format(stored.head.get(b"format"), model_id)
            what = f"model {model_id!r}"
            positions = parse_offsets(stored.offsets, what)
            commit_seq = integer(stored.head.get(b"commit_seq", b"0"), f"{what}, commit_seq")
            if integer(stored.head.get(b"version", b"-1"), f"{what}, version") < 0:
                return Unregistered(where, commit_seq, positions, stored.receipts)
            meta = parse_meta(stored.head.get(b"meta"), model_id)
            if meta.generation_key == generation:
                return self._decode(where, stored, meta, positions)
            generation = meta.generation_key
        raise StoreUnavailable(
            f"model {model_id!r}: its generation changed {_LOAD_TRIES} times while it was read"
        )

    def _read(self, where: ModelKeys, generation: str) -> _Stored:
        """Read everything of one moment; of the generation, what is guessed to be the live one."""
        live = where.generation(generation)
        pipeline = self._client.pipeline(transaction=True)
        pipeline.hgetall(where.head)
        pipeline.hgetall(where.offsets)
        pipeline.hgetall(where.deferred)
        pipeline.hlen(where.requests)
        pipeline.hgetall(live.fixed)
        pipeline.lrange(live.V, 0, -1)
        pipeline.lrange(live.Q, 0, -1)
        return _Stored(*pipeline.execute())

    def _decode(
        self, where: ModelKeys, stored: _Stored, meta: Meta, offsets: Mapping[str, int]
    ) -> ModelState:
        head, model_id = stored.head, meta.config.model_id
        if (len(stored.V), len(stored.Q)) != (meta.K, meta.r):
            raise CorruptState(
                f"model {model_id!r}: its head names other rows of V and Q than are stored; "
                "run `lethe check`"
            )
        # The stream first: its bytes are there, and bound what an empty generation is made of.
        stream = read_stream(head, meta, stored.V, stored.Q)
        generation, sampled = read_fixed(stored.fixed, meta)
        return ModelState(
            keys=where,
            commit_seq=integer(head.get(b"commit_seq"), f"model {model_id!r}, commit_seq"),
            version=integer(head.get(b"version"), f"model {model_id!r}, version"),
            digest=words(head.get(b"digest"), f"model {model_id!r}, digest"),
            meta=meta,
            generation=generation,
            stream=stream,
            sentinels=self.sentinels(where.generation(meta.generation_key), meta, sampled),
            offsets=offsets,
            deferred={
                text(request): parse_deferred(value, text(request), model_id)
                for request, value in stored.deferred.items()
            },
            secret=secret_of(head.get(b"secret"), f"model {model_id!r}"),
        )

    def sentinels(self, live: GenerationKeys, meta: Meta, sampled: Sampled) -> Sentinels:
        """Return those of the chosen sentinels whose rows are still live.

        A linear model's error needs no estimate, so it has none.
        """
        records: Mapping[str, bytes] = {}
        if meta.config.kind is not Kind.LINEAR:
            with reachable(self._client):
                stored = row_records(self._client, live, sampled.ids)
            records = self._open(live, stored).records
        kept = tuple(row for row in sampled.ids if row in records)
        config = meta.config
        what = f"model {config.model_id!r}, sentinels"
        found = [records[row] for row in kept]
        rows = codec.unpack_rows(found, config.d, config.m, what, config.blocks)
        pi = None
        if sampled.pi is not None:
            chances = dict(zip(sampled.ids, sampled.pi, strict=True))
            pi = np.array([chances[row] for row in kept])
        return Sentinels(kept, Rows(rows.X, rows.y, rows.weight), rows.W, pi)

    # -- looking up ---------------------------------------------------------------------------

    def subjects(self, state: ModelState, subject_ids: Sequence[str]) -> dict[str, list[str]]:
        """Return the row ids of each subject that the model knows."""
        if not subject_ids:
            return {}
        name = state.keys.dataset(state.meta.dataset_key).subjects
        with reachable(self._client):
            found = self._client.hmget(name, list(subject_ids))
        return {
            subject: list(names(rows, f"model {state.model_id!r}, a subject's rows"))
            for subject, rows in zip(subject_ids, found, strict=True)
            if rows is not None
        }

    def row_ids(self, state: ModelState) -> frozenset[str]:
        """Return the ids of all rows that the model was registered with. Cost O(n)."""
        where = state.keys.dataset(state.meta.dataset_key)
        with reachable(self._client):
            found = self._client.lrange(where.ids, 0, -1)
        return frozenset(text(row) for row in found)

    def look_up(self, state: State, request_ids: Sequence[str], row_ids: Sequence[str]) -> Lookup:
        """Return what a batch needs to know; see `engine.store.lookup`. Cost O(k d)."""
        with reachable(self._client):
            found = look_up(self._client, state, request_ids, row_ids)
        if not isinstance(state, ModelState):
            return found
        opened = self._open(state.generation_keys, found.records)
        return replace(
            found, records=opened.records, shredded=opened.shredded - found.ledger.keys()
        )

    def row_records(self, live: GenerationKeys, row_ids: Sequence[str]) -> dict[str, bytes]:
        """Return the records of those rows that have one.

        Raises
        ------
        CorruptState
            The key of an encrypted one is not there, and the row was not deleted.
        """
        with reachable(self._client):
            found = row_records(self._client, live, row_ids)
        opened = self._open(live, found)
        lost = opened.shredded - self.ledgered(ModelKeys(live.tag), sorted(opened.shredded))
        if lost:
            raise no_key(live.tag, lost)
        return dict(opened.records)

    def _open(self, live: GenerationKeys, records: Mapping[str, bytes]) -> Opened:
        """Decrypt what is encrypted; without a store of keys, everything must be in the clear."""
        if self.row_keys is not None:
            return self.row_keys.open(live, records)
        if any(record[:1] == bytes([SEALED]) for record in records.values()):
            raise CorruptState(
                f"{live.tag}: its row records are encrypted; name the store of their keys in "
                "LETHE_ROW_KEYS_URL"
            )
        return Opened(records, frozenset())

    def receipt(self, model_id: str, request_id: str) -> str | None:
        """Return a stored receipt as it was published (JSON), final or pending, or None."""
        with reachable(self._client):
            stored = self._client.hget(ModelKeys.of_model(model_id).requests, request_id)
        if stored is None:
            return None
        return open_receipt(text(stored), f"model {model_id!r}, request {request_id!r}").receipt

    def newest_parameters(self, where: ModelKeys) -> bytes | None:
        """Return the newest parameters event as it was committed."""
        with reachable(self._client):
            stored = self._client.get(where.parameters)
        return stored if isinstance(stored, bytes) else None

    def deletions_since(self, state: ModelState, position: int, end: int) -> list[str]:
        """Return the row ids deleted from ``position`` up to ``end``, in commit order."""
        if end <= position:
            return []
        with reachable(self._client):
            found = self._client.lrange(state.keys.deletions, position, end - 1)
        return [text(row) for row in found]

    def ledgered(self, where: ModelKeys, row_ids: Sequence[str]) -> frozenset[str]:
        """Return those of the rows that are in the deletion ledger."""
        found: set[str] = set()
        for start in range(0, len(row_ids), CHUNK):
            chunk = row_ids[start : start + CHUNK]
            with reachable(self._client):
                versions = self._client.hmget(where.ledger, list(chunk))
            found |= {row for row, v in zip(chunk, versions, strict=True) if v is not None}
        return frozenset(found)

    # -- steps 5 and 6 ------------------------------------------------------------------------

    def commit(self, commit: Commit, committed: Moment = pass_by) -> int:
        """Commit (steps 5 and 6), and return the new commit_seq once it is on disk.

        ``committed`` is called once the script has answered, before the commit is on disk.

        Raises
        ------
        CommitConflict
            The state is not what was loaded; nothing was written.
        CorruptState
            What is stored does not fit together; nothing was written.
        StoreUnavailable
            No answer: the commit may or may not have happened. Read, never retry.
        NotDurable
            The commit happened, but is not on disk: publish nothing, read again.
        """
        names, arguments = commit.call()
        with reachable(self._client):
            answer = self._script(keys=names, args=arguments, client=self._writer)
            if answer[0] != b"OK":
                raise _refused(commit, *(text(part) for part in answer))
            committed()
            self._barrier.wait(self._writer)
        return int(answer[1])

    def settle(self) -> None:
        """Return once all earlier commits, whoever made them, are on disk (step 6 at takeover).

        Raises
        ------
        NotDurable
            They are not: publish nothing.
        """
        with reachable(self._client):
            self._barrier.settle(self._writer)


def _refused(commit: Commit, kind: str, what: str, found: str) -> LetheError:
    """Return the error that a refusal of the script is."""
    if kind == "CORRUPT":
        return CorruptState(
            f"{commit.keys.tag}: {what} is {found}, which does not go with the state at commit "
            f"{commit.expected.commit_seq}: the store lost writes, or was restored in part. "
            "Restore the whole of it"
        )
    return CommitConflict(
        f"{commit.keys.tag}: {what} is {found or 'absent'}, not what was loaded; "
        "another worker has committed"
    )
