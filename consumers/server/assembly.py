"""The whole application of one process: the API, the console, OpenDSR, and what they use."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from fastapi import FastAPI

from lethe.consumers.server.app import create_app
from lethe.consumers.server.console.install import console_on, install
from lethe.consumers.server.guard import Access
from lethe.consumers.server.opendsr.opened import opendsr_on
from lethe.consumers.server.services import open_published, open_services
from lethe.consumers.service.connect import Runtime


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
    with (
        open_published(runtime) as published,
        open_services(runtime, published, stop) as services,
    ):
        app = create_app(services, access)
        install(app, console_on(services, published, access.keys))
        with opendsr_on(app, services, settings.opendsr, runtime.signer()()):
            yield app
