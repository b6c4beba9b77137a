"""What probes and Prometheus see."""

import json
import socket
import struct
import threading
from collections.abc import Iterator
from http.client import HTTPConnection

import pytest
from prometheus_client import Metric

from lethe.consumers.service.telemetry import http
from lethe.consumers.service.telemetry.health import Health
from lethe.consumers.service.telemetry.http import serve
from lethe.consumers.service.telemetry.metrics import Metrics
from lethe.consumers.service.valkey_server import wait_until
from lethe.engine.errors import InvalidData


class Answering:
    """A served worker whose health the test turns."""

    def __init__(self) -> None:
        self.seconds = 0.0
        self.health = Health(lambda: self.seconds)
        self.metrics = Metrics()
        self.port = 0

    def get(self, path: str) -> tuple[int, str]:
        connection = HTTPConnection("127.0.0.1", self.port, timeout=60)
        try:
            connection.request("GET", path)
            response = connection.getresponse()
            return response.status, response.read().decode()
        finally:
            connection.close()


@pytest.fixture
def answering() -> Iterator[Answering]:
    one = Answering()
    with serve("127.0.0.1", 0, {"deletions": one.health}, one.metrics.registry) as port:
        one.port = port
        yield one


def test_a_live_worker_answers_200_and_a_stuck_one_503(answering: Answering) -> None:
    answering.health.progress(0)
    assert answering.get("/healthz")[0] == 200

    answering.seconds = 1000.0
    status, body = answering.get("/healthz")

    assert status == 503
    assert json.loads(body)["deletions"]["seconds_since_beat"] == 1000.0


def test_ready_means_that_something_was_decided(answering: Answering) -> None:
    assert answering.get("/readyz")[0] == 503

    answering.health.progress(0)

    assert answering.get("/readyz")[0] == 200


def test_metrics_have_every_series_that_the_docs_promise(answering: Answering) -> None:
    answering.metrics.requests.labels("APPLIED").inc(3)
    answering.metrics.error.labels("churn").set(0.25)

    status, body = answering.get("/metrics")

    assert status == 200
    assert 'lethe_requests_total{status="APPLIED"} 3.0' in body
    assert 'lethe_error_relative{model="churn"} 0.25' in body
    for series in (
        "lethe_rows_deleted",
        "lethe_batch_rows",
        "lethe_step_seconds",
        "lethe_append_seconds",
        "lethe_end_to_end_seconds",
        "lethe_error_budget",
        "lethe_lag_records",
        "lethe_commits",
        "lethe_folds",
        "lethe_held_requests",
        "lethe_unauthenticated",
        "lethe_refreshes",
        "lethe_halted_models",
    ):
        assert f"# HELP {series}" in body


def test_other_paths_are_404(answering: Answering) -> None:
    assert answering.get("/")[0] == 404


def test_a_port_that_nobody_asked_for_gives_way() -> None:
    """Two workers on a host need no option."""
    with (
        serve("127.0.0.1", 0, {}, Metrics().registry) as taken,
        serve("127.0.0.1", taken, {}, Metrics().registry, or_another=True) as another,
    ):
        assert another not in (0, taken)


def test_a_taken_port_is_one_clear_line() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with (
            pytest.raises(InvalidData, match="LETHE_HTTP_PORT"),
            serve("127.0.0.1", port, {}, Metrics().registry),
        ):
            pass


def test_a_client_that_leaves_before_its_answer_leaves_no_traceback(
    answering: Answering, capfd: pytest.CaptureFixture[str]
) -> None:
    """Given a scrape that Prometheus gives up, the logs stay lines, each with an action."""
    asked, gone = threading.Event(), threading.Event()

    class Slow:
        def collect(self) -> Iterator[Metric]:
            asked.set()
            gone.wait(60)
            return iter(())

    before = threading.active_count()
    with socket.create_connection(("127.0.0.1", answering.port)) as client:
        client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        answering.metrics.registry.register(Slow())
        client.sendall(b"GET /metrics HTTP/1.0\r\n\r\n")
        assert asked.wait(60)
    gone.set()
    assert wait_until(lambda: threading.active_count() <= before, 60)

    assert capfd.readouterr().err == ""


def test_a_client_that_sends_nothing_is_let_go(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http, "CLIENT_SECONDS", 0.2)
    with (
        serve("127.0.0.1", 0, {}, Metrics().registry) as port,
        socket.create_connection(("127.0.0.1", port), timeout=30) as client,
    ):
        assert client.recv(1) == b""
