"""A deletion over HTTP: acknowledged, decided once, and read back under its Location."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from fastapi.testclient import TestClient

from lethe.consumers.contract import topics
from lethe.consumers.contract.events import DELETION_REQUESTED
from lethe.consumers.contract.requests import erasure_request_id
from lethe.consumers.contract.signatures import Signer
from lethe.consumers.contract.tlog import MEDIA_TYPE
from lethe.consumers.log.base import Producer
from lethe.consumers.server.app import create_app
from lethe.engine.errors import LogUnavailable
from tests.support.http_server import services_of
from tests.support.lost_topics import go_on_without, make_again
from tests.support.platform import Platform, row_ids
from tests.support.waiting import until

ClientOf = Callable[[Platform], TestClient]


def test_a_request_is_acknowledged_then_its_location_has_the_receipt(
    platform_on: Callable[..., Platform], client_of: ClientOf
) -> None:
    platform = platform_on("streams")
    platform.register("m")
    client, rows = client_of(platform), row_ids(platform.data["m"])[:2]

    sent = client.post(
        "/v1/models/m/deletions", json={"request_id": "first", "row_ids": list(rows)}
    )
    waiting = client.get(sent.headers["location"])
    platform.drain()
    decided = client.get(sent.headers["location"])

    assert sent.status_code == 202
    assert (waiting.status_code, waiting.headers["retry-after"]) == (202, "1")
    assert (decided.status_code, decided.json()["status"]) == (200, "APPLIED")
    assert decided.json()["rows_deleted"] == 2
    assert "retry-after" not in decided.headers


def _given(signer: Signer | None) -> Signer | None:
    return signer


def test_a_server_or_a_history_without_a_key_proves_no_receipt(
    memory: Platform, tmp_path: Path
) -> None:
    """It answers 406, and never with a tree head that nobody signed before."""
    memory.register("m")
    memory.send("m", row_ids(memory.data["m"])[0], request_id="r")
    memory.drain()
    headers = {"Accept": MEDIA_TYPE}
    with services_of(memory, tmp_path) as services:
        for signer in (None, Signer(Ed25519PrivateKey.generate())):
            app = create_app(replace(services, proof_signer=partial(_given, signer)))
            with TestClient(app, raise_server_exceptions=False) as client:
                answer = client.get("/v1/models/m/deletions/r", headers=headers)
                assert (answer.status_code, answer.json()["code"]) == (406, "NOT_ACCEPTABLE")
                assert client.get("/v1/models/m/deletions/r").status_code == 200


def test_a_request_whose_topic_was_lost_is_not_called_pending(
    memory: Platform, client_of: ClientOf
) -> None:
    memory.register("m")
    memory.drain()
    client, row = client_of(memory), row_ids(memory.data["m"])[0]
    sent = client.post("/v1/models/m/deletions", json={"request_id": "r", "row_ids": [row]})
    location = sent.headers["location"]
    make_again(memory, topics.DELETIONS)
    assert client.get(location).status_code == 202  # nobody has given it up yet
    go_on_without(memory, topics.DELETIONS)
    answer = client.get(location)
    assert answer.status_code == 404
    assert "Send it again under the same ids" in answer.json()["detail"]


@pytest.mark.parametrize("header", ["again", '"again"'])
def test_the_idempotency_key_is_the_identity_where_the_body_has_none(
    memory: Platform, client_of: ClientOf, header: str
) -> None:
    memory.register("m")
    client, row = client_of(memory), row_ids(memory.data["m"])[0]

    answers = [
        client.post(
            "/v1/models/m/deletions", json={"row_ids": [row]}, headers={"Idempotency-Key": header}
        )
        for _ in range(2)
    ]
    memory.drain()

    assert [one.json()["request_id"] for one in answers] == ["again", "again"]
    assert client.get(answers[0].headers["location"]).json()["rows_deleted"] == 1
    assert memory.store.load_model("m").version == 1


def test_while_the_log_is_down_nothing_is_accepted_and_the_same_request_sent_again_counts_once(
    memory: Platform, client_of: ClientOf, monkeypatch: pytest.MonkeyPatch
) -> None:
    memory.register("m")
    body = {"request_id": "r", "row_ids": list(row_ids(memory.data["m"])[:1])}

    def refuse() -> Producer:
        raise LogUnavailable("no broker answers")

    with monkeypatch.context() as down:
        down.setattr(memory.log, "producer", refuse)
        client = client_of(memory)
        refused = [client.post("/v1/models/m/deletions", json=body) for _ in range(2)]
        assert memory.records(topics.DELETIONS) == []
    accepted = [client_of(memory).post("/v1/models/m/deletions", json=body) for _ in range(2)]
    memory.drain()

    for answer in refused:
        assert (answer.status_code, answer.headers["retry-after"]) == (503, "1")
        assert answer.json()["code"] == "LOG_UNAVAILABLE"
        assert answer.json()["request_id"] == "r"
    assert [one.status_code for one in accepted] == [202, 202]
    assert memory.store.load_model("m").meta.rows_deleted == 1


@pytest.mark.parametrize("restarted", [False, True])
def test_a_request_that_came_before_its_model_waits_again_when_it_is_sent_again(
    memory: Platform, client_of: ClientOf, restarted: bool
) -> None:
    client = client_of(memory)
    memory.send("m", "row-0", request_id="r")
    memory.drain()
    where = "/v1/models/m/deletions/r"
    until(lambda: client.get(where).status_code == 200, 60.0)
    early = client.get(where)
    memory.register("m")
    sent = client.post("/v1/models/m/deletions", json={"request_id": "r", "row_ids": ["row-0"]})
    waiting = (client_of(memory) if restarted else client).get(where)
    memory.drain()

    assert early.json()["code"] == "UNKNOWN_MODEL"
    assert (sent.status_code, waiting.status_code) == (202, 202)
    assert client.get(where).json()["status"] == "APPLIED"


def test_a_body_names_no_model_but_that_of_the_path(memory: Platform, client_of: ClientOf) -> None:
    """Given an event in the body, as a record of the topic may have one, its model is not asked."""
    memory.register("m")
    memory.register("other")
    inner = {"request_id": "r", "model_id": "other", "row_ids": list(row_ids(memory.data["other"]))}
    kind = {"specversion": "1.0", "type": DELETION_REQUESTED, "id": "r", "source": "/s"}
    client = client_of(memory)

    refused = client.post("/v1/models/m/deletions", json=kind | {"data": inner})
    sent = client.post("/v1/models/m/deletions", json=kind | {"row_ids": ["x"]})

    assert (refused.status_code, sent.status_code) == (400, 202)
    assert [
        json.loads(one.value or b"")["model_id"] for one in memory.records(topics.DELETIONS)
    ] == ["m"]


def test_an_id_with_another_content_is_a_conflict(memory: Platform, client_of: ClientOf) -> None:
    memory.register("m")
    client, rows = client_of(memory), row_ids(memory.data["m"])

    client.post("/v1/models/m/deletions", json={"request_id": "r", "row_ids": [rows[0]]})
    other = client.post("/v1/models/m/deletions", json={"request_id": "r", "row_ids": [rows[1]]})

    assert (other.status_code, other.json()["code"]) == (409, "REQUEST_ID_CONFLICT")
    memory.drain()
    later = client_of(memory)  # another server, which has not seen the first one
    body = {"request_id": "r", "row_ids": [rows[1]]}
    other = later.post("/v1/models/m/deletions", json=body)
    assert (other.status_code, other.json()["code"]) == (409, "REQUEST_ID_CONFLICT")
    assert len(memory.records(topics.DELETIONS)) == 1


def test_who_sent_another_content_meanwhile_is_told_of_no_receipt(
    memory: Platform, client_of: ClientOf
) -> None:
    """The first request was on its way when another server took the second one."""
    memory.register("m")
    rows, where = row_ids(memory.data["m"]), "/v1/models/m/deletions"
    first, later = client_of(memory), client_of(memory)

    first.post(where, json={"request_id": "r", "row_ids": [rows[0]]})
    other = later.post(where, json={"request_id": "r", "row_ids": [rows[1]]})
    memory.drain()
    told = later.get(other.headers["location"])

    assert (told.status_code, told.json()["code"]) == (409, "REQUEST_ID_CONFLICT")
    assert first.get(other.headers["location"]).json()["status"] == "APPLIED"
    assert memory.load("m").meta.rows_deleted == 1


def test_an_id_with_a_slash_is_one_segment_of_a_path(memory: Platform, client_of: ClientOf) -> None:
    memory.register("a/b")
    client, row = client_of(memory), row_ids(memory.data["a/b"])[0]

    sent = client.post("/v1/models/a%2Fb/deletions", json={"request_id": "../x", "row_ids": [row]})
    memory.drain()

    assert sent.headers["location"] == "/v1/models/a%2Fb/deletions/..%2Fx"
    assert client.get(sent.headers["location"]).json()["request_id"] == "../x"


@pytest.mark.parametrize(
    ("body", "status", "code"),
    [
        ({"row_ids": []}, 400, "INVALID_REQUEST"),
        ({"row_ids": ["u1"], "subject_id": "s"}, 400, "INVALID_REQUEST"),
        ({"row_ids": ["u1"], "model_id": "another"}, 400, "INVALID_REQUEST"),
        ({"row_ids": [1.5]}, 400, "INVALID_REQUEST"),
        ({"row_ids": ["u"] * 10_001}, 400, "TOO_MANY_ROWS"),
        ([], 400, "INVALID_REQUEST"),
    ],
)
def test_a_body_that_a_worker_would_refuse_is_refused_at_once(
    memory: Platform, client_of: ClientOf, body: object, status: int, code: str
) -> None:
    memory.register("m")

    refused = client_of(memory).post("/v1/models/m/deletions", json=body)

    assert (refused.status_code, refused.json()["code"]) == (status, code)
    assert refused.headers["content-type"] == "application/problem+json"


def test_a_model_that_is_not_registered_is_not_found(memory: Platform, client_of: ClientOf) -> None:
    sent = client_of(memory).post("/v1/models/nobody/deletions", json={"row_ids": ["u1"]})

    assert (sent.status_code, sent.json()["code"]) == (404, "UNKNOWN_MODEL")


@pytest.mark.parametrize(
    ("content", "headers", "status", "code"),
    [
        (b'{"row_ids": ["u1"]}', {"Content-Type": "text/plain"}, 415, "UNSUPPORTED_MEDIA_TYPE"),
        (b'{"row_ids": ["u1"]}', {"Content-Type": ""}, 415, "UNSUPPORTED_MEDIA_TYPE"),
        (b'{"row_ids": ["u1"]', {}, 400, "INVALID_REQUEST"),
        (b"\xff\xfe", {}, 400, "INVALID_REQUEST"),
        (b'{"row_ids": ["u1"], "row_ids": ["u2"]}', {}, 400, "INVALID_REQUEST"),
        (b'{"row_ids": ["u1"], "reason": NaN}', {}, 400, "INVALID_REQUEST"),
        (b'{"row_ids": ["u1"], "reason": "\\ud800"}', {}, 400, "INVALID_REQUEST"),
        (b'{"reason": ' + b"[" * 20 + b"]" * 20 + b"}", {}, 400, "INVALID_REQUEST"),
        (b"[" * 100_000, {}, 400, "INVALID_REQUEST"),
        (b'{"row_ids": ["' + b"u" * (1 << 20) + b'"]}', {}, 413, "TOO_LARGE"),
        (b'{"row_ids":["u"],"request_id":"a"}', {"Idempotency-Key": "b"}, 400, "INVALID_REQUEST"),
        (b'{"row_ids": ["u1"], "request_id": 7}', {}, 400, "INVALID_REQUEST"),
        (b'{"row_ids": ["u1"]}', {"Idempotency-Key": "x" * 129}, 400, "INVALID_REQUEST"),
    ],
)  # fmt: skip
def test_a_body_that_cannot_be_read_is_refused_and_nothing_is_sent(
    memory: Platform,
    client_of: ClientOf,
    content: bytes,
    headers: dict[str, str],
    status: int,
    code: str,
) -> None:
    memory.register("m")
    sent = {"Content-Type": "application/json", **headers}

    refused = client_of(memory).post("/v1/models/m/deletions", content=content, headers=sent)

    assert (refused.status_code, refused.json()["code"]) == (status, code)
    assert refused.headers["content-type"] == "application/problem+json"
    assert not memory.records(topics.DELETIONS)


def test_html_in_ids_and_reasons_comes_back_as_the_text_that_it_is(
    memory: Platform, client_of: ClientOf
) -> None:
    memory.register("m")
    client, markup = client_of(memory), "<script>alert('x')</script>"

    sent = client.post(
        "/v1/models/m/deletions",
        json={"request_id": markup, "row_ids": [markup], "reason": markup},
    )
    memory.drain()
    receipt = client.get(sent.headers["location"])

    assert "<" not in sent.headers["location"]
    assert receipt.json()["request_id"] == markup
    for answer in (sent, receipt):
        assert answer.headers["content-type"] == "application/json"
        assert answer.headers["x-content-type-options"] == "nosniff"


def test_the_trace_context_of_a_request_goes_with_it_to_the_log(
    memory: Platform, client_of: ClientOf
) -> None:
    memory.register("m")
    row = row_ids(memory.data["m"])[0]
    parent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
    context = {"traceparent": parent, "tracestate": "vendor=1"}
    client_of(memory).post("/v1/models/m/deletions", json={"row_ids": [row]}, headers=context)
    [record] = memory.records(topics.DELETIONS)
    named = dict(record.headers)
    assert (named["traceparent"], named["tracestate"]) == (parent.encode(), b"vendor=1")


@pytest.mark.parametrize(
    "request_id", ["\0", "a\0b", "\n", "%", "%2e", "a/..", "...", "\N{SNOWMAN}"]
)
def test_every_id_that_is_accepted_is_read_back_under_its_location(
    memory: Platform, client_of: ClientOf, request_id: str
) -> None:
    memory.register("m")
    client, row = client_of(memory), row_ids(memory.data["m"])[0]
    deletion = {"request_id": request_id, "row_ids": [row]}
    erasure = {"erasure_id": request_id, "subject_id": "nobody"}
    for path, body in (("/v1/models/m/deletions", deletion), ("/v1/erasures", erasure)):
        sent = client.post(path, json=body)
        assert sent.status_code == 202
        assert client.get(sent.headers["location"]).status_code == 202
    memory.drain()
    assert (
        client.get(client.post("/v1/models/m/deletions", json=deletion).headers["location"]).json()[
            "request_id"
        ]
        == request_id
    )


def test_an_id_of_an_erasures_request_is_not_taken(memory: Platform, client_of: ClientOf) -> None:
    """It would take what is disclosed of the rows for a person's, of whom nothing is kept."""
    memory.register("m")
    client, name = client_of(memory), erasure_request_id("a" * 64)
    body = {"row_ids": [row_ids(memory.data["m"])[0]]}
    for sent in (
        client.post("/v1/models/m/deletions", json={**body, "request_id": name}),
        client.post("/v1/models/m/deletions", json=body, headers={"Idempotency-Key": name}),
    ):
        assert (sent.status_code, sent.json()["code"]) == (400, "INVALID_REQUEST")
        assert "choose another" in sent.json()["detail"]
    assert memory.records(topics.DELETIONS) == []


@pytest.mark.parametrize("request_id", [".", ".."])
def test_an_id_that_clients_take_for_a_step_in_the_path_is_not_accepted(
    memory: Platform, client_of: ClientOf, request_id: str
) -> None:
    """They take it out of the Location, percent-encoded or not, and ask for something else."""
    memory.register("m")
    client = client_of(memory)
    for path, body in (
        ("/v1/models/m/deletions", {"request_id": request_id, "row_ids": ["r"]}),
        ("/v1/erasures", {"erasure_id": request_id, "subject_id": "s"}),
    ):
        refused = client.post(path, json=body)
        named = client.post(
            path,
            json={**body, "request_id": None, "erasure_id": None},
            headers={"Idempotency-Key": request_id},
        )
        for one in (refused, named):
            assert (one.status_code, one.json()["code"]) == (400, "INVALID_REQUEST")
    assert memory.records(topics.DELETIONS) == memory.records(topics.ERASURES) == []
