"""What every request passes first, in front of an application that does nothing."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import structlog
from fastapi import FastAPI, Request
from fastapi.testclient import TestClient

from lethe.consumers.server import guard, problems
from lethe.consumers.server.guard import (
    MAX_BODY_BYTES,
    Access,
    CallerForAll,
    CallerOf,
    Guard,
    Rates,
    check_may_use,
)
from lethe.consumers.server.keys import Keys, issue_key
from lethe.consumers.service.telemetry.logs import configure_logging

SECURE = ("content-security-policy", "x-content-type-options", "referrer-policy", "cache-control")


@pytest.fixture(autouse=True)
def logging_as_before() -> Iterator[None]:
    yield
    structlog.reset_defaults()


def guarded(access: Access) -> TestClient:
    """Return a client of an application with one route of each kind."""
    app = FastAPI()
    problems.install(app)

    @app.get("/open")
    async def anybody() -> str:
        return "open"

    @app.get("/models/{name}")
    async def named(name: str, caller: CallerOf) -> str:
        check_may_use(caller, name)
        return caller.name

    @app.get("/all")
    async def everything(caller: CallerForAll) -> str:
        return caller.name

    @app.post("/body")
    async def body(request: Request) -> int:
        return len(await request.body())

    @app.get("/defect")
    async def defect() -> str:
        raise RuntimeError("secret")

    app.add_middleware(Guard, access=access)
    return TestClient(app, raise_server_exceptions=False)


@pytest.mark.parametrize("where", ["headers", "query", "path"])
def test_a_head_has_a_limit_whatever_is_long_in_it(where: str) -> None:
    client = guarded(Access())

    def asked(size: int) -> int:
        long = "a" * size
        if where == "headers":
            return client.get("/open", headers={"X-One": long, "X-Two": long}).status_code
        path = f"/open?{long}{long}" if where == "query" else f"/models/{long}{long}"
        return client.get(path).status_code

    assert asked(10_000) == 200
    assert asked(17_000) == 431


def test_a_request_has_a_length_or_chunks_and_not_both() -> None:
    """A proxy that counts and a server that reads chunks would see two requests, or one."""
    headers = {"Content-Length": "5", "Transfer-Encoding": "chunked"}
    refused = guarded(Access()).post("/body", content=b"0\r\n\r\n", headers=headers)

    assert (refused.status_code, refused.headers["connection"]) == (400, "close")


@pytest.fixture
def keys(tmp_path: Path) -> dict[str, str]:
    path = tmp_path / "api.keys"
    past = datetime.now(UTC) - timedelta(days=1)
    return {
        "path": str(path),
        "some": issue_key(path, "some", ["churn*"], None),
        "all": issue_key(path, "all", ["*"], None),
        "expired": issue_key(path, "expired", ["*"], past),
    }


def bearer(key: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {key}"}


def test_who_has_no_key_that_counts_is_refused(keys: dict[str, str]) -> None:
    client = guarded(Access(Keys(Path(keys["path"]))))

    for headers in (
        {},
        bearer("lethe_wrong"),
        bearer(keys["expired"]),
        {"Authorization": "Basic x"},
    ):
        refused = client.get("/models/churn", headers=headers)
        assert (refused.status_code, refused.json()["code"]) == (401, "UNAUTHENTICATED")
        assert refused.headers["www-authenticate"].startswith("Bearer")
    assert client.get("/models/churn-eu", headers=bearer(keys["some"])).json() == "some"


def test_a_model_of_somebody_else_is_not_found_as_one_that_is_not_there(
    keys: dict[str, str],
) -> None:
    client = guarded(Access(Keys(Path(keys["path"]))))

    refused = client.get("/models/prices", headers=bearer(keys["some"]))

    assert (refused.status_code, refused.json()["code"]) == (404, "UNKNOWN_MODEL")
    assert client.get("/all", headers=bearer(keys["some"])).status_code == 403
    assert client.get("/all", headers=bearer(keys["all"])).json() == "all"


def test_every_answer_carries_the_security_headers(keys: dict[str, str]) -> None:
    configure_logging()
    client = guarded(Access(Keys(Path(keys["path"]))))

    for path in ("/open", "/all", "/nowhere", "/defect"):
        assert all(name in client.get(path).headers for name in SECURE)


def test_a_defect_is_answered_without_a_traceback(capsys: pytest.CaptureFixture[str]) -> None:
    configure_logging("DEBUG")
    answer = guarded(Access()).get("/defect")

    assert (answer.status_code, answer.json()["code"]) == (500, "BUG")
    assert "secret" not in answer.text
    assert "RuntimeError: secret" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"Host": "evil.example"}, 421),
        ({"Host": "evil.example:8321"}, 421),
        ({"Host": ""}, 421),
        ({"Host": "127.0.0.1:8321"}, 200),
        ({"Host": "localhost"}, 200),
        ({"Host": "[::1]:8321"}, 200),
    ],
)
def test_without_keys_a_name_that_leads_here_is_not_enough(
    headers: dict[str, str], status: int
) -> None:
    client = guarded(Access(hosts=frozenset({"localhost", "127.0.0.1", "[::1]"})))

    assert client.get("/open", headers=headers).status_code == status


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"Sec-Fetch-Site": "cross-site"}, 403),
        ({"Sec-Fetch-Site": "same-site"}, 403),
        ({"Origin": "http://evil.example"}, 403),
        ({"Origin": "null"}, 403),
        ({"Origin": "http://[broken"}, 403),
        ({"Sec-Fetch-Site": "same-origin", "Origin": "http://testserver"}, 200),
        ({}, 200),
    ],
)
def test_a_page_of_another_site_cannot_send(headers: dict[str, str], status: int) -> None:
    assert guarded(Access()).post("/body", content=b"x", headers=headers).status_code == status


def test_a_body_has_a_limit_announced_or_not() -> None:
    client, most = guarded(Access()), MAX_BODY_BYTES

    def drips() -> Any:
        for _ in range(17):
            yield b"x" * (most // 16)

    assert client.post("/body", content=b"x" * most).json() == most
    for content in (b"x" * (most + 1), drips()):
        refused = client.post("/body", content=content)
        assert (refused.status_code, refused.json()["code"]) == (413, "TOO_LARGE")


def test_a_body_that_comes_too_slowly_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(guard, "BODY_SECONDS", 0.05)
    answered: list[dict[str, Any]] = []

    async def never() -> dict[str, Any]:
        await asyncio.sleep(60)
        return {}

    async def send(message: Any) -> None:
        answered.append(message)

    scope = {"type": "http", "method": "POST", "path": "/body", "raw_path": b"/body",
             "query_string": b"", "headers": [(b"host", b"x")], "client": ("here", 1)}  # fmt: skip

    async def call() -> None:
        await guarded(Access()).app(scope, never, send)

    asyncio.run(call())

    assert answered[0]["status"] == 408


def test_a_rate_is_kept_by_each_caller_alone() -> None:
    now = [0.0]
    rates = Rates(10, clock=lambda: now[0])

    allowed = [rates.wait_seconds("a") for _ in range(20)]
    assert allowed == [0.0] * 20
    assert rates.wait_seconds("a") == pytest.approx(0.1)
    assert rates.wait_seconds("b") == 0.0
    now[0] += 0.1
    assert rates.wait_seconds("a") == 0.0


def test_who_calls_too_often_is_told_how_long_to_wait() -> None:
    client = guarded(Access(rate=1))

    answers = [client.get("/open") for _ in range(3)]

    assert [one.status_code for one in answers] == [200, 200, 429]
    assert answers[2].headers["retry-after"] == "1"


def test_the_log_of_requests_names_routes_and_never_ids(
    keys: dict[str, str], capsys: pytest.CaptureFixture[str]
) -> None:
    client = guarded(Access(Keys(Path(keys["path"]))))

    client.get("/models/churn-of-ann?q=secret", headers=bearer(keys["some"]))

    out = capsys.readouterr().out
    assert "/models/{name}" in out
    assert not any(word in out for word in ("churn-of-ann", "secret", keys["some"]))
