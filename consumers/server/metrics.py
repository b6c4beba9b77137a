"""What the server exports to Prometheus on a port of its own: requests by route, and times."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager

from prometheus_client import CollectorRegistry, Counter, Histogram
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from lethe.consumers.service.configuration.settings import Settings
from lethe.consumers.service.telemetry.http import serve
from lethe.consumers.service.telemetry.logs import logger

_SECONDS = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10)
_METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})


class ServerMetrics:
    """All metrics of a server, in a registry of their own.

    Labels are routes and never paths: an id in a path is nobody's business, and would be a series.
    """

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self._requests = Counter(
            "lethe_http_requests_total",
            "Requests to the server, by status; 0: the client left before the answer",
            ("method", "route", "status"),
            registry=self.registry,
        )
        self._seconds = Histogram(
            "lethe_http_response_seconds",
            "Time until an answer begins: a stream goes on after that",
            ("route",),
            buckets=_SECONDS,
            registry=self.registry,
        )

    def answered(self, method: str, route: str, status: int, seconds: float | None) -> None:
        """Count a request; ``seconds`` is None if no answer began."""
        known = method if method in _METHODS else "other"
        self._requests.labels(known, route, str(status)).inc()
        if seconds is not None:
            self._seconds.labels(route).observe(seconds)


class Measured:
    """An ASGI application around another one, which measures it."""

    def __init__(self, app: ASGIApp, metrics: ServerMetrics) -> None:
        self._app = app
        self._metrics = metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on, and count it when it has been answered."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        begun = time.perf_counter()
        status, seconds = 0, None

        async def send_measured(message: Message) -> None:
            nonlocal status, seconds
            if message["type"] == "http.response.start":
                status, seconds = message["status"], time.perf_counter() - begun
            await send(message)

        try:
            await self._app(scope, receive, send_measured)
        except Exception:
            status = status or 500  # which the server makes of it
            raise
        finally:
            route = getattr(scope.get("route"), "path", "-")
            self._metrics.answered(scope["method"], route, status, seconds)


@contextmanager
def exported(settings: Settings, metrics: ServerMetrics) -> Iterator[None]:
    """Serve /metrics while the block runs, on a port that clients of the API do not reach.

    Raises
    ------
    InvalidData
        The port that was asked for is taken.
    """
    port = settings.server_metrics_port
    if port == 0:
        yield
        return
    with serve(
        settings.http_host,
        port,
        {},
        metrics.registry,
        or_another="server_metrics_port" not in settings.model_fields_set,
        setting="LETHE_SERVER_METRICS_PORT",
    ) as bound:
        logger("server").info("metrics", action="metrics", port=bound)
        yield
