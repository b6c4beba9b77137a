"""The application beside a platform's workers."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from fastapi.testclient import TestClient

from lethe.consumers.server.app import create_app
from tests.support.http_server import services_of
from tests.support.platform import Platform


@pytest.fixture
def client_of(tmp_path: Path) -> Iterator[Callable[[Platform], TestClient]]:
    """Make clients of an application on a platform's log and store; they end with the test."""
    with ExitStack() as stack:

        def make(platform: Platform) -> TestClient:
            services = stack.enter_context(services_of(platform, tmp_path))
            client = TestClient(create_app(services), raise_server_exceptions=False)
            return stack.enter_context(client)

        yield make
