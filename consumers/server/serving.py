"""The process of ``lethe serve``: uvicorn, until a signal; clients get their answers first."""

from __future__ import annotations

import ipaddress
import logging
import os
import socket
import sys
import threading
from pathlib import Path
from typing import Any

import uvicorn
from fastapi import FastAPI

from lethe.consumers.server.connections import waiting_together
from lethe.consumers.server.guard import MAX_HEAD_BYTES
from lethe.engine.errors import InvalidData

GRACE_SECONDS = 10
"""How long clients may take to read their answers after SIGTERM; then connections are closed."""

KEEP_ALIVE_SECONDS = 15
"""How long an idle connection stays open."""

SWITCH_SECONDS = 0.0005
"""How long a thread keeps the interpreter while others want it, a tenth of Python's own interval:
else the thread that follows the topics makes the one that answers wait 5 ms each time."""

_BACKLOG = 2_048


def is_loopback(host: str) -> bool:
    """Return whether only this machine can reach an address."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def listen(host: str, port: int) -> socket.socket:
    """Return a socket that listens.

    Raises
    ------
    InvalidData
        The address cannot be listened on.
    """
    try:
        family, *_, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        return socket.create_server(address[:2], family=family, backlog=_BACKLOG)
    except OSError as error:
        reason = os.strerror(error.errno) if error.errno and error.errno > 0 else error.strerror
        raise InvalidData(
            f"{host}:{port} cannot be listened on ({reason}); choose another address or port with "
            "--host and --port"
        ) from None


def server_of(
    app: FastAPI, stop: threading.Event, certificate: tuple[Path, Path] | None = None
) -> uvicorn.Server:
    """Return a server; its ``run`` takes sockets that listen, and returns after SIGTERM or SIGINT.

    Parameters
    ----------
    app
        The application.
    stop
        Set by the signal: streams that never end by themselves watch it.
    certificate
        PEM files of a certificate with its chain and of its key, for TLS.
    """
    # Its lines about hostile bytes and its tracebacks say nothing that ours do not say.
    logging.getLogger("uvicorn.error").setLevel(logging.CRITICAL)
    files: dict[str, Any] = {}
    if certificate is not None:
        files = {"ssl_certfile": certificate[0], "ssl_keyfile": certificate[1]}
    config = uvicorn.Config(
        app,
        log_config=None,
        access_log=False,
        http=waiting_together(),
        ws="none",
        lifespan="off",
        server_header=False,
        date_header=False,
        proxy_headers=False,
        timeout_keep_alive=KEEP_ALIVE_SECONDS,
        timeout_graceful_shutdown=GRACE_SECONDS,
        h11_max_incomplete_event_size=MAX_HEAD_BYTES,
        **files,
    )
    sys.setswitchinterval(SWITCH_SECONDS)
    return _Server(config, stop)


class _Server(uvicorn.Server):
    """Tells streams that the server is stopping."""

    def __init__(self, config: uvicorn.Config, stop: threading.Event) -> None:
        super().__init__(config)
        self._stop = stop

    def handle_exit(self, sig: int, frame: Any) -> None:
        """Begin to stop."""
        self._stop.set()
        super().handle_exit(sig, frame)
