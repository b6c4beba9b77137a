"""Step 2 alone: any bytes at all become one of three things, and nothing is raised."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings, strategies as st

from lethe.consumers.contract.events import MAX_REQUEST_BYTES
from lethe.consumers.deletions.validate import Invalid, Refreshed, Valid, Validated, validate
from lethe.consumers.log.base import Headers, Partition, Record

HERE = Partition("lethe.deletions", "id", 0)
REFRESHED = (("ce_type", b"lethe.refresh.completed.v1"),)


def check(value: bytes | None, key: bytes | None = b"m", headers: Headers = ()) -> Validated:
    return validate(Record(HERE, 7, key, value, headers))


def of(**fields: Any) -> Validated:
    return check(json.dumps({"request_id": "r", "model_id": "m", **fields}).encode())


def valid(**fields: Any) -> Valid:
    found = of(**fields)
    assert isinstance(found, Valid)
    return found


def test_a_request_with_fields_that_nobody_knows() -> None:
    item = valid(row_ids=["b", "a", "b"], colour="red", requested_at=17, reason={"any": ["thing"]})
    assert item.request.row_ids == ("b", "a")
    assert (item.request.request_id, item.request.model_id) == ("r", "m")


def test_whole_numbers_name_the_rows_that_a_column_of_whole_numbers_made() -> None:
    assert valid(row_ids=[17, "18", -1]).request.row_ids == ("17", "18", "-1")
    assert valid(subject_id=7).request.subject_id == "7"
    assert valid(row_ids=[17]).body == valid(row_ids=["17"]).body
    for row in (17.0, True, None, [17], 10**200):
        assert isinstance(of(row_ids=[row]), Invalid)


def test_the_body_is_what_is_asked_for_not_how() -> None:
    same = [
        valid(row_ids=["a", "b"]),
        valid(row_ids=["b", "a", "a"]),
        valid(row_ids=["a", "b"], reason="x"),
        valid(row_ids=["a", "b"], subject_id=None),
    ]
    assert len({item.body for item in same}) == 1
    other = [valid(row_ids=["a"]), valid(row_ids=["ab"]), valid(subject_id="a")]
    other.append(valid(row_ids=["a", "b"], strict=True))
    assert len({item.body for item in [same[0], *other]}) == 5


def test_ten_thousand_rows_are_taken_and_one_more_is_not() -> None:
    assert len(valid(row_ids=[str(i) for i in range(10_000)]).request.row_ids or ()) == 10_000
    item = of(row_ids=[str(i) for i in range(10_001)])
    assert isinstance(item, Invalid)
    assert (item.code, item.dead_letter) == ("TOO_MANY_ROWS", False)
    assert (item.model_id, item.request_id) == ("m", "r")


def test_ids_of_the_longest_kind() -> None:
    longest = "\U0001f600" * 128
    item = check(
        json.dumps({"request_id": longest, "model_id": longest, "row_ids": [longest]}).encode(),
        longest.encode(),
    )
    assert isinstance(item, Valid)
    assert isinstance(of(row_ids=[longest + "x"]), Invalid)


@pytest.mark.parametrize("key", [None, b"m"])
def test_a_key_may_be_missing(key: bytes | None) -> None:
    item = check(b'{"request_id": "r", "model_id": "m", "row_ids": ["a"]}', key)
    assert isinstance(item, Valid)


@pytest.mark.parametrize("key", [b"n", b"\xff", b"m ", "m\u0301".encode()])
def test_a_key_that_contradicts_is_refused_for_the_model_of_the_body(key: bytes) -> None:
    item = check(b'{"request_id": "r", "model_id": "m", "row_ids": ["a"]}', key)
    assert isinstance(item, Invalid)
    assert (item.model_id, item.request_id, item.dead_letter) == ("m", "r", True)
    assert "contradicts" in item.detail


UNREADABLE: dict[str, bytes | None] = {
    "nothing": None,
    "empty": b"",
    "cut": b'{"request_id": "r", "model_id": "m", "row_ids": ["a"]',
    "not UTF-8": b'{"request_id": "\xff"}',
    "with a byte-order mark": b"\xef\xbb\xbf{}",
    "UTF-16": '{"request_id": "r"}'.encode("utf-16"),
    "a number": b"17",
    "null": b"null",
    "a list": b"[]",
    "NaN": b'{"request_id": "r", "model_id": "m", "row_ids": ["a"], "x": NaN}',
    "Infinity": b'{"request_id": "r", "model_id": "m", "row_ids": ["a"], "x": -Infinity}',
    "deep lists": b"[" * 300_000,
    "deep objects": b'{"a":' * 100_000 + b"1" + b"}" * 100_000,
    "a number of a million digits": b'{"x": ' + b"9" * 1_000_000 + b"}",
    "more than 1 MiB": b" " * (MAX_REQUEST_BYTES + 1),
    "900 KB of zeros": bytes(900_000),
}


@pytest.mark.parametrize("name", UNREADABLE)
def test_what_cannot_be_read_goes_to_dead_letters_and_its_key_is_not_believed(name: str) -> None:
    item = check(UNREADABLE[name])
    assert isinstance(item, Invalid)
    assert (item.code, item.dead_letter) == ("INVALID_REQUEST", True)
    assert (item.model_id, item.request_id) == (None, None)
    assert 0 < len(item.detail) <= 300
    nobodys = check(UNREADABLE[name], b"\xff")
    assert isinstance(nobodys, Invalid)
    assert nobodys.model_id is None


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"row_ids": []},
        {"row_ids": None},
        {"row_ids": "a"},
        {"row_ids": {"a": 1}},
        {"row_ids": [["a"]]},
        {"row_ids": [None]},
        {"row_ids": [1.5]},
        {"row_ids": [True]},
        {"row_ids": [""]},
        {"row_ids": ["\ud800"]},
        {"row_ids": ["a"], "subject_id": "s"},
        {"subject_id": ""},
        {"subject_id": 4.5},
        {"subject_id": "\udfff"},
        {"row_ids": ["a"], "model_id": ""},
        {"row_ids": ["a"], "model_id": None},
        {"row_ids": ["a"], "model_id": "\ud800"},
        {"row_ids": ["a"], "model_id": 1.5},
    ],
)
def test_what_is_no_request_and_has_an_id_gets_a_receipt(fields: dict[str, Any]) -> None:
    item = of(**fields)
    assert isinstance(item, Invalid)
    assert (item.code, item.dead_letter) == ("INVALID_REQUEST", True)
    assert (item.model_id, item.request_id) == ("m", "r")
    assert item.detail


@pytest.mark.parametrize("request_id", [None, 1, "", "x" * 129, "\ud800", ["r"], {}])
def test_a_request_without_a_usable_id_has_no_receipt(request_id: Any) -> None:
    item = of(request_id=request_id, row_ids=["a"])
    assert isinstance(item, Invalid)
    assert item.request_id is None
    assert item.dead_letter


def test_the_id_of_the_event_stands_in() -> None:
    plain = b'{"model_id": "m", "row_ids": ["a"]}'
    item = check(plain, headers=(("CE_ID", b"event"),))
    assert isinstance(item, Valid)
    assert item.request.request_id == "event"
    own = check(
        b'{"request_id": "own", "model_id": "m", "row_ids": ["a"]}', headers=(("ce_id", b"event"),)
    )
    assert isinstance(own, Valid)
    assert own.request.request_id == "own"
    assert isinstance(check(plain), Invalid)
    assert isinstance(check(plain, headers=(("ce_id", b"x" * 129),)), Invalid)


def test_structured_mode_by_content_type_and_by_its_looks() -> None:
    data = {"model_id": "m", "row_ids": ["a"]}
    event = {
        "specversion": "1.0", "id": "e", "source": "/x",
        "type": "lethe.deletion.requested.v1", "data": data,
    }  # fmt: skip
    text = json.dumps(event).encode()
    for headers in ((), (("Content-Type", b"application/cloudevents+json"),)):
        item = check(text, headers=headers)
        assert isinstance(item, Valid)
        assert item.request.request_id == "e"
    assert isinstance(check(json.dumps({**event, "data": "m"}).encode()), Invalid)
    assert isinstance(check(json.dumps({**event, "type": "other"}).encode()), Invalid)
    assert isinstance(check(json.dumps({**event, "type": 1}).encode()), Valid)


def test_refresh_events() -> None:
    item = check(b'{"job_id": "j", "model_id": "m", "new": 1}', headers=REFRESHED)
    assert isinstance(item, Refreshed)
    assert item.event.job_id == "j"
    for bad in (b"{}", b'{"job_id": 1, "model_id": "m"}', b'{"job_id": "", "model_id": "m"}'):
        refused = check(bad, headers=REFRESHED)
        assert isinstance(refused, Invalid)
        assert refused.request_id is None


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)
FIELDS = ["request_id", "model_id", "row_ids", "subject_id", "requested_at", "reason", "data", "id"]


# The first text that Hypothesis draws builds its table of characters, which takes a second.
@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    value=st.binary(max_size=64)
    | st.dictionaries(st.sampled_from(FIELDS), JSON).map(lambda d: json.dumps(d).encode()),
    key=st.none() | st.binary(max_size=8),
    headers=st.lists(
        st.tuples(
            st.sampled_from(["ce_type", "ce_id", "content-type", "x"]),
            st.binary(max_size=8)
            | st.sampled_from([b"lethe.refresh.completed.v1", b"application/cloudevents+json"]),
        ),
        max_size=3,
    ).map(tuple),
)
def test_nothing_is_raised_whatever_comes(value: bytes, key: bytes | None, headers: Any) -> None:
    item = check(value, key, headers)
    assert isinstance(item, Valid | Invalid | Refreshed)
    if isinstance(item, Invalid):
        for name in (item.model_id, item.request_id):
            assert name is None or 1 <= len(name.encode()) <= 4 * 128


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ({"model_id": "m", "row_ids": ["a"]}, "request_id: is missing"),
        (
            {"requestId": "r", "model_id": "m", "row_ids": ["a"]},
            "request_id: is missing; requestId: do you mean request_id?",
        ),
        (
            {"requestId": "r", "modelId": "m", "rowIds": ["a"]},
            "request_id: is missing; requestId: do you mean request_id?; modelId: do you mean "
            "model_id?; rowIds: do you mean row_ids?",
        ),
        (
            {"request_id": "r", "model_id": "m", "row_idss": ["a"]},
            "Value error, give row_ids or subject_id, one of the two; row_idss: do you mean "
            "row_ids?",
        ),
        ({"reqvest_id": "r", "model_id": "m", "subject_id": "s"}, "reqvest_id: do you mean"),
        ({"model_id": "m", "row_ids": ["a"], "x": 1, "ids": 2, 3: 4}, "request_id: is missing"),
    ],
)
def test_a_missing_member_is_called_missing_and_a_near_miss_by_its_right_name(
    body: dict[Any, Any], said: str
) -> None:
    item = check(json.dumps(body).encode())
    assert isinstance(item, Invalid)
    assert item.detail == said or (said.endswith("mean") and said in item.detail)
