"""Every request gets what docs/events.md says, bad ones included; the worker never stops."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest

from lethe.consumers.contract import topics
from lethe.consumers.contract.events import DELETION_REQUESTED
from lethe.consumers.contract.receipt import Receipt
from lethe.consumers.log.base import Headers, Record
from tests.support.events import settle
from tests.support.invariants import check_model, ledger_of
from tests.support.lost_topics import go_on_without
from tests.support.memory_log import MemoryLog
from tests.support.platform import Platform

NOTHING: Headers = ()


@dataclass(frozen=True)
class Bad:
    """A record that is no good request, and what must come of it.

    ``receipt`` is (request id, code) or None where none can be addressed; ``letter`` says
    whether the raw bytes go to dead letters.
    """

    name: str
    value: bytes | None
    receipt: tuple[str, str] | None
    letter: bool = True
    key: bytes = b"m"
    headers: Headers = NOTHING


def body(**fields: Any) -> bytes:
    return json.dumps(fields).encode()


def bad(name: str, letter: bool = True, code: str = "INVALID_REQUEST", **fields: Any) -> Bad:
    request = {"request_id": name, "model_id": "m", **fields}
    return Bad(name, body(**request), (name, code), letter)


BAD = [
    Bad("no value", None, None),
    Bad("empty value", b"", None),
    Bad("not JSON", b"garbage{", None),
    Bad("not UTF-8", b'{"request_id": "\xff\xfe"}', None),
    Bad("900 KB of garbage", bytes(range(256)) * 3600, None),
    Bad("a list", b"[1, 2]", None),
    Bad("a string", b'"row-1"', None),
    Bad("NaN", b'{"request_id": "nan", "model_id": "m", "row_ids": [NaN]}', None),
    Bad("too deep", b"[" * 200_000 + b"]" * 200_000, None),
    Bad(
        "no JSON in a structured event",
        b"{}",
        None,
        headers=(("content-type", b"application/cloudevents+json"),),
    ),
    Bad("half a key", body(request_id="x", model_id="m"), ("x", "INVALID_REQUEST"), key=b"\xff"),
    bad("no rows"),
    bad("rows and subject", row_ids=["row-1"], subject_id="subject-1"),
    bad("empty rows", row_ids=[]),
    bad("rows as a string", row_ids="row-1"),
    bad("rows as an object", row_ids={"row-1": 1}),
    bad("a number among rows", row_ids=["row-1", 2.5]),
    bad("an empty row id", row_ids=["row-1", ""]),
    bad("a long row id", row_ids=["x" * 129]),
    bad("a lone surrogate", row_ids=["\ud800"]),
    bad("an empty subject", subject_id=""),
    bad("a long subject", subject_id="x" * 129),
    bad("null rows", row_ids=None),
    bad("10,001 rows", letter=False, code="TOO_MANY_ROWS", row_ids=[str(i) for i in range(10_001)]),
    bad("unknown rows", letter=False, code="UNKNOWN_ROWS", row_ids=["no", "such", "rows"]),
    bad(
        "one unknown row of a strict request",
        letter=False,
        code="UNKNOWN_ROWS",
        row_ids=["row-1", "no such row"],
        strict=True,
    ),
    bad("strict as a string", row_ids=["row-1"], strict="yes"),
    bad("unknown subject", letter=False, code="UNKNOWN_ROWS", subject_id="nobody"),
    Bad("a request id of another type", body(request_id=7, model_id="m", row_ids=["row-1"]), None),
    Bad("a long request id", body(request_id="x" * 129, model_id="m", row_ids=["row-1"]), None),
    Bad("no request id", body(model_id="m", row_ids=["row-1"]), None),
    Bad(
        "a surrogate as request id",
        b'{"request_id": "\\ud800", "model_id": "m", "row_ids": ["row-1"]}',
        None,
    ),
    Bad(
        "a model id of another type",
        body(request_id="typed", model_id=["m"], row_ids=["row-1"]),
        ("typed", "INVALID_REQUEST"),
    ),
    Bad(
        "key contradicts body",
        body(request_id="contradicts", model_id="m", row_ids=["row-1"]),
        ("contradicts", "INVALID_REQUEST"),
        key=b"another",
    ),
    Bad(
        "unknown type",
        body(request_id="of-another-type", model_id="m", row_ids=["row-1"]),
        ("of-another-type", "INVALID_REQUEST"),
        headers=(("ce_type", b"lethe.deletion.requested.v2"),),
    ),
    Bad(
        "a refresh without a job",
        b"{}",
        None,
        headers=(("ce_type", b"lethe.refresh.completed.v1"),),
    ),
]


def test_bad_requests_get_what_the_contract_says_and_neighbours_are_applied(
    platform: Platform,
) -> None:
    # Given a model, and between any two bad records a good request
    platform.register("m")
    good: list[str] = []
    for number, item in enumerate(BAD):
        platform.send_raw(item.value, item.key, item.headers)
        good.append(platform.send_index("m", number))
    # When the workers run
    platform.drain()
    # Then every good one is applied
    finished = platform.finals()
    assert [finished[name].status for name in good] == ["APPLIED"] * len(BAD)
    # and every bad one has exactly its receipt and its dead letter
    finals: dict[str, list[Receipt]] = {}
    for receipt in platform.receipts("m"):
        finals.setdefault(receipt.request_id, []).append(receipt)
    for item in BAD:
        if item.receipt is not None:
            name, code = item.receipt
            found = [(receipt.status, receipt.code) for receipt in finals.pop(name)]
            assert found == [("REJECTED", code)], item.name
    assert finals.keys() == set(good)
    letters = sorted(record.value or b"" for record in platform.dead_letters())
    assert letters == sorted(item.value or b"" for item in BAD if item.letter)
    for record in platform.dead_letters():
        named = dict(record.headers)
        assert named["lethe-error-code"] == b"INVALID_REQUEST"
        assert named["lethe-error"]
        topic, partition, offset = named["lethe-source"].decode().rsplit("/", 2)
        assert topic == topics.DELETIONS
        assert partition.isdigit()
        assert offset.isdigit()
    check_model(platform)


def test_forms_and_repeats(platform: Platform) -> None:
    platform.register("m")
    # Plain JSON with fields that nobody knows, and rows named twice
    platform.send_raw(
        body(request_id="plain", model_id="m", row_ids=["row-1", "row-1"], new={"x": "\ud800"})
    )
    # Structured mode; the request id defaults to the event's
    event = {
        "specversion": "1.0", "id": "structured", "source": "/x", "type": DELETION_REQUESTED,
        "data": {"model_id": "m", "row_ids": ["row-2"]},
    }  # fmt: skip
    content = (("content-type", b"application/cloudevents+json; charset=utf-8"),)
    platform.send_raw(json.dumps(event).encode(), headers=content)
    # Binary mode; the request id defaults to ce_id
    named = (("ce_type", DELETION_REQUESTED.encode()), ("ce_id", b"binary"))
    platform.send_raw(body(model_id="m", subject_id="subject-1"), headers=named)
    platform.drain()
    assert platform.final("plain").rows_deleted == 1
    assert platform.final("structured").rows_deleted == 1
    assert platform.final("binary").rows_deleted == 3
    # The same again, in any order of rows; another body; rows known and unknown; all gone before
    first = platform.final("plain").value()
    before = len(platform.versions())
    platform.send_raw(body(request_id="plain", model_id="m", row_ids=["row-1"]))
    platform.send_raw(body(request_id="plain", model_id="m", row_ids=["row-9"]))
    platform.send("m", "row-1", "row-2", request_id="gone")
    platform.send("m", "row-1", "row-6", "nobody", request_id="partly")
    platform.send_raw(body(request_id="plain", model_id="m", row_ids=["row-1"]))
    platform.drain()
    found = [receipt for receipt in platform.receipts() if receipt.request_id == "plain"]
    assert [receipt.value() == first for receipt in found] == [True, True, False, True]
    conflict = found[2]
    assert (conflict.status, conflict.code) == ("REJECTED", "REQUEST_ID_CONFLICT")
    assert conflict.conflicts_with == found[0].source
    gone, partly = platform.final("gone"), platform.final("partly")
    assert (gone.status, gone.rows_deleted, gone.rows_unknown) == ("ALREADY_APPLIED", 0, 0)
    assert (partly.status, partly.rows_deleted, partly.rows_unknown) == ("APPLIED", 1, 1)
    assert len(platform.versions()) == before + 1
    check_model(platform)


def test_a_request_for_a_model_that_is_registered_later(platform: Platform) -> None:
    # Given a request that was decided before the model was there, and one that was not
    platform.send("m", "row-1", request_id="early")
    platform.drain()
    assert platform.final("early").code == "UNKNOWN_MODEL"
    platform.send("m", "row-2", request_id="undecided")
    # When the model is registered
    platform.register("m")
    platform.drain()
    # Then both were sent to a model that nobody knew, and can be sent again
    assert platform.final("undecided").code == "UNKNOWN_MODEL"
    assert ledger_of(platform, "m") == {}
    platform.send("m", "row-1", request_id="early")
    platform.send("m", "row-3", request_id="late")
    platform.drain()
    assert platform.statuses("early") == ["REJECTED", "APPLIED"]
    assert platform.final("late").status == "APPLIED"
    assert ledger_of(platform, "m").keys() == {"row-1", "row-3"}
    del platform.asked["m", "undecided"]
    check_model(platform)


def test_an_answer_for_a_model_that_is_not_there_is_the_same_bytes_each_time(
    platform: Platform,
) -> None:
    """It is a function of the record: who reads it again, later, gives the same answer."""
    platform.send("ghost", "row-1", request_id="early")
    platform.drain()
    platform.raw().delete(*platform.raw().keys("lethe:watermark:*"))
    settle(platform)
    first, again = platform.published_receipts("ghost")
    assert first[0].code == "UNKNOWN_MODEL"
    assert first[1] == again[1]
    assert platform.records(topics.COMMITS) == []


def append_to(platform: Platform, index: int, value: bytes, key: bytes | None) -> None:
    """Send as a producer with another partitioner does."""
    if isinstance(platform.log, MemoryLog):
        held = platform.log.partitions(topics.DELETIONS)[index]
        with platform.log.changed:
            held.records.append(Record(held.identity, held.bounds().end, key, value))
            platform.log.changed.notify_all()
        return
    from kafka import KafkaProducer

    producer = KafkaProducer(bootstrap_servers=platform.bootstrap)
    producer.send(topics.DELETIONS, value, key, partition=index).get(10)
    producer.close()


@pytest.mark.parametrize(
    "kind",
    [
        "memory",
        pytest.param("kafka", marks=[pytest.mark.kafka, pytest.mark.xdist_group("kafka")]),
    ],
)
def test_producers_with_another_partitioner_and_added_partitions(
    platform_on: Callable[..., Platform], kind: str
) -> None:
    platform = platform_on(kind, partitions=3)
    platform.register("m")
    # One model's requests lie in three partitions, some without a key, one of them twice
    for number in range(12):
        request = body(request_id=f"p{number}", model_id="m", row_ids=[f"row-{number}"])
        platform.asked["m", f"p{number}"] = (f"row-{number}",)
        append_to(platform, number % 3, request, None if number % 4 == 0 else b"m")
    append_to(platform, 2, body(request_id="p0", model_id="m", row_ids=["row-0"]), b"m")
    platform.drain()
    finished = platform.finals()
    assert {finished[f"p{n}"].status for n in range(12)} == {"APPLIED"}
    check_model(platform)
    if isinstance(platform.log, MemoryLog):
        # Partitions are added: the model's key may lie elsewhere from now on
        platform.log.add_partitions(topics.DELETIONS, 7)
        platform.send("m", "row-20", request_id="after")
        platform.send("m", "row-0", request_id="p0")
        platform.drain()
        # The topic is made again: old requests that are sent again are repeats
        platform.log.delete_topic(topics.DELETIONS)
        platform.log.ensure_topics(topics.specs(2))
        go_on_without(platform, topics.DELETIONS)
        platform.send("m", "row-20", request_id="after")
        platform.send("m", "row-21", request_id="new topic")
        platform.drain()
        assert platform.statuses("after") == ["APPLIED", "APPLIED"]
        assert platform.final("new topic").status == "APPLIED"
        check_model(platform)


def test_oversized_records_do_not_stop_the_worker(
    platform_on: Callable[..., Platform],
) -> None:
    # Given records at the limits of what the log takes: value, key and headers
    platform = platform_on("streams")
    platform.register("m")
    large = 1_114_112 - 1
    platform.send_raw(b"x" * large)
    platform.send_raw(b"x", key=b"k" * 100_000)
    platform.send_raw(b"x", headers=(("h", b"v" * 65_535),))
    good = platform.send_index("m", 1)
    # When they are decided
    platform.drain()
    # Then dead letters say what they were, and the neighbour is applied
    assert platform.final(good).status == "APPLIED"
    letters = platform.dead_letters()
    assert len(letters) == 3
    cut = {dict(letter.headers).get("lethe-truncated") for letter in letters}
    assert cut == {str(large).encode(), None}
    assert {len(letter.value or b"") for letter in letters} == {1 << 20, 1}


@pytest.mark.kafka
@pytest.mark.xdist_group("kafka")
def test_oversized_records_do_not_stop_the_worker_on_kafka(
    platform_on: Callable[..., Platform], kafka_bootstrap: str
) -> None:
    from kafka import KafkaProducer

    platform = platform_on("kafka")
    platform.register("m")
    producer = KafkaProducer(
        bootstrap_servers=kafka_bootstrap,
        max_request_size=2_000_000,
    )
    large = 1_113_000
    producer.send(topics.DELETIONS, b"x" * large, b"m").get(10)
    producer.send(topics.DELETIONS, b"x" * 1_048_570, b"m", headers=[("h", b"v" * 60_000)]).get(10)
    producer.send(topics.DELETIONS, b"x", b"k" * 1_000_000).get(10)
    producer.close()
    good = platform.delete("m", 1)
    assert platform.final(good).status == "APPLIED"
    sizes = sorted(len(letter.value or b"") for letter in platform.dead_letters())
    assert sizes == [1, 1_048_570, 1_048_576]
