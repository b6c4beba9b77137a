"""What the server says of its requests: by route, and never by path."""

from __future__ import annotations

import pytest
from fastapi import FastAPI
from fastapi.responses import StreamingResponse
from fastapi.testclient import TestClient

from lethe.consumers.server.metrics import Measured, ServerMetrics


@pytest.fixture
def metrics() -> ServerMetrics:
    return ServerMetrics()


@pytest.fixture
def client(metrics: ServerMetrics) -> TestClient:
    app = FastAPI()

    @app.get("/models/{model}")
    def model(model: str) -> str:
        return model

    @app.get("/stream")
    def stream() -> StreamingResponse:
        return StreamingResponse(iter([b"a", b"b"]))

    @app.get("/broken")
    def broken() -> None:
        raise RuntimeError

    app.add_middleware(Measured, metrics=metrics)
    return TestClient(app, raise_server_exceptions=False)


def counted(metrics: ServerMetrics, method: str, route: str, status: str) -> float | None:
    labels = {"method": method, "route": route, "status": status}
    return metrics.registry.get_sample_value("lethe_http_requests_total", labels)


def test_requests_are_counted_by_route(client: TestClient, metrics: ServerMetrics) -> None:
    for name in ("anna", "bert"):
        assert client.get(f"/models/{name}").status_code == 200
    client.get("/stream")
    client.get("/broken")

    assert counted(metrics, "GET", "/models/{model}", "200") == 2
    assert counted(metrics, "GET", "/stream", "200") == 1
    assert counted(metrics, "GET", "/broken", "500") == 1
    count = metrics.registry.get_sample_value(
        "lethe_http_response_seconds_count", {"route": "/models/{model}"}
    )
    assert count == 2


def test_what_a_client_makes_up_becomes_no_series(
    client: TestClient, metrics: ServerMetrics
) -> None:
    for name in ("a", "b"):
        client.request(f"MADE-UP-{name}", f"/secret-{name}")

    assert counted(metrics, "other", "-", "404") == 2
    labels = {
        value
        for family in metrics.registry.collect()
        for sample in family.samples
        for value in sample.labels.values()
    }
    assert not any("secret" in label or "MADE" in label for label in labels)
