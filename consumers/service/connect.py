"""Wiring: from settings to a store, a log and workers. The only place that knows them all."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING

import redis
from threadpoolctl import threadpool_limits

from lethe.consumers.contract import topics
from lethe.consumers.contract.sealing import SealKeys, check_opens, read_seal_keys, stored_seal_keys
from lethe.consumers.contract.signatures import Signer, TrustedKeys
from lethe.consumers.contract.signed_log import SignedLog
from lethe.consumers.log.base import Log
from lethe.consumers.log.streams.log import StreamsLog
from lethe.consumers.service.credentials import store_access
from lethe.consumers.service.embedded_valkey import EmbeddedValkey
from lethe.consumers.service.kafka_client import kafka_log
from lethe.consumers.service.settings import Settings
from lethe.consumers.service.signing_keys import signer_for_publishing, trusted_keys
from lethe.engine.errors import InvalidData
from lethe.engine.store.connection import Barrier, NoBarrier, connect, reachable, text
from lethe.engine.store.former import refuse_former_state
from lethe.engine.store.keys import BOUND_LOG
from lethe.engine.store.membership import never_members
from lethe.engine.store.model_names import registered
from lethe.engine.store.row_keys import RowKeys

if TYPE_CHECKING:
    from lethe.engine.store.store import ModelStore


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
            It can lose acknowledged writes, it holds the log as well, and ``durability`` is
            ``required``.
        FormatTooOld
            It holds models of an older Lethe.
        InvalidData
            Its models are published to another kind of log.
        """
        from lethe.engine.store.store import ModelStore  # noqa: PLC0415 - SciPy takes a while

        # More than one BLAS thread costs 10 to 100 times on the small kernels of a deletion.
        self._stack.enter_context(threadpool_limits(1))
        client = self._client()
        # With Kafka, the store is a view of the log, which may lose its last writes.
        barrier = _barrier(self.settings, client, required=self.log.name != "kafka")
        store = ModelStore(client, barrier, self._row_keys(client))
        self._stack.callback(store.close)
        return store

    def models(self) -> list[str]:
        """Return the ids of the registered models, without loading what computes on them.

        Raises
        ------
        StoreUnavailable, NotDurable, FormatTooOld, InvalidData
            As `store`.
        """
        return registered(self._light_client())

    def never_members(self, model_id: str, row_ids: Sequence[str]) -> list[str]:
        """Return the rows that were never a model's; as `models`, and with its errors."""
        return never_members(self._light_client(), model_id, row_ids)

    def _light_client(self) -> redis.Redis:
        client = self._client()
        self._stack.callback(client.close)
        _barrier(self.settings, client, required=self.log.name != "kafka")
        return client

    def _client(self) -> redis.Redis:
        client = connect(self.redis_url, store_access(self.settings))
        refuse_former_state(client)
        self._check_log(client)
        return client

    def seals(self, store: ModelStore, *, make: bool = True, lost: bool = False) -> SealKeys:
        """Return what commits are sealed with: of a file, or of the store.

        With a file, the store's own secrets still open what they sealed before there was one.
        ``lost``: a person has said that what they do not open is given up.

        Raises
        ------
        InvalidData
            The file cannot be used; or the store has no secret, and ``make`` is False.
        KeyUnknown
            They do not open the newest commit of a model: whoever appends with them would halt it
            for all others.
        """
        path = self.settings.seal_key_file
        found = stored_seal_keys(store, make=make and path is None)
        if path is not None:
            of_file = read_seal_keys(path)
            found = of_file if found is None else of_file | found
        if found is None:
            raise InvalidData(
                "the store has no secret that commits are sealed with: no model was registered "
                "with it; or name it in LETHE_SEAL_KEY_FILE"
            )
        if not lost:
            check_opens(store, found)
        return found

    def signer(self) -> Callable[[], Signer | None]:
        """Return what says who signs commits."""
        return lambda: signer_for_publishing(self.settings)

    def trusted(self) -> TrustedKeys | None:
        """Return the keys that must have signed what is read; None: it is not asked for."""
        return trusted_keys(self.settings)

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
        self._check_log(store.client)
        self.log.ensure_topics(topics.specs(self.settings.partitions))

    def _check_log(self, client: redis.Redis) -> None:
        """Refuse another log: a model's history would begin there in the middle."""
        with reachable(client):
            bound = client.get(BOUND_LOG)
        if bound is not None and text(bound) != self.log.name:
            raise InvalidData(
                f"this store's models are published to {_LOG_NAMES[text(bound)]}, not to "
                f"{_LOG_NAMES[self.log.name]}; name the same log as before, or use another "
                "--data-dir or --redis"
            )


def _barrier(settings: Settings, client: redis.Redis, *, required: bool) -> Barrier:
    if settings.durability == "relaxed":
        return NoBarrier()
    return Barrier(client, required=required)


_LOG_NAMES = {"kafka": "Kafka (--kafka)", "streams": "Redis Streams (no --kafka)"}


@contextmanager
def open_runtime(settings: Settings) -> Iterator[Runtime]:
    """Open what the settings name: an embedded Valkey if no store is named, and a log.

    Raises
    ------
    StoreUnavailable, LogUnavailable
        A server cannot be reached.
    """
    with ExitStack() as stack:
        if settings.redis_url is not None:
            url = settings.redis_url.get_secret_value()
        else:
            url = stack.enter_context(
                EmbeddedValkey(settings.data_dir, settings.embedded_linger)
            ).url
        log: Log
        if settings.kafka_bootstrap_servers is not None:
            log = kafka_log(settings, f"lethe-{socket.gethostname()}-{os.getpid()}")
        else:
            client = connect(url, store_access(settings))
            stack.callback(client.close)
            log = StreamsLog(client, barrier=partial(_barrier, settings, required=True))
        stack.callback(log.close)
        signed = SignedLog(log, lambda: signer_for_publishing(settings))
        yield Runtime(settings, signed, url, stack)
