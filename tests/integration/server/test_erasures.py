"""A person is erased over HTTP: by Lethe's own route, and by OpenDSR, with what may go wrong."""

from __future__ import annotations

import json
import socket
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from fastapi.testclient import TestClient

from lethe.consumers.contract import topics
from lethe.consumers.contract.signatures import Signer
from lethe.consumers.server.app import create_app
from lethe.consumers.server.guard import Access
from lethe.consumers.server.index.erasures import erasures_page
from lethe.consumers.server.index.schema import IndexFile
from lethe.consumers.server.keys import Keys, issue_key
from lethe.consumers.server.opendsr import callbacks, desk
from lethe.consumers.server.opendsr.opened import opendsr_on
from lethe.consumers.server.services import Services
from lethe.consumers.service.client import Client
from lethe.engine.errors import LogUnavailable
from tests.support import erasures
from tests.support.erasures import outcomes
from tests.support.http_server import services_of
from tests.support.memory_log import MemoryLog
from tests.support.platform import Platform
from tests.support.waiting import until
from tests.unit.server.test_opendsr import listener

_SECONDS = 120.0


def decide(platform: Platform) -> None:
    """Let all workers work until nothing is left."""
    with closing(erasures.erasure_worker(platform)) as worker:
        erasures.drain(platform, worker)


def test_the_evidence_of_an_erasure_is_one_file_and_the_persons_own_copy_another(
    memory: Platform, tmp_path: Path
) -> None:
    erasures.register(memory, "churn")
    with (
        services_of(memory, tmp_path, seals=memory.seals) as services,
        TestClient(create_app(services), raise_server_exceptions=False) as client,
    ):
        check_evidence(memory, client)


def check_evidence(memory: Platform, client: TestClient) -> None:
    address = "/v1/erasures/e%2F1/evidence"
    assert client.get(address).json()["code"] == "UNKNOWN_ERASURE"
    erasures.erase(memory, "subject-7", "e/1")
    decide(memory)

    answer, own = client.get(address), client.post(address, json={"subject_id": "subject-7"})
    assert (answer.status_code, own.status_code) == (200, 200)
    assert "subject-7" not in answer.text
    assert own.text.splitlines()[1:-2] == answer.text.splitlines()[1:-1]
    assert '"opening":{"subject_id":"subject-7"' in own.text.splitlines()[-2]
    for body in ({"subject_id": "subject-8"}, {"subject_id": 7}, {}):
        assert client.post(address, json=body).status_code == 400


def test_an_erasure_is_acknowledged_then_its_location_has_the_combined_receipt(
    memory: Platform, client_of: Callable[[Platform], TestClient]
) -> None:
    for model in ("churn", "risk"):
        erasures.register(memory, model)
    client = client_of(memory)

    body = {"erasure_id": "e/1", "subject_id": "subject-7"}
    sent = client.post("/v1/erasures", json=body)
    again = client.post("/v1/erasures", json=body)
    other = client.post("/v1/erasures", json={**body, "subject_id": "subject-8"})
    waiting = client.get(sent.headers["location"])
    decide(memory)
    receipt = client.get(sent.headers["location"])

    assert (sent.status_code, sent.headers["location"]) == (202, "/v1/erasures/e%2F1")
    assert again.status_code == 202
    assert (other.status_code, other.json()["code"]) == (409, "REQUEST_ID_CONFLICT")
    assert (waiting.status_code, waiting.json()["status"]) == (202, "PENDING")
    assert (receipt.status_code, receipt.json()["complete"]) == (200, True)
    assert outcomes(erasures.finals(memory)["e/1"]) == {
        "churn": ("APPLIED", 3),
        "risk": ("APPLIED", 3),
    }
    assert client.get("/v1/erasures/another").status_code == 404
    assert client.post("/v1/erasures", json={"subject_id": ""}).json()["code"] == "INVALID_REQUEST"


@pytest.mark.parametrize("decided", [True, False])
def test_an_id_with_another_subject_is_a_conflict_on_another_server_too(
    memory: Platform, client_of: Callable[[Platform], TestClient], decided: bool
) -> None:
    """While the first is on its way, and once it is final."""
    erasures.register(memory, "churn")
    body = {"erasure_id": "e-1", "subject_id": "subject-7"}
    first = client_of(memory)
    first.post("/v1/erasures", json=body)
    if decided:
        decide(memory)
    later = client_of(memory)
    other = later.post("/v1/erasures", json={**body, "subject_id": "subject-8"})
    decide(memory)
    told = later.get("/v1/erasures/e-1")
    again = client_of(memory).post("/v1/erasures", json=body)

    # While it is on its way, the other server may not have read it before it takes the second.
    conflict = other if decided or other.status_code != 202 else told
    assert (conflict.status_code, conflict.json()["code"]) == (409, "REQUEST_ID_CONFLICT")
    assert first.get("/v1/erasures/e-1").json()["complete"]
    assert again.status_code == 202
    assert set(erasures.rows_of(8)) <= erasures.live_rows(memory, "churn")


@pytest.mark.parametrize("outer", [{}, {"erasure_id": "outer"}, {"subject_id": "subject-8"}])
def test_a_body_is_the_data_of_an_event_and_never_an_event(
    memory: Platform, client_of: Callable[[Platform], TestClient], outer: dict[str, str]
) -> None:
    """What is in one would be erased under an id that the answer and the key do not name."""
    erasures.register(memory, "churn")
    inner = {"erasure_id": "inner", "subject_id": "subject-7"}
    wrapped = {"specversion": "1.0", "source": "x", "id": "inner", "data": inner} | outer
    wrapped["type"] = "lethe.subject.erasure.requested.v1"
    client = client_of(memory)
    sent = client.post("/v1/erasures", json=wrapped, headers={"Idempotency-Key": "outer"})
    decide(memory)

    assert client.get("/v1/erasures/inner").status_code == 404
    assert set(erasures.rows_of(7)) <= erasures.live_rows(memory, "churn")
    if "subject_id" in outer:  # the other members are ones that nobody knows
        assert sent.json()["erasure_id"] == "outer"
        assert outcomes(erasures.finals(memory)["outer"]) == {"churn": ("APPLIED", 3)}
        assert not set(erasures.rows_of(8)) & erasures.live_rows(memory, "churn")
    else:
        assert (sent.status_code, sent.json()["code"]) == (400, "INVALID_REQUEST")


@contextmanager
def server(platform: Platform, directory: Path, *, sealed: bool = True) -> Iterator[TestClient]:
    """Yield a client of a server that ends with the block; ``sealed``: it has the seal keys."""
    seals = platform.seals if sealed else None
    with (
        services_of(platform, directory, seals=seals) as services,
        TestClient(create_app(services), raise_server_exceptions=False) as client,
    ):
        yield client


def forget_requests(platform: Platform) -> None:
    """Remove the erasures from the log: Redis Streams does so at once, Kafka after 30 days."""
    log = platform.log
    assert isinstance(log, MemoryLog)
    [partition] = platform.reader.partitions(topics.ERASURES)
    log.trim(partition, log.bounds(partition).end)


def indexed(directory: Path) -> bool:
    """Return whether the index has an erasure."""
    with IndexFile(directory).read() as connection:
        return erasures_page(connection).total > 0


SEVEN = {"erasure_id": "e-1", "subject_id": "subject-7"}
EIGHT = {"erasure_id": "e-1", "subject_id": "subject-8"}


@pytest.mark.parametrize("sealed", [True, False])
def test_what_an_id_stands_for_outlives_the_server_and_the_log(
    memory: Platform, tmp_path: Path, sealed: bool
) -> None:
    """Without the seal keys nobody can tell, so that a repeat is refused as well."""
    erasures.register(memory, "churn")
    with server(memory, tmp_path) as first:
        assert first.post("/v1/erasures", json=SEVEN).status_code == 202
    decide(memory)
    forget_requests(memory)

    with server(memory, tmp_path, sealed=sealed) as later:
        codes = [later.post("/v1/erasures", json=body).status_code for body in (EIGHT, SEVEN)]
        lift = later.post("/v1/erasures", json={**SEVEN, "lift": True})
        other = later.post("/v1/erasures", json={**SEVEN, "namespace": "crm"})
        told = later.get("/v1/erasures/e-1")

    assert codes == ([409, 202] if sealed else [409, 409])
    assert (lift.status_code, other.status_code) == (409, 409)
    assert told.json()["complete"], "it is that of the first"


def test_an_id_that_waits_is_taken_after_the_server_has_restarted(
    memory: Platform, tmp_path: Path
) -> None:
    erasures.register(memory, "churn")
    with server(memory, tmp_path) as first:
        first.post("/v1/erasures", json=SEVEN)
        until(lambda: indexed(tmp_path), _SECONDS)
    with server(memory, tmp_path, sealed=False) as later:
        other = later.post("/v1/erasures", json=EIGHT)
        again = later.post("/v1/erasures", json=SEVEN)

    assert (other.status_code, other.json()["code"]) == (409, "REQUEST_ID_CONFLICT")
    assert again.status_code == 202


def test_a_server_that_took_an_id_without_knowing_tells_of_no_other_persons_receipt(
    memory: Platform, tmp_path: Path
) -> None:
    """Two servers with an index each take one id at the same time."""
    erasures.register(memory, "churn")
    with (
        server(memory, tmp_path / "one") as first,
        server(memory, tmp_path / "two") as second,
    ):
        first.post("/v1/erasures", json=SEVEN)
        sent = second.post("/v1/erasures", json=EIGHT)
        decide(memory)
        forget_requests(memory)
        told, mine = second.get("/v1/erasures/e-1"), first.get("/v1/erasures/e-1")

    assert mine.json()["complete"]
    if sent.status_code == 202:  # the second had not read the first one's request
        assert (told.status_code, told.json()["code"]) == (409, "REQUEST_ID_CONFLICT")
    else:
        assert sent.status_code == 409
    assert set(erasures.rows_of(8)) <= erasures.live_rows(memory, "churn")


# -- OpenDSR --------------------------------------------------------------------------------------

FILE = """
domain = "lethe.example.com"
hold = {hold}

[[identities]]
type = "controller_customer_id"
prefix = "subject-"

[callbacks]
allow = ["{url}"]
private = true
"""


class Controller:
    """A data controller and its server."""

    def __init__(self, client: TestClient) -> None:
        self.client = client

    def ask(self, *customers: str, **members: Any) -> tuple[str, Any]:
        """Ask for the erasure of customers; return the id of the request, and the answer."""
        name = members.pop("subject_request_id", str(uuid.uuid4()))
        body = {
            "regulation": "gdpr",
            "subject_request_id": name,
            "subject_request_type": "erasure",
            "submitted_time": "2026-10-02T15:00:00Z",
            "subject_identities": [
                {"identity_type": "controller_customer_id", "identity_value": customer,
                 "identity_format": "raw"} for customer in customers
            ],
            **members,
        }  # fmt: skip
        return name, self.client.post("/opendsr/v1/requests", json=body)

    def status(self, name: str) -> Any:
        """Return where a request stands."""
        return self.client.get(f"/opendsr/v1/requests/{name}").json().get("request_status")

    def wait_for(self, name: str, status: str) -> None:
        """Return once a request stands there."""
        end = time.monotonic() + _SECONDS
        while self.status(name) != status:
            assert time.monotonic() < end, self.status(name)
            time.sleep(0.02)


@pytest.fixture
def controller_of(
    memory: Platform, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Callable[..., Controller]]:
    """Make servers that offer OpenDSR on one platform; they end with the test."""
    monkeypatch.setattr(desk, "POLL_SECONDS", 0.02)
    monkeypatch.setattr(desk, "LOOK_SECONDS", 0.02)
    with ExitStack() as stack:

        def make(
            hold: float = 0, url: str = "http://127.0.0.1:1/", access: Access | None = None
        ) -> Controller:
            directory = tmp_path / uuid.uuid4().hex
            directory.mkdir()
            file = directory / "opendsr.toml"
            file.write_text(FILE.format(hold=hold, url=url))
            services: Services = stack.enter_context(services_of(memory, directory))
            app = create_app(services, access)
            signer = Signer(Ed25519PrivateKey.generate())
            stack.enter_context(opendsr_on(app, services, file, signer))
            return Controller(stack.enter_context(TestClient(app, raise_server_exceptions=False)))

        yield make


def test_a_request_of_a_controller_is_sent_decided_and_called_back(
    memory: Platform, controller_of: Callable[..., Controller]
) -> None:
    erasures.register(memory, "churn")
    with listener(200) as (url, came):
        controller = controller_of(url=url)
        name, sent = controller.ask("1", "2", status_callback_urls=[url + "done"])
        controller.wait_for(name, "in_progress")
        decide(memory)
        controller.wait_for(name, "completed")
        end = time.monotonic() + _SECONDS
        while len(came) < 2 and time.monotonic() < end:
            time.sleep(0.02)

    assert sent.status_code == 201
    assert {"controller_id", "received_time", "encoded_request"} <= sent.json().keys()
    assert sent.headers["x-opendsr-signature"]
    assert [json.loads(body)["request_status"] for _, body, _ in came] == [
        "in_progress",
        "completed",
    ]
    assert memory.load("churn").meta.rows_deleted == 6
    found = controller.client.get("/opendsr/v1/discovery").json()
    assert found["supported_subject_request_types"] == ["erasure"]
    certificate = controller.client.get("/opendsr/v1/certificate")
    assert certificate.text.startswith("-----BEGIN CERTIFICATE-----")


def test_nothing_of_opendsr_answers_a_key_that_is_not_for_every_model(
    controller_of: Callable[..., Controller], tmp_path: Path
) -> None:
    path = tmp_path / "api.keys"
    only, every = (
        issue_key(path, name, [models], None) for name, models in (("a", "m"), ("b", "*"))
    )
    controller = controller_of(access=Access(Keys(path)))
    client, name = controller.client, str(uuid.uuid4())
    routes = [
        (method.upper(), route.replace("{subject_request_id}", name))
        for route, methods in client.get("/openapi.json").json()["paths"].items()
        for method in methods
        if route.startswith("/opendsr/")
    ]
    assert len(routes) == 5
    for method, route in routes:
        client.headers["Authorization"] = f"Bearer {only}"
        assert client.request(method, route, json={}).status_code == 403
        client.headers["Authorization"] = f"Bearer {every}"
        assert client.request(method, route, json={}).status_code in (200, 400, 404)


def test_no_answer_and_no_other_callback_waits_for_a_slow_address(
    memory: Platform, controller_of: Callable[..., Controller], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The slow one takes what comes and does not answer; both callbacks are of one request."""
    monkeypatch.setattr(callbacks, "SECONDS", 2 * _SECONDS)
    erasures.register(memory, "churn")
    with socket.create_server(("127.0.0.1", 0)) as slow, listener(200) as (url, came):
        silent = f"http://127.0.0.1:{slow.getsockname()[1]}/"
        controller = controller_of(url=f'{url}", "{silent}')
        name, sent = controller.ask("1", status_callback_urls=[silent, url])
        under_way, _ = slow.accept()
        with under_way:
            end = time.monotonic() + _SECONDS
            while not came and time.monotonic() < end:
                time.sleep(0.02)
            under_way.setblocking(False)
            with pytest.raises(BlockingIOError):  # nobody has hung up
                all(iter(partial(under_way.recv, 4096), b""))

    assert (sent.status_code, len(came)) == (201, 1)
    assert controller.status(name) == "in_progress"


def test_a_request_that_is_held_can_be_cancelled_and_is_then_never_sent(
    memory: Platform, controller_of: Callable[..., Controller]
) -> None:
    erasures.register(memory, "churn")
    controller = controller_of(hold=0.3)
    kept, _ = controller.ask("1")
    gone, _ = controller.ask("2")

    cancelled = controller.client.delete(f"/opendsr/v1/requests/{gone}")
    controller.wait_for(kept, "in_progress")
    late = controller.client.delete(f"/opendsr/v1/requests/{kept}")
    decide(memory)

    assert (cancelled.status_code, controller.status(gone)) == (202, "cancelled")
    assert (late.status_code, late.json()["code"]) == (400, "TOO_LATE")
    assert late.json()["error"]["code"] == 400
    assert memory.load("churn").meta.rows_deleted == 3
    assert len(memory.records(topics.ERASURES)) == 1


def test_a_damaged_record_holds_up_no_other_request(
    memory: Platform, controller_of: Callable[..., Controller]
) -> None:
    erasures.register(memory, "churn")
    client = memory.store.client
    client.zadd("lethe:{opendsr}:open", {"damaged": 0.0})
    client.set("lethe:{opendsr}:request:damaged", b"{")
    controller = controller_of(hold=0.1)
    name, _ = controller.ask("1")

    controller.wait_for(name, "in_progress")


def test_a_server_that_dies_between_sending_and_noting_sends_the_same_erasure_again(
    memory: Platform, controller_of: Callable[..., Controller], monkeypatch: pytest.MonkeyPatch
) -> None:
    erasures.register(memory, "churn")
    plain = Client.send

    def send_and_die(self: Client, requests: Any) -> None:
        if threading.current_thread().name == "opendsr":
            raise LogUnavailable("the answer comes first")
        plain(self, requests)
        monkeypatch.setattr(Client, "send", plain)
        raise LogUnavailable("the server died")

    monkeypatch.setattr(Client, "send", send_and_die)
    controller = controller_of()
    name, sent = controller.ask("1")
    controller.wait_for(name, "in_progress")
    decide(memory)
    controller.wait_for(name, "completed")

    assert sent.status_code == 503
    assert len(memory.records(topics.ERASURES)) == 2
    assert memory.load("churn").meta.rows_deleted == 3
    assert memory.load("churn").version == 1


@pytest.mark.parametrize(
    ("members", "code"),
    [
        ({"subject_identities": [{"identity_type": "email", "identity_value": "a@b.example",
                                  "identity_format": "raw"}]}, "INVALID_REQUEST"),
        ({"subject_identities": []}, "INVALID_REQUEST"),
        ({"subject_request_type": "access"}, "INVALID_REQUEST"),
        ({"subject_request_id": "no uuid"}, "INVALID_REQUEST"),
        ({"status_callback_urls": ["http://169.254.169.254/latest"]}, "INVALID_REQUEST"),
        ({"submitted_time": "yesterday"}, "INVALID_REQUEST"),
    ],
)  # fmt: skip
def test_what_cannot_be_done_is_refused_and_nothing_is_sent(
    memory: Platform, controller_of: Callable[..., Controller], members: Any, code: str
) -> None:
    _, refused = controller_of().ask("1", **members)

    assert (refused.status_code, refused.json()["code"]) == (400, code)
    assert not memory.records(topics.ERASURES)


def test_an_id_belongs_to_one_controller_and_one_content(
    memory: Platform, controller_of: Callable[..., Controller], tmp_path: Path
) -> None:
    path = tmp_path / "api.keys"
    ours, theirs = (issue_key(path, name, ["*"], None) for name in ("ours", "theirs"))
    controller = controller_of(access=Access(Keys(path)))
    controller.client.headers["Authorization"] = f"Bearer {ours}"
    name, first = controller.ask("1")
    _, same = controller.ask("1", subject_request_id=name)
    _, other = controller.ask("2", subject_request_id=name)
    controller.client.headers["Authorization"] = f"Bearer {theirs}"
    foreign = controller.client.get(f"/opendsr/v1/requests/{name}")
    taken = controller.client.delete(f"/opendsr/v1/requests/{name}")

    assert (first.status_code, same.status_code) == (201, 201)
    assert same.json()["received_time"] == first.json()["received_time"]
    assert (other.status_code, other.json()["code"]) == (400, "REQUEST_ID_CONFLICT")
    assert (foreign.status_code, taken.status_code) == (404, 404)
    assert len(memory.records(topics.ERASURES)) == 1
