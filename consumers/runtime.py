"""Wiring: from settings to a store, a log and workers. The only place that knows them all."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from functools import partial

import redis
from threadpoolctl import threadpool_limits

from consumers import topics
from consumers.access import kafka_access, store_access
from consumers.embedded import EmbeddedValkey
from consumers.keys import signer_for_publishing
from consumers.log.base import Log
from consumers.log.streams import StreamsLog
from consumers.settings import Settings
from consumers.signed_log import SignedLog
from engine.errors import InvalidData
from engine.store.connection import Barrier, connect, reachable, text
from engine.store.keys import BOUND_LOG
from engine.store.row_keys import RowKeys
from engine.store.store import ModelStore


@dataclass(frozen=True, slots=True)
class Runtime:
    """A log and where the store is. Each thread opens its own store."""

    settings: Settings
    log: Log
    redis_url: str
    _stack: ExitStack

    def store(self) -> ModelStore:
        """Return a store with its own connections; closed with the runtime.

        Raises
        ------
        StoreUnavailable
            It cannot be reached.
        NotDurable
            It can lose acknowledged writes, and ``durability`` is ``required``.
        InvalidData
            Its models are published to another kind of log.
        """
        client = connect(self.redis_url, store_access(self.settings))
        barrier = Barrier(
            client,
            relaxed=self.settings.durability == "relaxed",
            replicas=self.settings.replicas,
        )
        store = ModelStore(client, barrier, self._row_keys(client))
        self._stack.callback(store.close)
        self._check_log(store)
        return store

    def _row_keys(self, client: redis.Redis) -> RowKeys | None:
        """Connect to the store of row keys, if there is one; it must not be the store itself."""
        named = self.settings.row_keys_url
        if named is None:
            return None
        files = replace(store_access(self.settings), password=None)
        keys = connect(named.get_secret_value(), files)
        found = RowKeys(keys, relaxed=self.settings.durability == "relaxed")
        if found.is_on(client):
            found.close()
            raise InvalidData(
                "LETHE_ROW_KEYS_URL names the store itself: a backup of it would have rows and "
                "keys together. Name another server, which is in no backup"
            )
        return found

    def ensure_topics(self) -> None:
        """Create the topics that are missing; from now on the store belongs to this log."""
        store = self.store()
        with reachable(store.client):
            if store.client.get(BOUND_LOG) is None:  # not every role may write it
                store.client.set(BOUND_LOG, self.log.name, nx=True)
        self._check_log(store)
        self.log.ensure_topics(topics.specs(self.settings.partitions))

    def _check_log(self, store: ModelStore) -> None:
        """Refuse another log: a model's history would begin there in the middle."""
        with reachable(store.client):
            bound = store.client.get(BOUND_LOG)
        if bound is not None and text(bound) != self.log.name:
            raise InvalidData(
                f"this store's models are published to {_LOG_NAMES[text(bound)]}, not to "
                f"{_LOG_NAMES[self.log.name]}; name the same log as before, or use another "
                "--data-dir or --redis"
            )


_LOG_NAMES = {"kafka": "Kafka (--kafka)", "streams": "Redis Streams (no --kafka)"}


@contextmanager
def open_runtime(settings: Settings) -> Iterator[Runtime]:
    """Open what the settings name: an embedded Valkey if no store is named, and a log.

    Raises
    ------
    StoreUnavailable, LogUnavailable
        A server cannot be reached.
    """
    # More than one BLAS thread costs 10 to 100 times on the small kernels of a deletion.
    with ExitStack() as stack, threadpool_limits(1):
        if settings.redis_url is not None:
            url = settings.redis_url.get_secret_value()
        else:
            url = stack.enter_context(EmbeddedValkey(settings.data_dir)).url
        log: Log
        if settings.kafka_bootstrap_servers is not None:
            from consumers.log.kafka import KafkaLog  # noqa: PLC0415 - 0.2 s that streams do not need

            client_id = f"lethe-{socket.gethostname()}-{os.getpid()}"
            log = KafkaLog(
                settings.kafka_bootstrap_servers,
                client_id=client_id,
                extra=kafka_access(settings),
            )
        else:
            client = connect(url, store_access(settings))
            stack.callback(client.close)
            relaxed = settings.durability == "relaxed"
            barrier = partial(Barrier, relaxed=relaxed, replicas=settings.replicas)
            log = StreamsLog(client, barrier=barrier)
        stack.callback(log.close)
        signed = SignedLog(log, lambda: signer_for_publishing(settings))
        yield Runtime(settings, signed, url, stack)
