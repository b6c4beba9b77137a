"""Row records encrypted at rest: a key for each, in a store that no backup includes.

A record of codec `SEALED` is ``codec (1 byte) | nonce (12) | AES-256-GCM of the record``. Each
record has its own random key, in another Redis or Valkey; the associated data name model,
generation and row, so that no record can stand in for another. When a row is erased, its key is
dropped (`consumers.commits.shred` says when): every copy of the record, in replicas, backups and
freed blocks, is noise from then on.

Files of rows have a key each (`engine.store.server.sealed_files`).
"""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import redis
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from lethe.engine.errors import CorruptState, InvalidData, StoreUnavailable
from lethe.engine.store.layout.keys import SHARDS, GenerationKeys, by_shard, shard_of
from lethe.engine.store.server.barrier import Barrier, NoBarrier
from lethe.engine.store.server.cluster import Cluster, primaries
from lethe.engine.store.server.connection import Fields, reachable
from lethe.engine.store.server.pipeline import chunks, read_shards

SEALED = 2
"""The codec byte of an encrypted record; inside is one of codec 1."""

TIME_TO_LIVE = 7 * 3600
"""Seconds that the keys of a retired generation live."""

STAGED_TIME_TO_LIVE = 2 * TIME_TO_LIVE
"""Seconds that the keys of a staged generation live: longer than its records and `TIME_TO_LIVE`
together, so that as long as there are records, staged keys are told from retired ones."""

NONCE_BYTES = 12

SEALED_BYTES = 1 + NONCE_BYTES + 16
"""By how much a sealed record is longer than what is inside."""


@dataclass(frozen=True, slots=True)
class Opened:
    """Decrypted records, and the rows whose key is missing."""

    records: Mapping[str, bytes]
    shredded: frozenset[str]


class RowKeys:
    """The store of the keys; many threads may use an instance, which closes the client."""

    def __init__(self, client: redis.Redis, *, relaxed: bool = False) -> None:
        if isinstance(client, Cluster):
            raise InvalidData(
                "LETHE_ROW_KEYS_URL names a cluster: name one server (a row's key is 32 bytes)"
            )
        self._client = client
        with _named(), reachable(client):
            self._barrier = NoBarrier() if relaxed else Barrier(client, required=True)

    def close(self) -> None:
        """Close the connection."""
        self._client.close()

    def is_on(self, other: redis.Redis) -> bool:
        """Return whether another client is connected to the same server, or a cluster with it."""
        with _named(), reachable(self._client):
            own_info: Any = self._client.info("server")
        with reachable(other):
            others: list[Any] = [server.info("server") for server in primaries(other)]
        return any(own_info.get("run_id") == one.get("run_id") for one in others)

    def seal(self, where: GenerationKeys, records: Mapping[str, bytes]) -> dict[str, bytes]:
        """Return the records encrypted under new keys, which are on disk on return.

        The keys expire after `STAGED_TIME_TO_LIVE` unless `keep` is called.
        """
        sealed: dict[str, bytes] = {}
        keys: dict[str, bytes] = {}
        for row, record in records.items():
            key, nonce = AESGCM.generate_key(256), os.urandom(NONCE_BYTES)
            body = AESGCM(key).encrypt(nonce, record, _bound_to(where, row))
            sealed[row] = bytes([SEALED]) + nonce + body
            keys[row] = key
        with self._on_disk() as pipeline:
            for shard, rows in by_shard(keys).items():
                fields: Fields = {row: keys[row] for row in rows}
                pipeline.hset(where.row_keys(shard), mapping=fields)
                pipeline.expire(where.row_keys(shard), STAGED_TIME_TO_LIVE)
        return sealed

    def open(self, where: GenerationKeys, records: Mapping[str, bytes]) -> Opened:
        """Return the records, with the sealed ones decrypted.

        Raises
        ------
        CorruptState
            A record is not what was encrypted under its key.
        """
        opened = {row: record for row, record in records.items() if record[:1] != bytes([SEALED])}
        closed = [row for row in records if row not in opened]
        with _named():
            keys = read_shards(self._client, where.row_keys, closed)
        for row, key in keys.items():
            record = records[row]
            nonce, body = record[1 : 1 + NONCE_BYTES], record[1 + NONCE_BYTES :]
            try:
                opened[row] = AESGCM(key).decrypt(nonce, body, _bound_to(where, row))
            except (InvalidTag, ValueError):
                raise CorruptState(
                    f"model {where.model.model_id!r}: a row's record does not match its key in "
                    "LETHE_ROW_KEYS_URL; restore the store, or register the model again with "
                    "--replace"
                ) from None
        return Opened(opened, frozenset(row for row in closed if row not in keys))

    def keep(self, where: GenerationKeys) -> None:
        """Lift the time to live of a generation's keys, before the store makes it live.

        Those of a generation that was retired meanwhile go on to expire: whoever calls this may
        have been asleep since its commit.
        """
        names = [where.row_keys(shard) for shard in range(SHARDS)]

        def lift(pipeline: Any) -> None:
            staged = [name for name in names if pipeline.ttl(name) > TIME_TO_LIVE]
            pipeline.multi()
            for name in staged:
                pipeline.persist(name)

        with _named(), reachable(self._client):
            self._client.transaction(lift, *names)
            self._barrier.sync(self._client)

    def drop(self, where: GenerationKeys, rows: Sequence[str]) -> None:
        """Drop the keys of rows, for good; on return the disk's newest state is without them."""
        with self._on_disk(transaction=False) as pipeline:
            for row in rows:
                pipeline.hdel(where.row_keys(shard_of(row)), row)

    def retire_generation(self, where: GenerationKeys) -> None:
        """Let the keys of a former generation expire.

        Not at once: a failover that loses the swap makes it live again, until the next rebuild.
        """
        with self._on_disk() as pipeline:
            for shard in range(SHARDS):
                pipeline.expire(where.row_keys(shard), TIME_TO_LIVE)

    # -- files of rows ----------------------------------------------------------------------------

    def of_file(self, where: str, name: str) -> bytes | None:
        """Return the key of a file; ``where``: the hash of its folder's. None if there is none."""
        with _named(), reachable(self._client):
            key: Any = self._client.hget(where, name)
        return None if key is None else bytes(key)

    def of_files(self, where: str, keys: Mapping[str, bytes]) -> dict[str, bytes]:
        """Return the keys of files: those that are there already, and else these, from now on."""
        names = list(keys)
        with _named(), reachable(self._client):
            pipeline = self._client.pipeline(transaction=True)
            for name in names:
                pipeline.hsetnx(where, name, keys[name])
            pipeline.hmget(where, names)
            *_, there = pipeline.execute()
        return dict(zip(names, there, strict=True))

    def keep_files(self, where: str, keys: Mapping[str, bytes]) -> bool:
        """Return whether files have these keys, which are on disk then, or another wrote others."""
        kept = self.of_files(where, keys) == keys
        with _named(), reachable(self._client):
            self._barrier.sync(self._client)
        return kept

    def drop_files(self, where: str, names: Sequence[str]) -> None:
        """Drop the keys of files, as `drop`."""
        with self._on_disk(transaction=False) as pipeline:
            for chunk in chunks(names):
                pipeline.hdel(where, *chunk)

    def drop_folder(self, where: str) -> None:
        """Drop the keys of all files of a folder, as `drop`."""
        with self._on_disk() as pipeline:
            pipeline.unlink(where)

    # -- on disk ----------------------------------------------------------------------------------

    @contextmanager
    def _on_disk(self, *, transaction: bool = True) -> Iterator[Any]:
        """Give a pipeline; it is sent, and what it wrote is on disk, when the block ends."""
        with _named(), reachable(self._client):
            pipeline = self._client.pipeline(transaction=transaction)
            yield pipeline
            pipeline.execute()
            self._barrier.sync(self._client)


def _bound_to(where: GenerationKeys, row: str) -> bytes:
    # Neither a key nor a generation's name has a newline: model ids are percent-encoded in them.
    return f"lethe row record\n{where.fixed}\n{row}".encode()


def no_key(model_id: str, rows: Collection[str]) -> CorruptState:
    """Return the error of live rows whose records cannot be decrypted."""
    return CorruptState(
        f"model {model_id!r}: {len(rows)} live rows have an encrypted record and no key in "
        "LETHE_ROW_KEYS_URL: the store of keys lost writes, or is not the one that was used. "
        "Restore it, or register the model again with --replace"
    )


@contextmanager
def _named() -> Iterator[None]:
    """Say in an error that the unavailable store is that of the row keys."""
    try:
        yield
    except StoreUnavailable as error:
        message = str(error).replace("the store at", "the store of row keys at")
        raise StoreUnavailable(message.replace("LETHE_REDIS_URL", "LETHE_ROW_KEYS_URL")) from error
