"""Decoders of what arrives by the log: anybody who may write to a topic writes their input."""

from __future__ import annotations

import contextlib
import json
from types import SimpleNamespace
from typing import Any

import numpy as np

from lethe.consumers.cdc.translate import MAX_DETAIL, Shape, translate
from lethe.consumers.contract import cloudevents, version_chain
from lethe.consumers.contract.events import (
    DELETION_REQUESTED,
    REFRESH_COMPLETED,
    DeletionRequest,
    Event,
    Parameters,
    RefreshCompleted,
    RefreshRequested,
    Source,
    Version,
)
from lethe.consumers.contract.receipt import Receipt
from lethe.consumers.deletions.validate import Invalid, Refreshed, Valid, validate
from lethe.consumers.log.base import Partition, Record
from lethe.consumers.refresh.queue import JobQueue
from lethe.consumers.subscriber.history import read_version
from lethe.consumers.subscriber.parameters import ParametersReader
from lethe.engine.errors import BrokenChain
from tests.proof.fuzz.contract import Harness, joined, parts
from tests.support.captured import mapping_of, recorded
from tests.support.published import release, releases

MODEL = "churn"
_HERE = Partition("lethe.deletions", "id", 0)
_EVENTS: tuple[type[Event], ...] = (
    DeletionRequest,
    RefreshCompleted,
    RefreshRequested,
    Receipt,
    Version,
    Parameters,
)


def _record(
    value: bytes | None, key: bytes | None = b"churn", *headers: tuple[str, bytes]
) -> Record:
    return Record(_HERE, 7, key, value, headers)


# -- requests -----------------------------------------------------------------------------------


def _request(data: bytes) -> None:
    """Value, key, ce_type and content-type; whatever they are, `validate` raises nothing."""
    value, key, kind, content = parts(data, 4)
    named = (("ce_type", kind), ("content-type", content), ("ce_id", b"r1"))
    headers = [(name, text) for name, text in named if text is not None]
    item = validate(_record(value, key, *headers))
    if isinstance(item, Valid):
        request = item.request
        again = validate(_record(request.model_dump_json(exclude_none=True).encode(), None))
        assert isinstance(again, Valid), again
        assert (again.body, again.request.row_ids) == (item.body, request.row_ids)
        assert len(request.row_ids or ()) <= 10_000
        for name in (request.model_id, request.request_id, *(request.row_ids or ())):
            assert 1 <= len(name) <= 128
            name.encode()
    elif isinstance(item, Invalid):
        assert len(item.detail) <= 300
        item.detail.encode("utf-8", errors="replace")
        for given in (item.model_id, item.request_id):
            assert given is None or 1 <= len(given.encode()) <= 512
        assert (item.model_id is None) == (item.request_id is None)
    else:
        assert isinstance(item, Refreshed)


def request_seeds() -> list[bytes]:
    """Return requests in the three modes, and a refresh that is done."""
    request: dict[str, Any] = {
        "request_id": "r1",
        "model_id": MODEL,
        "row_ids": ["u17", "\u00fc\u4e16", "u42"],
        "requested_at": "2026-03-01T12:00:00Z",
        "reason": {"any": ["thing", 1.5, None]},
    }
    by_subject = {"request_id": "r2", "model_id": MODEL, "subject_id": "s1"}
    structured = {
        "specversion": "1.0",
        "type": DELETION_REQUESTED,
        "id": "r3",
        "source": "/crm",
        "datacontenttype": "application/json",
        "data": request,
    }
    done = {"job_id": "j" * 32, "model_id": MODEL}
    plain, subject = json.dumps(request).encode(), json.dumps(by_subject).encode()
    kind = DELETION_REQUESTED.encode()
    return [
        plain,
        joined(plain, MODEL.encode()),
        joined(subject, MODEL.encode(), kind, b"application/json"),
        joined(json.dumps(structured).encode(), MODEL.encode()),
        joined(json.dumps(structured).encode(), b"", b"", b"application/cloudevents+json"),
        joined(json.dumps(done).encode(), MODEL.encode(), REFRESH_COMPLETED.encode()),
        joined(b"{}", b"\xff", b"other.type"),
    ]


def _cloudevent(data: bytes) -> None:
    value, kind, content = parts(data, 3)
    named = (("ce_type", kind), ("Content-Type", content))
    cloudevents.parse(_record(value, b"k", *((n, text) for n, text in named if text is not None)))


def _change(data: bytes) -> None:
    """Value, key and old key of a captured change; nothing is raised."""
    value, key, former = parts(data, 3)
    headers = () if former is None else (("__debezium.oldkey", former),)
    for mapping in _MAPPINGS:
        topic = Partition(mapping.topics[0], "id", 0)
        one = translate(Record(topic, 7, key, value, headers), mapping, _SHAPES)
        assert len(one.detail) <= MAX_DETAIL
        assert (one.code is None) == (one.outcome != "refused")
        names = [row for each in one.deletions for row in each.row_ids or (each.subject_id,)]
        changes = (*one.corrections, *(each.request for each in one.insertions))
        names += [row for each in changes for row in each.row_ids]
        for name in names:
            assert name is not None
            assert 1 <= len(name) <= 128
            name.encode()


_MAPPINGS = (
    mapping_of({"updates": "correct", "key_changes": "correct"}),
    mapping_of({"format": "flattened", "key": {"id": "text", "region": "integer"}}),
    mapping_of(
        {"replica_identity": "full", "subject": {"household": "text"}, "deletes": "subject"}
    ),
)
_SHAPES = {"churn": Shape(("region", "active"), ("fee",))}


def change_seeds() -> list[bytes]:
    """Return changes as the connector wrote them, in every form."""
    forms = ("plain", "schema", "cloudevents", "cloudevents-schema", "flattened")
    return [
        joined(each.value or b"null", each.key or b"", dict(each.headers).get(_OLD_KEY, b""))
        for form in forms
        for each in recorded(form)
        if each.partition.topic == "shop.public.customers"
    ]


_OLD_KEY = "__debezium.oldkey"


# -- events -------------------------------------------------------------------------------------


def _event(data: bytes) -> None:
    """Whatever one of the event models takes can be written, and is the same when read again."""
    taken = 0
    for model in _EVENTS:
        try:
            event = model.read(data)
        except ValueError:
            continue
        taken += 1
        if isinstance(event, DeletionRequest):  # carries anything in fields that are not used
            continue
        value = event.value()
        assert model.read(value).value() == value
        if isinstance(event, Version):
            with contextlib.suppress(ValueError):  # numbers that have no canonical form
                version_chain.version_digest(event)
    if not taken:
        raise ValueError("no event")


def event_seeds() -> list[bytes]:
    """Return one of each."""
    made = releases(2)[-1]
    wide = release(None, [0.5, 1.5, -2.0])
    source = Source(topic="lethe.deletions", partition=1, offset=7)
    receipt = Receipt(
        request_id="r1",
        model_id=MODEL,
        status="APPLIED",
        rows_deleted=2,
        version=3,
        generation=1,
        error=made.version.error,
        source=source,
        completed_at=made.version.created_at,
        conflicts_with=source,
    )
    order = RefreshRequested(
        job_id="j1", model_id=MODEL, generation=1, version=3, reason="error_budget"
    )
    return [
        made.version.value(),
        made.parameters.value(),
        wide.parameters.value(),
        receipt.value(),
        order.value(),
        RefreshCompleted(job_id="j1", model_id=MODEL).value(),
    ]


def _version(data: bytes) -> None:
    version = read_version(_record(data), MODEL)
    assert version_chain.content_digest(json.loads(data)) == version.digest


def version_seeds() -> list[bytes]:
    """Return a history."""
    return [one.version.value() for one in releases(3)]


def _parameters(data: bytes) -> None:
    reader: Any = None
    event = ParametersReader(reader, MODEL, None)._parse(_record(data))
    if event.theta is not None:
        theta = version_chain.theta_of(event)
        assert bool(np.isfinite(theta).all())
        assert version_chain.digest_of(event, theta) == event.parameters_digest


def parameters_seeds() -> list[bytes]:
    """Return parameters events, one whose theta lies in the store."""
    made = releases(3)
    away = made[0].parameters.model_copy(
        update={"theta": None, "intercept": None, "uri": "lethe-store:x#published"}
    )
    return [*(one.parameters.value() for one in made), away.value()]


def _refresh_job(data: bytes) -> None:
    queue: Any = SimpleNamespace(_logger=SimpleNamespace(error=lambda *_, **__: None))
    JobQueue._parse(queue, _record(data))


HARNESSES = [
    Harness("request", _request, (), request_seeds),
    Harness("change", _change, (), change_seeds),
    Harness("cloudevent", _cloudevent, (ValueError, RecursionError), request_seeds),
    Harness("event", _event, (ValueError,), event_seeds),
    Harness("version", _version, (BrokenChain,), version_seeds),
    Harness("parameters", _parameters, (BrokenChain,), parameters_seeds),
    Harness("refresh-job", _refresh_job, (), event_seeds),
]
