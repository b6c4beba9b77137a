"""The console's forms and who may use them, without a browser: `tests/acceptance` has one."""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
from fastapi.testclient import TestClient
from httpx2 import Response

from lethe.consumers.contract import topics
from lethe.consumers.contract.erasure_events import SubjectErasureRequested
from lethe.consumers.contract.events import DeletionRequest
from lethe.consumers.server import feeds
from lethe.consumers.server.app import create_app
from lethe.consumers.server.console.install import CONTENT_SECURITY_POLICY, Console, install
from lethe.consumers.server.guard import Access
from lethe.consumers.server.index.published import followed
from lethe.consumers.server.index.schema import IndexFile
from lethe.consumers.server.keys import Keys, issue_key
from lethe.consumers.server.services import services_on
from lethe.consumers.workers.leases import Lease, RefreshShown
from lethe.engine.store.layout.keys import WORKERS, worker_lease
from tests.support import erasures
from tests.support.long_index import fill
from tests.support.platform import Platform

SUBJECT, ROW = "subject-1", "row-4"


class Visitor:
    """Somebody with a browser that runs no scripts."""

    def __init__(self, client: TestClient) -> None:
        self.client = client

    def get(self, path: str, **query: str) -> Response:
        return self.client.get(f"/console/{path}", params=query)

    def token(self, path: str = "delete") -> str:
        found = re.search(r'name="token" value="(\w+)"', self.get(path).text)
        assert found is not None
        return found[1]

    def post(self, path: str, form: dict[str, str] | None = None, **fields: str) -> Response:
        """Send a form as a page of the console would."""
        return self.post_with({}, path, **(form or {}), **fields)

    def post_with(self, headers: dict[str, str], path: str, **fields: str) -> Response:
        """Send a form with other headers; ``token`` is a page's, if none is given."""
        fields.setdefault("token", self.token())
        return self.client.post(
            f"/console/{path}", data=fields, headers=headers, follow_redirects=False
        )

    def until(self, text: str, path: str, **query: str) -> str:
        """Return a page once it holds a text: the index follows the topics in its own time."""
        end = time.monotonic() + 30
        while text not in (page := self.get(path, **query).text):
            assert time.monotonic() < end, page
            time.sleep(0.05)
        return page


@pytest.fixture
def visitor_of(memory: Platform, tmp_path: Path) -> Iterator[Callable[..., Visitor]]:
    """Make visitors of a console; ``keys`` is a file of keys."""
    memory.register("m")
    memory.register("n")
    with ExitStack() as stack:
        stop = threading.Event()
        stack.callback(stop.set)
        store = memory.new_store()
        stack.callback(store.close)
        published = stack.enter_context(followed(IndexFile(tmp_path), memory.log, store, None))
        services = stack.enter_context(services_on(memory.log, store, published, stop))

        def make(
            keys: Path | None = None, hosts: frozenset[str] | None = None, **options: Any
        ) -> Visitor:
            known = None if keys is None else Keys(keys)
            app = create_app(services, Access(known, hosts))
            console = Console(services, published.file, published.follower, known, **options)
            install(app, console)
            client = TestClient(app, base_url="http://127.0.0.1", raise_server_exceptions=False)
            return Visitor(stack.enter_context(client))

        yield make


def sent(memory: Platform, topic: str) -> list[Any]:
    kind = DeletionRequest if topic == topics.DELETIONS else SubjectErasureRequested
    return [
        kind.read(record.value or b"")
        for partition in memory.reader.partitions(topic)
        for record in memory.reader.read(partition, 0, 0.0, 100)[0]
    ]


def test_a_deletion_is_shown_before_it_is_sent_and_sent_once(
    memory: Platform, visitor_of: Callable[..., Visitor]
) -> None:
    visitor = visitor_of()
    form = {"model": "m", "by": "subject", "named": SUBJECT, "reason": "asked", "id": "r1"}
    shown = visitor.post("delete", form)
    assert shown.status_code == 200
    assert "Delete 3 rows" in shown.text
    assert sent(memory, topics.DELETIONS) == []

    done = visitor.post("delete/confirmed", form)
    assert done.status_code == 303
    assert SUBJECT not in done.headers["location"]
    [request] = sent(memory, topics.DELETIONS)
    assert (request.subject_id, request.request_id, request.reason) == (SUBJECT, "r1", "asked")
    memory.drain()
    visitor.until("3 rows deleted", "request", model="m", id="r1")

    again = visitor.post("request/again", model="m", id="r1")
    assert parse_qs(urlsplit(again.headers["location"]).query)["done"] == ["again"]
    assert sent(memory, topics.DELETIONS) == [request, request]
    memory.drain()
    assert memory.load("m").meta.rows_deleted == 3


def test_a_person_is_erased_from_every_model_by_a_form(
    memory: Platform, visitor_of: Callable[..., Visitor]
) -> None:
    visitor = visitor_of()
    shown = visitor.post("erase", subject=SUBJECT, id="ticket-7")
    assert "2 models know the person now" in shown.text
    assert sent(memory, topics.ERASURES) == []
    done = visitor.post("erase/confirmed", subject=SUBJECT, id="ticket-7", again=SUBJECT)

    assert done.headers["location"] == "/console/erasure?id=ticket-7&done=sent"
    [asked] = sent(memory, topics.ERASURES)
    assert (asked.subject_id, asked.erasure_id) == (SUBJECT, "ticket-7")
    visitor.until("for an erasure worker", "erasure", id="ticket-7")
    assert "ticket-7" in visitor.get("erasures").text


def test_an_erasure_that_no_model_knows_is_shown_as_such(
    memory: Platform, visitor_of: Callable[..., Visitor]
) -> None:
    """Before it is sent, with the spelling that a model knows; and afterwards."""
    visitor = visitor_of()
    other = SUBJECT.upper()
    shown = visitor.post("erase", subject=other, id="ticket-8").text
    assert "None of 2." in shown
    assert f'knows <span class="id">{SUBJECT}</span>' in shown
    visitor.post("erase/confirmed", subject=other, id="ticket-8")
    with closing(erasures.erasure_worker(memory)) as worker:
        erasures.drain(memory, worker)

    page = visitor.until("No model knows this person", "erasure", id="ticket-8")
    assert "knows another spelling" in page
    assert SUBJECT not in page
    assert "no model knows the person" in visitor.get("erasures").text


def test_a_row_or_a_subject_is_looked_up_in_every_model(
    memory: Platform, visitor_of: Callable[..., Visitor]
) -> None:
    visitor = visitor_of()
    memory.send("m", ROW)
    memory.drain()
    row = visitor.post("lookup", by="row", named=ROW).text
    assert re.findall(r'scope="row"><a[^>]*>(\w)</a>.*?</th><td class="number">(\d)', row) == [
        ("m", "0"), ("n", "1"),
    ]  # fmt: skip
    assert 'href="/console/requests?model=m&amp;version=1"' in row
    subject = visitor.post("lookup", by="subject", named=SUBJECT).text
    assert "2 models of 2" in subject
    assert "No model has or had it" in visitor.post("lookup", by="row", named="nobody").text


def test_refreshes_are_shown_to_who_may_see_their_models(
    memory: Platform, visitor_of: Callable[..., Visitor], tmp_path: Path
) -> None:
    visitor, path = visitor_of(), tmp_path / "api.keys"
    assert "No refresh worker has a job" in visitor.get("waiting").text
    now = datetime.now(UTC)
    runs = RefreshShown(
        model_id="m", job_id="j", reason="deferred", running=True, bytes=3.1e9, since=now
    )
    waits = runs.model_copy(update={"model_id": "n", "running": False, "bytes": 0.0})
    lease = Lease(
        role="refresh", host="here", pid=7, version="1", since=now, refreshes=(runs, waits)
    )
    memory.raw().sadd(WORKERS, "one")
    memory.raw().set(worker_lease("one"), lease.model_dump_json())
    page = visitor.get("waiting").text
    assert re.search(
        r">m</a></th><td>Runs since .*3,100 MB</td><td class=\"wide\">here", page, re.S
    )
    assert re.search(r">n</a></th><td>Waits since ", page)
    key = issue_key(path, "crm", ["m"], None)
    other = visitor_of(path)
    other.post("sign-in", token=other.token("sign-in"), key=key)
    page = other.get("waiting").text
    assert ">m</a></th><td>Runs" in page
    assert ">n</a></th>" not in page


def test_what_could_not_be_read_is_shown_with_the_reason_and_without_its_content(
    memory: Platform, visitor_of: Callable[..., Visitor]
) -> None:
    visitor = visitor_of()
    assert "No record was refused" in visitor.get("waiting").text
    memory.send_raw(b'{"requestId": "r", "model_id": "m", "row_ids": ["row-4711"]}')
    memory.drain()

    page = visitor.until("INVALID_REQUEST", "waiting")

    assert "request_id: is missing; requestId: do you mean request_id?" in page
    assert "row-4711" not in page
    assert f"{topics.DELETIONS}/" in page


@pytest.mark.parametrize(
    ("headers", "form"),
    [
        ({}, {"token": "wrong"}),
        ({}, {"token": ""}),
        ({"Origin": "https://evil.example"}, {}),
        ({"Origin": "null"}, {}),
        ({"Sec-Fetch-Site": "cross-site"}, {}),
        ({"Sec-Fetch-Site": "same-site"}, {}),
        ({"Sec-Fetch-Site": "none"}, {}),
        ({"Content-Type": "text/plain"}, {}),
    ],
)
def test_a_form_that_is_not_from_a_page_of_the_console_does_nothing(
    memory: Platform,
    visitor_of: Callable[..., Visitor],
    headers: dict[str, str],
    form: dict[str, str],
) -> None:
    named = {"model": "m", "by": "rows", "named": ROW} | form
    for path in ("delete/confirmed", "erase/confirmed", "request/again", "lookup"):
        answer = visitor_of().post_with(headers, path, subject=SUBJECT, **named)
        assert answer.status_code in (403, 415), path
    assert sent(memory, topics.DELETIONS) == sent(memory, topics.ERASURES) == []


@pytest.mark.parametrize(
    ("form", "said"),
    [
        ({"model": ""}, "Name a model"),
        ({"named": " \n "}, "Name a subject"),
        ({"named": "a\nb"}, "one subject"),
        ({"named": "x" * 129}, "128 characters"),
        ({"by": "rows", "named": "\n".join(str(i) for i in range(10_001))}, "at most 10,000"),
        ({"id": "r" * 129}, "128 characters"),
        ({"model": "<b>"}, "No model of this name is registered"),
    ],
)
def test_a_form_that_is_filled_in_wrongly_is_shown_again_with_what_is_wrong(
    memory: Platform, visitor_of: Callable[..., Visitor], form: dict[str, str], said: str
) -> None:
    answer = visitor_of().post("delete", {"model": "m", "named": SUBJECT} | form)
    assert answer.status_code == (200 if "registered" in said else 400)
    assert said in answer.text
    assert "<b>" not in answer.text
    assert sent(memory, topics.DELETIONS) == []


def test_an_address_without_a_page_has_one_that_says_so(
    visitor_of: Callable[..., Visitor],
) -> None:
    visitor = visitor_of()
    began = visitor.client.get("/", follow_redirects=False)
    assert (began.status_code, began.headers["Location"]) == (303, "/console/")
    lost = visitor.get("no/such")
    assert lost.status_code == 404
    assert "<h1>No such page</h1>" in lost.text
    assert visitor.client.get("/v1/nothing").headers["Content-Type"] == "application/problem+json"


def test_every_page_has_the_policy_and_is_not_kept(visitor_of: Callable[..., Visitor]) -> None:
    visitor = visitor_of()
    paths = ("requests", "request", "models", "model", "waiting", "erasures", "erasure", "erase",
             "delete", "lookup", "audit", "static/live.js", "nothing")  # fmt: skip
    for path in paths:
        headers = visitor.get(path).headers
        assert headers["content-security-policy"] == CONTENT_SECURITY_POLICY, path
        assert headers["x-content-type-options"] == "nosniff", path
        assert headers["cache-control"] in ("no-store", "no-cache"), path


def test_pages_of_100_000_requests_and_1_000_models_are_small_and_quick(
    visitor_of: Callable[..., Visitor], tmp_path: Path
) -> None:
    visitor = visitor_of()
    visitor.until("2 models", "models")
    fill(IndexFile(tmp_path), 100_000, 1_000)
    asked: tuple[tuple[str, dict[str, str]], ...] = (
        ("requests", {}), ("requests", {"status": "DEFERRED"}), ("models", {}),
        ("model", {"id": "model-0042"}), ("waiting", {}),
        ("request", {"model": "model-0042", "id": "request-000042"}),
    )  # fmt: skip
    spent = []
    for path, query in asked:
        begin = time.process_time()
        page = visitor.get(path, **query)
        spent.append(time.process_time() - begin)
        assert page.status_code == 200, page.text
        assert len(page.content) < 200_000, path

    assert max(spent) < 1.0, spent


def test_without_keys_another_name_for_this_machine_is_refused(
    visitor_of: Callable[..., Visitor],
) -> None:
    visitor = visitor_of(hosts=frozenset({"127.0.0.1"}))
    assert visitor.get("requests").status_code == 200
    other = visitor.client.get("/console/requests", headers={"Host": "evil.example:8321"})
    assert other.status_code == 421


def test_with_keys_a_session_shows_the_models_of_its_key_and_ends_with_it(
    memory: Platform, visitor_of: Callable[..., Visitor], tmp_path: Path
) -> None:
    path = tmp_path / "api.keys"
    key = issue_key(path, "crm", ["m"], None)
    memory.send_index("m", 0, request_id="of-m")
    memory.send_index("n", 0, request_id="of-n")
    memory.drain()
    visitor = visitor_of(path)
    visitor.until("Sign in", "requests")
    for wrong in ("", "lethe_wrong", key + "x"):
        answer = visitor.post("sign-in", token=visitor.token("sign-in"), key=wrong)
        assert answer.status_code == 403
    for there in ("https://evil.example/", "//evil.example", "/console/\\evil", "/v1/models"):
        form = {"token": visitor.token("sign-in"), "key": key, "next": there}
        answer = visitor.client.post("/console/sign-in", data=form, follow_redirects=False)
        assert answer.headers["location"] == "/console/"
    cookie = answer.headers["set-cookie"].lower()
    assert all(part in cookie for part in ("httponly", "samesite=strict", "path=/console"))
    assert key not in cookie

    page = visitor.until("of-m", "requests")
    assert "of-n" not in page
    assert ">n<" not in visitor.get("models").text
    assert visitor.get("model", id="n").status_code == 404
    assert visitor.get("request", model="n", id="of-n").status_code == 404
    assert "1 model of 1" in visitor.post("lookup", by="subject", named="subject-9").text
    assert visitor.post("delete", model="n", named=SUBJECT).status_code == 400
    assert (
        visitor.post("request/again", model="n", id="of-n")
        .headers["location"]
        .startswith("/console/sign-in")
    )
    assert visitor.get("erasures").status_code == 403
    assert visitor.post("erase/confirmed", subject=SUBJECT).status_code == 403

    path.write_text("# withdrawn\n")
    visitor.until("Sign in", "models")
    assert sent(memory, topics.ERASURES) == []


def test_a_session_ends_when_its_holder_says_so(
    visitor_of: Callable[..., Visitor], tmp_path: Path
) -> None:
    path = tmp_path / "api.keys"
    key = issue_key(path, "all", ["*"], None)
    visitor = visitor_of(path)
    visitor.client.post(
        "/console/sign-in", data={"token": visitor.token("sign-in"), "key": key}
    ).raise_for_status()
    assert visitor.get("erase").status_code == 200
    before = dict(visitor.client.cookies)
    visitor.post("sign-out")
    visitor.client.cookies.update(before)
    assert "Sign in" in visitor.get("requests").text


def test_the_streams_of_pages_are_limited_as_those_of_the_api_are(
    visitor_of: Callable[..., Visitor], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(feeds, "MAX_STREAMS", 0)
    visitor = visitor_of()
    answer = visitor.client.get("/console/live", headers={"Accept": "text/event-stream"})

    assert (answer.status_code, answer.json()["code"]) == (503, "BUSY")
