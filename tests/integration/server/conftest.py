"""The application beside a platform's workers."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest
from fastapi.testclient import TestClient

from lethe.consumers.server.app import create_app
from lethe.consumers.server.services import services_on
from tests.support.platform import Platform


@pytest.fixture
def client_of() -> Iterator[Callable[[Platform], TestClient]]:
    """Make clients of an application on a platform's log and store; they end with the test."""
    with ExitStack() as stack:

        def make(platform: Platform) -> TestClient:
            store = platform.new_store()
            stack.callback(store.close)
            services = stack.enter_context(services_on(platform.log, store, threading.Event()))
            client = TestClient(create_app(services), raise_server_exceptions=False)
            return stack.enter_context(client)

        yield make
