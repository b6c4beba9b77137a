"""What routes use, and how it is opened: the log to write to, the store to read."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from typing import Annotated

from fastapi import Depends, Request

from lethe.consumers.contract.sealing import SealKeys
from lethe.consumers.contract.signatures import Signer
from lethe.consumers.log.base import Log
from lethe.consumers.server.appender import Appender
from lethe.consumers.server.feeds import Bell, Feeds
from lethe.consumers.server.index.published import IndexPublished
from lethe.consumers.server.outcomes import Outcomes, RecentRequests
from lethe.engine.store.membership import registered_models
from lethe.engine.store.store import ModelStore

MODELS_SECONDS = 1.0
"""How long the list of registered models may be old when a model is missing from it: a client that
asks for unknown models must not load the store."""


class Models:
    """The ids of the registered models, looked up again when one is missing; for any thread."""

    def __init__(self, read: Callable[[], list[str]]) -> None:
        self._read = read
        self._known: frozenset[str] = frozenset()
        self._read_at = float("-inf")
        self._lock = threading.Lock()

    def has(self, model_id: str) -> bool:
        """Return whether a model is known already; if it is not, the store may (`look_up`)."""
        return model_id in self._known

    def look_up(self, model_id: str) -> bool:
        """Return whether a model is registered; blocks."""
        return model_id in self._known or model_id in self.registered()

    def registered(self) -> frozenset[str]:
        """Return the ids of the registered models, at most a second old; blocks."""
        with self._lock:
            if time.monotonic() - self._read_at > MODELS_SECONDS:
                self._known = frozenset(self._read())
                self._read_at = time.monotonic()
            return self._known


@dataclass(frozen=True, slots=True)
class Services:
    """What routes use.

    Attributes
    ----------
    log, store
        Where requests go, and where the models' states are. The store's client is for any thread.
    appender
        Appends requests to the log.
    outcomes
        What became of requests.
    published
        Receipts and versions, as the topics have them.
    bell, feeds
        Wake whoever waits for something to be published; new versions of each model.
    models
        Which models there are.
    signer
        Signs requests, where workers accept signed requests only (`request_signing_key`).
    proof_signer
        Returns the key that signs events here, if there is one: it also signs tree heads.
    stop
        Set when the server ends: streams that never end by themselves watch it.
    recent
        What was sent lately.
    """

    log: Log
    store: ModelStore
    appender: Appender
    outcomes: Outcomes
    published: IndexPublished
    bell: Bell
    feeds: Feeds
    models: Models
    signer: Signer | None
    proof_signer: Callable[[], Signer | None]
    stop: threading.Event
    recent: RecentRequests = field(default_factory=RecentRequests)


@contextmanager
def services_on(
    log: Log,
    store: ModelStore,
    published: IndexPublished,
    stop: threading.Event,
    signer: Signer | None = None,
    seals: Callable[[], SealKeys | None] = lambda: None,
    proof_signer: Callable[[], Signer | None] = lambda: None,
) -> Iterator[Services]:
    """Open what the routes use on a log that has its topics, and a store.

    ``seals``: as `Outcomes` has it. ``proof_signer``: as `Services` has it.
    """
    bell = Bell(published, stop)
    with closing(log.reader()) as reader:
        outcomes = Outcomes(store, reader, published, seals)
        with Appender(log.producer, outcomes.conflicts) as appender, bell.ringing():
            yield Services(
                log,
                store,
                appender,
                outcomes,
                published,
                bell,
                Feeds(published, bell),
                Models(lambda: registered_models(store.client)),
                signer,
                proof_signer,
                stop,
            )


async def services_of(request: Request) -> Services:
    """Return the services of the application that answers a request."""
    services: Services = request.app.state.services
    return services


ServicesOf = Annotated[Services, Depends(services_of)]
"""A parameter of a route."""
