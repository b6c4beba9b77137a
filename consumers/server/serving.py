"""The process of ``lethe serve``: uvicorn, until a signal; clients get their answers first."""

from __future__ import annotations

from collections.abc import Callable

import uvicorn
from fastapi import FastAPI

GRACE_SECONDS = 10
"""How long clients may take to read their answers after SIGTERM; then connections are closed."""

MAX_CONNECTIONS = 1_000
"""Connections at a time; more get 503. Each takes a file descriptor; a process often has 1,024."""

KEEP_ALIVE_SECONDS = 15
"""How long an idle connection stays open."""

MAX_HEAD_BYTES = 32_768
"""Most bytes of a request line and its headers; an id in a path takes up to 1,536 of them."""


def serve(app: FastAPI, host: str, port: int, ready: Callable[[int], None]) -> None:
    """Serve ``app`` until SIGTERM or SIGINT; ``ready`` is called with the port once it listens.

    Raises
    ------
    SystemExit
        The address cannot be listened on; uvicorn has said why.
    """
    config = uvicorn.Config(
        app,
        host=host,
        port=port,
        log_config=None,
        access_log=False,
        http="h11",
        ws="none",
        lifespan="off",
        server_header=False,
        date_header=False,
        proxy_headers=False,
        limit_concurrency=MAX_CONNECTIONS,
        timeout_keep_alive=KEEP_ALIVE_SECONDS,
        timeout_graceful_shutdown=GRACE_SECONDS,
        h11_max_incomplete_event_size=MAX_HEAD_BYTES,
    )
    _Server(config, ready).run()


class _Server(uvicorn.Server):
    """Says when it listens."""

    def __init__(self, config: uvicorn.Config, ready: Callable[[int], None]) -> None:
        super().__init__(config)
        self._ready = ready

    async def startup(self, sockets: None = None) -> None:  # type: ignore[override]
        """Listen."""
        await super().startup(sockets)
        if self.started:
            self._ready(self.servers[0].sockets[0].getsockname()[1])
