"""A request's trace context goes through the worker, and what is published stays as it was."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from lethe.consumers.contract import topics
from lethe.consumers.log.base import Headers, Partition, Record
from lethe.consumers.service.telemetry.steps import Step
from lethe.engine.errors import StoreUnavailable
from tests.support.command import Lethe
from tests.support.extras import need
from tests.support.platform import Platform

TRACE, PARENT = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
TRACEPARENT = f"00-{TRACE}-{PARENT}-01".encode()


@pytest.fixture
def spans() -> Iterator[Any]:
    """What a worker's spans end up in: the SDK's exporter in memory, and a tracer that feeds it."""
    need("opentelemetry.sdk")
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import SimpleSpanProcessor
    from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

    provider, exporter = TracerProvider(), InMemorySpanExporter()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    exporter.tracer = provider.get_tracer("test")
    yield exporter
    provider.shutdown()


def tracing_of(spans: Any) -> Any:
    from lethe.consumers.service.telemetry.tracing import BatchTracing

    return BatchTracing(spans.tracer)


def request(number: int) -> bytes:
    body = {"request_id": f"r{number}", "model_id": "m", "row_ids": [f"row-{number}"]}
    return json.dumps(body).encode()


def by_name(spans: Any) -> dict[str, list[Any]]:
    found: dict[str, list[Any]] = {}
    for span in spans.get_finished_spans():
        found.setdefault(span.name, []).append(span)
    return found


def test_a_batch_has_its_parts_and_links_to_the_requests(platform: Platform, spans: Any) -> None:
    platform.register("m", budget=10.0)
    platform.send_raw(request(1), headers=(("traceparent", TRACEPARENT),))
    platform.send_raw(request(2), headers=(("ce_traceparent", TRACEPARENT),))
    platform.send_raw(request(3))
    tracing = tracing_of(spans)
    worker = platform.deletion_worker(at_step=tracing.at_step, received=tracing.received)
    platform.drain(worker)
    tracing.finish()

    found = by_name(spans)
    batches = found["lethe.batch"]
    counted = [batch.attributes["messaging.batch.message_count"] for batch in batches]
    assert sum(counted) == 3
    links = [link.context for batch in batches for link in batch.links]
    assert [f"{one.trace_id:032x}-{one.span_id:016x}" for one in links] == [f"{TRACE}-{PARENT}"] * 2
    traces = {batch.context.trace_id for batch in batches}
    assert int(TRACE, 16) not in traces
    for part in ("poll", "decide", "append", "apply", "publish"):
        assert {span.context.trace_id for span in found[f"lethe.{part}"]} == traces
        assert all(span.start_time <= span.end_time for span in found[f"lethe.{part}"])
    requests = found["lethe.request"]
    assert {f"{span.context.trace_id:032x}" for span in requests} == {TRACE}
    assert {f"{span.parent.span_id:016x}" for span in requests} == {PARENT}
    assert {link.context.trace_id for span in requests for link in span.links} <= traces
    places = {(r.partition.index, r.offset) for r in platform.records(topics.DELETIONS)}
    assert {
        (
            int(span.attributes["messaging.destination.partition.id"]),
            span.attributes["messaging.kafka.offset"],
        )
        for span in requests
    } <= places


def test_no_span_has_a_row(platform_on: Callable[..., Platform], spans: Any) -> None:
    platform = platform_on("memory")
    platform.register("m", budget=10.0)
    platform.send_raw(request(1), headers=(("traceparent", TRACEPARENT),))
    tracing = tracing_of(spans)
    platform.drain(platform.deletion_worker(at_step=tracing.at_step, received=tracing.received))
    tracing.finish()
    assert len(spans.get_finished_spans()) > 5
    assert not any("row-1" in span.to_json() for span in spans.get_finished_spans())


def test_a_turn_without_records_leaves_no_span(
    platform_on: Callable[..., Platform], spans: Any
) -> None:
    tracing = tracing_of(spans)
    worker = platform_on("memory").deletion_worker(
        at_step=tracing.at_step, received=tracing.received
    )
    for _ in range(5):
        worker.run_once(0.0)
    tracing.finish()
    assert spans.get_finished_spans() == ()


def test_published_bytes_do_not_depend_on_traces_even_when_a_fold_repeats_them(
    platform_on: Callable[..., Platform], spans: Any
) -> None:
    """A worker dies after its commit, and another publishes it from the record alone."""
    platform = platform_on("memory")
    platform.register("m", budget=10.0)
    platform.send_raw(request(1), headers=(("traceparent", TRACEPARENT),))
    tracing = tracing_of(spans)
    died: list[str] = []

    def die(step: str) -> None:
        tracing.at_step(step)
        if step == Step.ADVANCE and not died:
            died.append(step)
            raise StoreUnavailable("killed after everything was published")

    worker = platform.deletion_worker(at_step=die, received=tracing.received)
    platform.drain(worker)
    assert died
    receipts = [r for r in platform.records(topics.RECEIPTS) if b'"r1"' in (r.value or b"")]
    assert len(receipts) == 2
    assert receipts[0].value == receipts[1].value
    assert receipts[0].headers == receipts[1].headers
    assert "traceparent" not in dict(receipts[0].headers)


@pytest.mark.parametrize(
    "headers",
    [
        (),
        (("traceparent", b""),),
        (("traceparent", b"\xff\xfe"),),
        (("traceparent", b"00-" + b"0" * 32 + b"-" + b"0" * 16 + b"-01"),),
        (("traceparent", TRACEPARENT + b"x" * 10_000),),
        (("tracestate", b"a=b"),),
    ],
)
def test_a_context_that_cannot_be_read_is_none(headers: Headers) -> None:
    need("opentelemetry.sdk")
    from lethe.consumers.service.telemetry.tracing import context_of

    assert not context_of(Record(Partition("t", "t", 0), 0, None, b"", headers)).is_valid


def test_the_command_sends_traces_where_otel_says(tmp_path: Path) -> None:
    """A collector that counts what it gets; then none that listens, which disturbs nothing."""
    need("opentelemetry.sdk")
    from http.server import BaseHTTPRequestHandler, HTTPServer

    got: list[bytes] = []

    class Collector(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            got.append(self.rfile.read(int(self.headers["content-length"])))
            self.send_response(200)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    with HTTPServer(("127.0.0.1", 0), Collector) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            where = f"http://127.0.0.1:{server.server_port}"
            lethe = Lethe(tmp_path / "data", LETHE_OTEL="true", OTEL_EXPORTER_OTLP_ENDPOINT=where)
            delete_a_row(lethe, tmp_path)
        finally:
            server.shutdown()
            thread.join()
    assert b"lethe.batch" in b"".join(got)
    away = {"OTEL_EXPORTER_OTLP_ENDPOINT": where, "OTEL_EXPORTER_OTLP_TIMEOUT": "1"}
    delete_a_row(Lethe(tmp_path / "other", LETHE_OTEL="true", **away), tmp_path)
    wrong = Lethe(tmp_path / "data", LETHE_OTEL="true", OTEL_TRACES_EXPORTER="jaeger")
    assert "use otlp (over HTTP) or console" in wrong("work", "--until-idle", code=2).err


def delete_a_row(lethe: Lethe, tmp_path: Path) -> None:
    lethe("sample", str(tmp_path / "churn.csv"), "--force")
    lethe("register", "churn", "--data", str(tmp_path / "churn.csv"), "--id", "customer",
          "--target", "left", "--kind", "logistic", "--ridge", "1")  # fmt: skip
    lethe("delete", "churn", "--row", "u17")
    assert lethe("work", "--until-idle", "--json").document["requests"] == {"APPLIED": 1}
