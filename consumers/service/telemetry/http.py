"""`/healthz`, `/readyz` and `/metrics` on a loopback port."""

from __future__ import annotations

import errno
import json
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, generate_latest

from lethe.consumers.service.telemetry.health import Health
from lethe.consumers.service.telemetry.logs import log_defect, logger
from lethe.engine.errors import InvalidData

CLIENT_SECONDS = 10.0
"""How long a client may take to send its request, or to read the answer: each holds a thread."""


@contextmanager
def serve(
    host: str,
    port: int,
    health: Mapping[str, Health],
    registry: CollectorRegistry,
    *,
    or_another: bool = False,
    setting: str = "--http-port or LETHE_HTTP_PORT",
) -> Iterator[int]:
    """Serve until the block ends; yields the port (a free one for 0).

    Parameters
    ----------
    host, port
        Address to listen on.
    health
        Each worker's health by name: all must be live, and all must be ready.
    registry
        The content of /metrics.
    or_another
        Take a free port if ``port`` is taken: for a default that nobody asked for.
    setting
        What sets the port, for the message that it is taken.

    Raises
    ------
    InvalidData
        The port is taken.
    """

    class Handler(BaseHTTPRequestHandler):
        timeout = CLIENT_SECONDS

        def do_GET(self) -> None:
            path = self.path.partition("?")[0]
            if path == "/metrics":
                self._answer(200, CONTENT_TYPE_LATEST, generate_latest(registry))
            elif path in ("/healthz", "/readyz"):
                answers = {
                    name: worker.live() if path == "/healthz" else worker.ready()
                    for name, worker in health.items()
                }
                ok = all(answer for answer, _ in answers.values())
                body = {"ok": ok, **{name: dict(facts) for name, (_, facts) in answers.items()}}
                status = 200 if ok else 503
                self._answer(status, "application/json", json.dumps(body).encode() + b"\n")
            else:
                self._answer(404, "text/plain", b"there are /healthz, /readyz and /metrics\n")

        def _answer(self, status: int, content_type: str, body: bytes) -> None:
            self.send_response(status)
            self.send_header("Content-Type", content_type)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            """Log nothing: probes come every few seconds."""

    try:
        server = _listen(host, port, Handler, or_another=or_another)
    except OSError as error:
        raise InvalidData(
            f"{host}:{port} cannot be listened on ({error.strerror}); set another port with "
            f"{setting}, or 0 for none"
        ) from error
    thread = threading.Thread(target=server.serve_forever, name="http", daemon=True)
    thread.start()
    try:
        yield int(server.server_address[1])
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


class _Server(ThreadingHTTPServer):
    """Prints no traceback: a client that leaves before its answer is no error of ours."""

    def handle_error(self, request: object, client_address: object) -> None:
        """Log what a request has raised, unless its client has gone."""
        del request, client_address
        error = sys.exception()
        if error is not None and not isinstance(error, OSError):
            log_defect(logger("http"), "defect", error)


def _listen(
    host: str, port: int, handler: type[BaseHTTPRequestHandler], *, or_another: bool
) -> _Server:
    try:
        return _Server((host, port), handler)
    except OSError as error:
        if not or_another or error.errno != errno.EADDRINUSE:
            raise
        return _Server((host, 0), handler)
