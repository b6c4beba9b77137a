"""Traces of the deletion worker, for OpenTelemetry. An optional extra: `LETHE_OTEL` imports it.

A batch is a trace of its own: a span for each part of the worker's turn, and links to the requests'
contexts, as the headers of their records have them (W3C Trace Context; or the extension of
CloudEvents, ``ce_traceparent``). Each request that has such a context gets a span in its own trace.

Times are noted at the worker's steps (`steps`), and spans are made from them once the turn is over:
a turn without records leaves none. No span has a row id, a subject or a value.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

from opentelemetry.context import Context
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, ConsoleSpanExporter
from opentelemetry.trace import (
    Link,
    NonRecordingSpan,
    SpanContext,
    SpanKind,
    Tracer,
    get_current_span,
    set_span_in_context,
)
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from lethe.consumers.contract.cloudevents import MOST_STATE_CHARACTERS
from lethe.consumers.log.base import Record
from lethe.consumers.service.telemetry.steps import Step
from lethe.engine.errors import InvalidData

MOST_LINKS = 128
"""Links of a batch's span: as many as the SDK keeps. Its attribute counts all records."""

_PARTS: Mapping[str, str] = MappingProxyType(
    {
        Step.POLL: "poll",
        Step.VALIDATE: "decide",
        Step.LOAD: "decide",
        Step.DECIDE: "decide",
        Step.COMPUTE: "decide",
        Step.REFRESH_SWAP: "decide",
        Step.APPEND: "append",
        Step.APPLY: "apply",
        Step.SHRED: "apply",
        Step.PUBLISH: "publish",
        Step.FOLD_APPLY: "fold",
        Step.FOLD_PUBLISH: "fold",
    }
)
"""What a step belongs to. Step 9 goes with the step 7 of the next turn, in one round trip."""

_CONTEXTS = TraceContextTextMapPropagator()


@dataclass(slots=True)
class _Turn:
    """When each part of a turn began, and the records that it took."""

    parts: list[tuple[str, int]] = field(default_factory=list)
    records: Sequence[Record] = ()


class BatchTracing:
    """Makes the spans of one deletion worker, whose thread calls it."""

    def __init__(self, tracer: Tracer) -> None:
        self._tracer = tracer
        self._turn = _Turn()

    def at_step(self, step: str) -> None:
        """Note that a step is reached; with a new poll, the turn before it is over."""
        part = _PARTS.get(step)
        if part == "poll":
            self.finish()
        parts = self._turn.parts
        if part is not None and (not parts or parts[-1][0] != part):
            parts.append((part, time.time_ns()))

    def received(self, records: Sequence[Record]) -> None:
        """Note what this turn's poll returned."""
        self._turn.records = records

    def finish(self) -> None:
        """End the turn, and make the spans of one that had records."""
        turn, self._turn = self._turn, _Turn()
        if not turn.records or not turn.parts:
            return
        end = time.time_ns()
        begin = turn.parts[0][1]
        contexts = [(record, context_of(record)) for record in turn.records]
        traced = [(record, context) for record, context in contexts if context.is_valid]
        batch = self._tracer.start_span(
            "lethe.batch",
            Context(),
            SpanKind.CONSUMER,
            {"messaging.batch.message_count": len(turn.records)},
            [Link(context) for _, context in traced[:MOST_LINKS]],
            begin,
        )
        inside = set_span_in_context(batch)
        ends = [*(moment for _, moment in turn.parts[1:]), end]
        for (part, moment), over in zip(turn.parts, ends, strict=True):
            self._tracer.start_span(f"lethe.{part}", inside, start_time=moment).end(over)
        batch.end(end)
        for record, context in traced:
            self._request(record, context, batch.get_span_context(), begin, end)

    def _request(
        self, record: Record, context: SpanContext, batch: SpanContext, begin: int, end: int
    ) -> None:
        """Make the span of a request in its own trace, from the log to the end of the turn."""
        appended = record.timestamp_ms * 1_000_000
        self._tracer.start_span(
            "lethe.request",
            set_span_in_context(NonRecordingSpan(context)),
            SpanKind.CONSUMER,
            {
                "messaging.destination.name": record.partition.topic,
                "messaging.destination.partition.id": str(record.partition.index),
                "messaging.kafka.offset": record.offset,
                "lethe.model": (record.key or b"").decode("utf-8", errors="replace"),
            },
            [Link(batch)],
            appended if 0 < appended < begin else begin,
        ).end(end)


def context_of(record: Record) -> SpanContext:
    """Return the trace context of a request; an invalid one if it has none that can be read."""
    named = dict(record.headers)
    carrier = {}
    for name in ("traceparent", "tracestate"):
        value = named.get(name, named.get(f"ce_{name}", b""))
        if value and len(value) <= MOST_STATE_CHARACTERS:
            carrier[name] = value.decode("ascii", errors="replace")
    return get_current_span(_CONTEXTS.extract(carrier, Context())).get_span_context()


def open_tracing() -> tuple[BatchTracing, Callable[[], None]]:
    """Return what makes the spans, and what sends the last of them, as ``OTEL_*`` says.

    Raises
    ------
    InvalidData
        ``OTEL_TRACES_EXPORTER`` names an exporter that is not known.
    """
    exporter = os.environ.get("OTEL_TRACES_EXPORTER", "otlp")
    exporters: dict[str, Callable[[], Any]] = {
        "otlp": OTLPSpanExporter,
        "console": ConsoleSpanExporter,
    }
    if exporter not in exporters:
        raise InvalidData(
            f"setting OTEL_TRACES_EXPORTER: {exporter!r} is not known; use otlp (over HTTP) or "
            "console, or unset LETHE_OTEL"
        )
    named = "OTEL_SERVICE_NAME" in os.environ
    provider = TracerProvider(resource=Resource.create({} if named else {"service.name": "lethe"}))
    provider.add_span_processor(BatchSpanProcessor(exporters[exporter]()))
    tracing = BatchTracing(provider.get_tracer("lethe"))

    def close() -> None:
        tracing.finish()
        provider.shutdown()

    return tracing, close
