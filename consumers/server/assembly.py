"""The whole application of one process: the API, the console, OpenDSR, and what they use."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from fastapi import FastAPI

from lethe.consumers.contract.sealing import SealKeys
from lethe.consumers.server.app import create_app
from lethe.consumers.server.console.install import Console, install
from lethe.consumers.server.guard import Access
from lethe.consumers.server.index.published import followed
from lethe.consumers.server.index.schema import IndexFile
from lethe.consumers.server.opendsr.opened import opendsr_on
from lethe.consumers.server.services import services_on
from lethe.consumers.service.configuration.signing_keys import existing_signer, request_signer
from lethe.consumers.service.connect import Runtime
from lethe.engine.errors import LetheError
from lethe.engine.store.store import ModelStore


@contextmanager
def application_on(runtime: Runtime, access: Access, stop: threading.Event) -> Iterator[FastAPI]:
    """Open the application; ``stop`` ends its streams and threads.

    Raises
    ------
    StoreUnavailable, LogUnavailable
        A server cannot be reached.
    InvalidData
        A setting cannot be used.
    """
    settings = runtime.settings
    signer, file = request_signer(settings), IndexFile(settings.data_dir)
    runtime.ensure_topics()
    store = runtime.store()
    with (
        followed(file, runtime.log, runtime.store(), runtime.trusted()) as published,
        services_on(
            runtime.log,
            store,
            published,
            stop,
            signer,
            lambda: runtime.seals_if_there(store),
            lambda: existing_signer(settings),
        ) as services,
    ):
        app = create_app(services, access)
        console = Console(
            services,
            published.file,
            published.follower,
            access.keys,
            settings.erasure_days,
            lambda: _seals(runtime, services.store),
        )
        install(app, console)
        with opendsr_on(app, services, settings.opendsr, runtime.signer()()):
            yield app


def _seals(runtime: Runtime, store: ModelStore) -> SealKeys | None:
    """Return the keys that bind receipts to people, if this process has them: it needs none."""
    try:
        return runtime.seals(store, make=False, lost=True)  # it seals nothing
    except LetheError:
        return None
