"""`ModelSubscriber`: verified parameters, the newest first and then live, for predicting.

with ModelSubscriber.connect(kafka="broker:9092") as models:
    for version in models.follow("churn"):
        version.predict(X)

It only reads: no consumer group, no offsets, no writes. docs/chain.md says what is checked.
"""

from __future__ import annotations

import os
import socket
import threading
import time
from collections.abc import Generator, Iterator
from contextlib import ExitStack
from typing import Self

import redis

from lethe.consumers.contract.events import Version
from lethe.consumers.contract.signatures import TrustedKeys
from lethe.consumers.log.base import Log, Reader
from lethe.consumers.log.streams.log import StreamsLog
from lethe.consumers.service.configuration.credentials import store_access
from lethe.consumers.service.configuration.settings import load_settings
from lethe.consumers.service.configuration.signing_keys import trusted_keys as read_trusted_keys
from lethe.consumers.service.embedded_valkey import EmbeddedValkey
from lethe.consumers.service.kafka_client import kafka_log
from lethe.consumers.service.telemetry.logs import logger
from lethe.consumers.subscriber.history import LIVE_SECONDS, HistoryReader, Known
from lethe.consumers.subscriber.model_version import ModelVersion
from lethe.consumers.subscriber.parameters import ParametersReader, StoredParameters
from lethe.engine.errors import StoreUnavailable, Unavailable, UnknownModel
from lethe.engine.store.server.connection import connect, reachable, refuse_cluster_node

RETRY_SECONDS = 0.5
"""Pause before looking again for parameters that are not where their version says."""

STORE_SECONDS = 10.0
"""How long the store may be down or behind before a subscriber that needs it gives up."""


class ModelSubscriber:
    """Follows models; use it in a ``with`` statement and from any number of threads.

    Parameters
    ----------
    log
        The log that versions and parameters are published on.
    store
        A client of the workers' store, for parameters that the topic does not hold. Models whose
        parameters fit an event (about 40,000 numbers) need none.
    trusted
        The keys that must have signed what is yielded; None: signatures are not checked.
    """

    def __init__(
        self, log: Log, store: redis.Redis | None = None, trusted: TrustedKeys | None = None
    ) -> None:
        self._log = log
        self._trusted = trusted
        self._store = None if store is None else StoredParameters(store)
        self._stack = ExitStack()

    @classmethod
    def connect(
        cls,
        *,
        kafka: str | None = None,
        redis: str | None = None,
        data_dir: str | os.PathLike[str] | None = None,
        trusted_keys: str | os.PathLike[str] | None = None,
    ) -> Self:
        """Connect to the servers named here or in the environment (``LETHE_*``).

        Without Kafka, Redis Streams are the log; without Redis too, those of the embedded Valkey on
        the data directory. ``trusted_keys`` names a file of public keys: everything that is yielded
        is then signed by one of them.

        Raises
        ------
        LogUnavailable, StoreUnavailable
            A server cannot be reached.
        InvalidData
            A setting cannot be used.
        """
        settings = load_settings(
            {
                "kafka_bootstrap_servers": kafka,
                "redis_url": redis,
                "data_dir": data_dir,
                "trusted_keys": trusted_keys,
            }
        )
        trusted = read_trusted_keys(settings)
        with ExitStack() as stack:
            url = None if settings.redis_url is None else settings.redis_url.get_secret_value()
            if url is None and settings.kafka_bootstrap_servers is None:
                url = stack.enter_context(
                    EmbeddedValkey(settings.data_dir, settings.embedded_linger)
                ).url
            store = None if url is None else connect(url, store_access(settings))
            if store is not None:
                stack.callback(store.close)
                refuse_cluster_node(store)
                with reachable(store):
                    store.ping()
            log: Log
            if settings.kafka_bootstrap_servers is not None:
                client_id = f"lethe-subscriber-{socket.gethostname()}-{os.getpid()}"
                log = kafka_log(settings, client_id)
                log.ping()
            else:
                assert store is not None  # noqa: S101 (mypy: no Kafka, so a store was opened)
                log = StreamsLog(store)
            stack.callback(log.close)
            connected = cls(log, store, trusted)
            connected._stack = stack.pop_all()
            return connected

    def __enter__(self) -> Self:
        """Return the subscriber, which is connected already."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close the subscriber."""
        self.close()

    def close(self) -> None:
        """Close the connections; iterators that still run will fail."""
        self._stack.close()

    def follow(
        self,
        model_id: str,
        *,
        from_version: int | None = None,
        timeout: float | None = None,
        stop: threading.Event | None = None,
        known: Known | None = None,
    ) -> Generator[ModelVersion, None, None]:
        """Yield the newest verified parameters, then each new version's.

        Every link of the history is checked, from version 0 on and before anything is yielded.
        Versions whose parameters are gone (compaction keeps the newest) are checked and skipped.
        If the model is not registered yet, the iterator waits for it.

        Parameters
        ----------
        model_id
            The model.
        from_version
            Yield every version from this number on whose parameters are still there, instead of
            beginning with the newest. Such a version is yielded once the history up to it is
            checked; later versions are checked afterwards.
        timeout
            End when no new version came for this many seconds; None: never.
        stop
            End when this is set, within about a second.
        known
            ``(version, digest)`` that this program has seen before (`ModelVersion.known`). A
            history without it was rolled back. Nothing before it is yielded.

        Raises
        ------
        BrokenChain
            A version was altered, removed, rolled back or forked; it is not yielded.
        InvalidData
            The parameters are in the store, and no store is configured.
        LogUnavailable, StoreUnavailable
            A server is down; follow again, with ``known``.
        LogReset
            The topic of versions was deleted or lost its end.
        """
        with self._follower(model_id, known) as follower:
            yield from follower.run(from_version, timeout, stop)

    def latest(
        self, model_id: str, *, timeout: float = STORE_SECONDS, known: Known | None = None
    ) -> ModelVersion:
        """Return the newest verified parameters.

        Raises
        ------
        UnknownModel
            No version of the model was ever published.
        Unavailable
            The newest version's parameters were not available within ``timeout`` seconds.
        BrokenChain, InvalidData, LogUnavailable, StoreUnavailable, LogReset
            As in `follow`.
        """
        with self._follower(model_id, known) as follower:
            tip = follower.catch_up()
            if tip is None:
                raise UnknownModel(
                    f"no version of model {model_id!r} was published; register the model first"
                )
            for version in follower.run(None, timeout, None):
                return version
        raise Unavailable(
            f"model {model_id!r}: the parameters of version {tip.version} are not on the topic; "
            "connect to the workers' store as well, or wait for the next version"
        )

    def _follower(self, model_id: str, known: Known | None) -> _Follower:
        return _Follower(self._log, self._store, model_id, known, self._trusted)


class _Follower:
    """One iteration of `ModelSubscriber.follow`, with connections of its own."""

    def __init__(
        self,
        log: Log,
        store: StoredParameters | None,
        model_id: str,
        known: Known | None,
        trusted: TrustedKeys | None,
    ) -> None:
        self._trusted = trusted
        self._readers: list[Reader] = []
        self._log = log
        self._store = store
        self._model_id = model_id
        self._known = known
        self._logger = logger("subscriber")
        self._wanted: Version | None = None
        self._next_try = 0.0
        self._store_down_since: float | None = None

    def __enter__(self) -> Self:
        # Two readers, so that each keeps its position and never has to seek.
        with ExitStack() as stack:
            for _ in range(2):
                reader = self._log.reader()
                stack.callback(reader.close)
                self._readers.append(reader)
            self._history = HistoryReader(
                self._readers[0], self._model_id, self._known, self._trusted
            )
            self._parameters = ParametersReader(
                self._readers[1],
                self._model_id,
                self._store,
                None if self._trusted is None else (self._trusted, self._history.must_be_signed),
            )
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def catch_up(self) -> Version | None:
        """Check the history to its end and return its last version."""
        while not self._history.caught_up:
            self._history.advance(LIVE_SECONDS)
        return self._history.tip

    def run(
        self, from_version: int | None, timeout: float | None, stop: threading.Event | None
    ) -> Iterator[ModelVersion]:
        """Yield verified parameters as `ModelSubscriber.follow` says."""
        first = 0 if from_version is None else from_version
        if self._known is not None:
            first = max(first, self._known[0])
        if self._history.caught_up and self._history.tip is not None:
            self._wanted = self._history.tip
        since = time.monotonic()
        while stop is None or not stop.is_set():
            was_caught_up = self._history.caught_up
            untried = self._wanted is not None and self._next_try == 0.0
            new = self._history.advance(0.0 if untried else LIVE_SECONDS)
            if from_version is None and not (was_caught_up and self._history.caught_up):
                # Of the versions that were there, only the newest is yielded; the rest is checked.
                new = new[-1:]
                if not self._history.caught_up:
                    self._wanted = new[0] if new else self._wanted
                    continue
            for version in self._parameters_of([v for v in new if v.version >= first]):
                yield version
                since = time.monotonic()
            idle = time.monotonic() - since
            if timeout is not None and self._history.caught_up and idle >= timeout:
                return

    def _parameters_of(self, versions: list[Version]) -> Iterator[ModelVersion]:
        """Yield the parameters of new versions, or of the newest one that still lacks them."""
        for version in versions:
            self._wanted = version
            self._next_try = 0.0
            loaded = self._find(version)
            if loaded is not None:
                self._wanted = None
                yield loaded
        if self._wanted is not None and time.monotonic() >= self._next_try:
            loaded = self._find(self._wanted, in_store=True)
            if loaded is not None:
                self._wanted = None
                yield loaded

    def _find(self, version: Version, *, in_store: bool = False) -> ModelVersion | None:
        try:
            loaded = self._parameters.find(version)
            if loaded is None and in_store and version is self._history.tip:
                if self._next_try == 0.0:
                    self._logger.info(
                        "parameters not on the topic",
                        action="find_parameters",
                        model_id=self._model_id,
                        version=version.version,
                    )
                self._next_try = time.monotonic() + RETRY_SECONDS
                loaded = self._parameters.find_stored(version)
        except StoreUnavailable:
            now = time.monotonic()
            self._next_try = now + RETRY_SECONDS
            self._store_down_since = self._store_down_since or now
            if now - self._store_down_since >= STORE_SECONDS:
                raise
            return None
        if loaded is not None:
            self._store_down_since = None
        return loaded
