"""Wiring: from settings to a store, a log and workers. The only module that knows them all."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager, suppress
from dataclasses import dataclass, field, replace
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
from lethe.consumers.passes.dask_cluster import DaskWorkers
from lethe.consumers.passes.spark import SparkWorkers
from lethe.consumers.service.configuration.credentials import store_access
from lethe.consumers.service.configuration.settings import Settings
from lethe.consumers.service.configuration.signing_keys import signer_for_publishing, trusted_keys
from lethe.consumers.service.embedded_valkey import EmbeddedValkey
from lethe.consumers.service.kafka_client import kafka_log
from lethe.consumers.service.topic_watch import ensure_known
from lethe.engine.errors import InvalidData, LetheError
from lethe.engine.store.layout.keys import BOUND_LOG
from lethe.engine.store.membership import never_members, refuse_former_state, registered_models
from lethe.engine.store.server.barrier import Barrier, NoBarrier
from lethe.engine.store.server.connection import connect, reachable, refuse_cluster_node, text
from lethe.engine.store.server.row_keys import RowKeys
from lethe.engine.store.topics import KnownTopics

if TYPE_CHECKING:
    from lethe.engine.rowstore.passes import Workers
    from lethe.engine.store.store import ModelStore


@dataclass(frozen=True, slots=True)
class Runtime:
    """A log and the address of the store. Each thread opens its own store."""

    settings: Settings
    log: Log
    redis_url: str = field(repr=False)  # it can hold a password
    blas_threads: int
    _stack: ExitStack
    _workers: Workers | None = None

    def store(self) -> ModelStore:
        """Return a store with its own connections; it is closed with the runtime.

        Raises
        ------
        StoreUnavailable
            The store cannot be reached.
        NotDurable
            The store can lose acknowledged writes, it also holds the log, and ``durability`` is
            ``required``.
        FormatTooOld
            The store holds models of an older Lethe.
        InvalidData
            The store's models are published to another kind of log.
        """
        from lethe.engine.store.store import ModelStore  # noqa: PLC0415 - SciPy takes a while

        with ExitStack() as opening:  # a try that fails leaves nothing open: there may be thousands
            opening.enter_context(threadpool_limits(self.blas_threads))
            client, barrier = opening.enter_context(self._connected())
            row_keys = self._row_keys(client, opening)
            store = ModelStore(client, barrier, row_keys, self._workers)
            self._stack.enter_context(opening.pop_all())
        return store

    def client(self) -> redis.Redis:
        """Return a connection for what needs no model; closed with the runtime.

        Raises what `store` raises, and imports none of the numerical code.
        """
        client, _ = self._stack.enter_context(self._connected())
        return client

    def models(self) -> list[str]:
        """Return the ids of the registered models, without importing the numerical code.

        Raises
        ------
        StoreUnavailable, NotDurable, FormatTooOld, InvalidData
            As `store`.
        """
        with self._connected() as (client, _):
            return registered_models(client)

    def never_members(self, model_id: str, row_ids: Sequence[str]) -> list[str]:
        """Return the rows that were never members of a model; raises what `models` raises."""
        with self._connected() as (client, _), ExitStack() as opening:
            return never_members(client, model_id, row_ids, self._row_keys(client, opening))

    @contextmanager
    def _connected(self) -> Iterator[tuple[redis.Redis, Barrier]]:
        """Connect to the store, and check that it may be used with this log."""
        with closing(connect(self.redis_url, store_access(self.settings))) as client:
            refuse_cluster_node(client)
            refuse_former_state(client)
            self._check_log(client)
            # With Kafka, the store is a view of the log, which may lose its last writes.
            yield client, _barrier(self.settings, client, required=self.log.name != "kafka")

    def seals(self, store: ModelStore, *, make: bool = True, lost: bool = False) -> SealKeys:
        """Return the keys that seal commits, from the file or from the store.

        With a file, the store's own secrets still open commits sealed before the file was named.
        ``lost``: the operator has accepted that commits sealed with other keys stay unreadable.

        Raises
        ------
        InvalidData
            The file cannot be used; or the store has no secret, and ``make`` is False.
        KeyUnknown
            The keys do not open the newest commit of a model: appending with them would halt it
            for all other workers.
        """
        path = self.settings.seal_key_file
        keys = stored_seal_keys(store, make=make and path is None)
        if path is not None:
            file_keys = read_seal_keys(path)
            keys = file_keys if keys is None else file_keys | keys
        if keys is None:
            raise InvalidData(
                "the store has no seal key: either no model was registered with it, or the seal "
                "keys are in a file: name it in LETHE_SEAL_KEY_FILE"
            )
        if not lost:
            check_opens(store, keys)
        return keys

    def seals_if_there(self, store: ModelStore) -> SealKeys | None:
        """Return the seal keys to compare with, None where this process has no right to them."""
        with suppress(LetheError):
            return self.seals(store, make=False, lost=True)
        return None

    def signer(self) -> Callable[[], Signer | None]:
        """Return a function that returns the signer for published events."""
        return lambda: signer_for_publishing(self.settings)

    def trusted(self) -> TrustedKeys | None:
        """Return the keys that may sign the events read; None: signatures are not required."""
        return trusted_keys(self.settings)

    def _row_keys(self, client: redis.Redis, opening: ExitStack) -> RowKeys | None:
        """Connect to the store of row keys, if there is one; it must not be the store itself."""
        url = self.settings.row_keys_url
        if url is None:
            return None
        files = replace(store_access(self.settings), password=None)
        key_client = opening.enter_context(closing(connect(url.get_secret_value(), files)))
        relaxed = self.settings.durability == "relaxed"
        row_keys = opening.enter_context(closing(RowKeys(key_client, relaxed=relaxed)))
        if row_keys.is_on(client):
            raise InvalidData(
                "LETHE_ROW_KEYS_URL names the store itself: its backups would hold rows and keys "
                "together. Name another server, one that is not backed up"
            )
        return row_keys

    def ensure_topics(self, accepting: Collection[str] = ()) -> None:
        """Create the missing topics; from now on the store is bound to this log and to them.

        ``accepting``: topics that may be others than those that the store knows.

        Raises
        ------
        LogReset
            Another topic that the store knows is gone, was made again, or has fewer partitions.
        """
        with self._connected() as (client, _):
            with reachable(client):
                if client.get(BOUND_LOG) is None:  # some roles may not write it
                    client.set(BOUND_LOG, self.log.name, nx=True)
            self._check_log(client)
            specs = topics.specs(self.settings.partitions)
            ensure_known(self.log, KnownTopics(client), specs, accepting)

    def _check_log(self, client: redis.Redis) -> None:
        """Refuse another log: a model's history would begin there half-way through."""
        with reachable(client):
            bound = client.get(BOUND_LOG)
        if bound is not None and text(bound) != self.log.name:
            raise InvalidData(
                f"this store's log is {_LOG_NAMES[text(bound)]}, not {_LOG_NAMES[self.log.name]}; "
                f"{_NAME_LOG[text(bound)]}, or use another --data-dir or --redis"
            )


def _barrier(settings: Settings, client: redis.Redis, *, required: bool) -> Barrier:
    if settings.durability == "relaxed":
        return NoBarrier()
    return Barrier(client, required=required)


def _workers(settings: Settings, stack: ExitStack) -> Workers | None:
    """Return what computes passes over rows in files; None: the process that needs them."""
    address, processes, master = (
        settings.dask_address, settings.dask_workers, settings.spark_master
    )  # fmt: skip
    if (given := sum(one is not None for one in (address, processes, master))) > 1:
        raise InvalidData(
            "LETHE_DASK_ADDRESS (--dask) names a cluster, LETHE_DASK_WORKERS (--workers) processes "
            "of this machine, and LETHE_SPARK_MASTER (--spark) Spark: give one of them"
        )
    if not given:
        return None
    workers = DaskWorkers(address, processes or 1) if master is None else SparkWorkers(master)
    stack.callback(workers.close)
    return workers


_LOG_NAMES = {"kafka": "Kafka", "streams": "Redis Streams"}
_NAME_LOG = {
    "kafka": "give --kafka (LETHE_KAFKA_BOOTSTRAP_SERVERS)",
    "streams": "leave out --kafka and unset LETHE_KAFKA_BOOTSTRAP_SERVERS",
}


@contextmanager
def open_runtime(settings: Settings, *, blas_threads: int = 1) -> Iterator[Runtime]:
    """Open the servers in the settings: a log, and an embedded Valkey if no store is named.

    Raises
    ------
    StoreUnavailable, LogUnavailable
        A server cannot be reached.

    Notes
    -----
    More than one of ``blas_threads`` costs 10 to 100 times on the small kernels of a deletion; a
    process that only refreshes may have more. `Runtime.store` sets them, once BLAS is loaded.
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
        yield Runtime(settings, signed, url, blas_threads, stack, _workers(settings, stack))
