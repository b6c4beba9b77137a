"""The HTTP API in a thread of a test, on a port of its own: for what only real connections show."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from fastapi import FastAPI

from lethe.consumers.contract.sealing import SealKeys
from lethe.consumers.contract.signatures import TrustedKeys
from lethe.consumers.server.app import create_app
from lethe.consumers.server.guard import Access
from lethe.consumers.server.index.published import followed
from lethe.consumers.server.index.schema import IndexFile
from lethe.consumers.server.services import Services, services_on
from lethe.consumers.server.serving import listen, server_of
from tests.support.platform import Platform

_START_SECONDS = 120.0


@contextmanager
def services_of(
    platform: Platform,
    directory: Path,
    trusted: TrustedKeys | None = None,
    seals: SealKeys | None = None,
) -> Iterator[Services]:
    """Open what the routes use beside a platform's workers; the index lies in ``directory``."""
    with ExitStack() as stack:
        store = platform.new_store()
        stack.callback(store.close)
        file = IndexFile(directory)
        published = stack.enter_context(followed(file, platform.log, store, trusted))
        stop = threading.Event()
        yield stack.enter_context(
            services_on(platform.log, store, published, stop, seals=lambda: seals)
        )


@dataclass(frozen=True)
class Served:
    """A server that runs: its port, and what sets its end."""

    port: int
    services: Services

    @property
    def url(self) -> str:
        """The address before the path."""
        return f"http://127.0.0.1:{self.port}"


@contextmanager
def served(
    services: Services, access: Access | None = None, app: FastAPI | None = None
) -> Iterator[Served]:
    """Serve an application until the block ends."""
    with listen("127.0.0.1", 0) as listening:
        server = server_of(app or create_app(services, access), services.stop)
        thread = threading.Thread(target=server.run, args=([listening],), name="server")
        thread.start()
        end = time.monotonic() + _START_SECONDS
        while not server.started and time.monotonic() < end:
            time.sleep(0.01)
        try:
            yield Served(listening.getsockname()[1], services)
        finally:
            services.stop.set()
            server.should_exit = True
            thread.join()
