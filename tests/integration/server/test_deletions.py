"""A deletion over HTTP: acknowledged, decided once, and read back under its Location."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from fastapi.testclient import TestClient

from lethe.consumers.contract import topics
from tests.support.platform import Platform, row_ids

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
