"""Where keys are trusted, a receipt that none of them signed is not believed by anybody of ours."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import ExitStack, closing
from datetime import UTC, datetime
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from fastapi.testclient import TestClient

from lethe.consumers.audit.request.report import UnknownRequest, report_of
from lethe.consumers.contract import topics
from lethe.consumers.contract.erasure_events import SubjectErasureCompleted
from lethe.consumers.contract.events import Source
from lethe.consumers.contract.receipt import Receipt
from lethe.consumers.contract.signatures import Signer, TrustedKeys
from lethe.consumers.contract.signed_log import SignedLog
from lethe.consumers.erasures.receipts import PublishedReceipts
from lethe.consumers.log.base import Log, Message, Producer
from lethe.consumers.registration.log_loss import Recovery
from lethe.consumers.server.app import create_app
from lethe.consumers.server.services import Services
from lethe.consumers.service.client import Answers
from lethe.consumers.service.configuration.settings import load_settings
from lethe.consumers.service.connect import open_runtime
from lethe.consumers.workers.supervisor import Supervisor
from lethe.engine.errors import InvalidData
from tests.support import erasures
from tests.support.http_server import services_of
from tests.support.platform import Platform

SIGNER = Signer(Ed25519PrivateKey.generate())
STRANGER = Signer(Ed25519PrivateKey.generate())
TRUSTED = TrustedKeys.of([SIGNER.public])
NOW = datetime.now(UTC).replace(microsecond=0)
_SECONDS = 60.0


class Attacked:
    """A platform that signs, and somebody who writes to its topics without a trusted key."""

    def __init__(self, platform: Platform, signer: Signer | None, stack: ExitStack) -> None:
        raw: Log = platform.log
        self.platform = platform
        self.forger: Producer = stack.enter_context(
            closing(SignedLog(raw, lambda: signer).producer())
        )
        platform.log = SignedLog(raw, lambda: SIGNER)
        platform.producer = stack.enter_context(closing(platform.log.producer()))

    def forge(self, topic: str, key: str, value: bytes) -> None:
        """Write to a topic."""
        self.forger.publish([Message(topic, key.encode(), value)])

    def decide(self) -> None:
        """Let all workers work until nothing is left."""
        worker = erasures.erasure_worker(self.platform, trusted=TRUSTED)
        with closing(worker):
            erasures.drain(self.platform, worker)


@pytest.fixture(params=[None, STRANGER], ids=["unsigned", "by another key"])
def attacked(memory: Platform, request: pytest.FixtureRequest) -> Iterator[Attacked]:
    with ExitStack() as stack:
        yield Attacked(memory, request.param, stack)


@pytest.fixture
def services(attacked: Attacked, tmp_path: Path) -> Iterator[Services]:
    with services_of(attacked.platform, tmp_path, TRUSTED) as services:
        yield services


@pytest.fixture
def client(services: Services) -> Iterator[TestClient]:
    with TestClient(create_app(services), raise_server_exceptions=False) as client:
        yield client


def complete(erasure_id: str, commitment: str = "0" * 64) -> bytes:
    """Return a combined receipt that says that a person is gone."""
    return SubjectErasureCompleted(
        erasure_id=erasure_id,
        status="COMPLETE",
        complete=True,
        subject_commitment=commitment,
        source=Source(topic=topics.ERASURES, partition=0, offset=0),
        completed_at=NOW,
    ).value()


def applied(model_id: str, request_id: str) -> bytes:
    """Return a receipt that says that a row is deleted."""
    return Receipt(
        request_id=request_id,
        model_id=model_id,
        status="APPLIED",
        rows_deleted=1,
        version=1,
        source=Source(topic=topics.DELETIONS, partition=0, offset=0),
        completed_at=NOW,
    ).value()


def read_by_the_index(services: Services) -> None:
    """Wait until the index has read the topics to their ends."""
    end = time.monotonic() + _SECONDS
    follower = services.published.follower
    while not (follower.progress.caught_up and follower.progress.ignored):
        assert time.monotonic() < end, follower.progress
        time.sleep(0.01)


@pytest.mark.parametrize("keyless", [False, True], ids=["", "read before by one without keys"])
def test_a_forged_combined_receipt_does_not_keep_an_erasure_from_being_done(
    attacked: Attacked, client: TestClient, keyless: bool
) -> None:
    platform = attacked.platform
    erasures.register(platform, "churn")
    client.post("/v1/erasures", json={"erasure_id": "e-1", "subject_id": "subject-7"})
    attacked.forge(topics.ERASURE_RECEIPTS, "e-1", complete("e-1"))
    if keyless:
        PublishedReceipts(platform.store.client, platform.reader, None).catch_up()

    forged = client.get("/v1/erasures/e-1")
    attacked.decide()
    done = client.get("/v1/erasures/e-1")

    assert (forged.status_code, forged.json()["status"]) == (202, "PENDING")
    assert not set(erasures.rows_of(7)) & erasures.live_rows(platform, "churn")
    assert (done.status_code, done.json()["rows_deleted"]) == (200, 3)
    assert client.get("/v1/erasures/e-2").status_code == 404


def test_a_forged_combined_receipt_is_no_erasure_to_http(
    attacked: Attacked, services: Services, client: TestClient
) -> None:
    erasures.register(attacked.platform, "churn")
    attacked.forge(topics.ERASURE_RECEIPTS, "e-1", complete("e-1"))
    read_by_the_index(services)

    assert client.get("/v1/erasures/e-1").status_code == 404
    assert services.outcomes.newest_of_erasure("e-1") is None


def test_a_forged_receipt_of_a_request_is_shown_by_nobody(
    attacked: Attacked, services: Services, client: TestClient
) -> None:
    platform = attacked.platform
    erasures.register(platform, "churn")
    client.post("/v1/models/churn/deletions", json={"request_id": "r-1", "row_ids": ["row-1"]})
    attacked.forge(topics.RECEIPTS, "churn", applied("churn", "r-1"))
    read_by_the_index(services)

    assert services.published.receipt("churn", "r-1") is None
    with services.published.file.read() as connection:
        [row] = connection.execute("SELECT status FROM requests").fetchall()
    assert row["status"] == "WAITING"
    with pytest.raises(UnknownRequest, match="trusted key signed"):
        report_of(platform.store, platform.reader, "r-1", "churn", TRUSTED)
    with pytest.raises(UnknownRequest):
        report_of(platform.store, platform.reader, "r-1", None, TRUSTED)

    attacked.decide()
    report = report_of(platform.store, platform.reader, "r-1", None, TRUSTED)

    assert report.last.receipt.rows_deleted == 1
    assert report.last.signature.valid
    assert len(report.unsigned) == 1
    assert any("sign" in fault for fault in report.faults()), "somebody writes there"


def test_the_command_waits_past_a_forged_receipt(attacked: Attacked) -> None:
    platform = attacked.platform
    attacked.forge(topics.ERASURE_RECEIPTS, "e-1", complete("e-1"))
    platform.producer.publish([Message(topics.ERASURE_RECEIPTS, b"e-2", complete("e-2"))])
    [partition] = platform.reader.partitions(topics.ERASURE_RECEIPTS)

    believed = next(Answers(platform.reader, partition, 0, TRUSTED).until(time.monotonic() + 9))

    assert [record.key for record in believed] == [b"e-2"]


def test_a_repeated_erasure_gets_the_signed_receipt_again(attacked: Attacked) -> None:
    platform = attacked.platform
    erasures.register(platform, "churn")
    erasures.erase(platform, "subject-7", "e-1")
    attacked.forge(topics.ERASURE_RECEIPTS, "e-1", complete("e-1"))
    attacked.decide()
    first = [value for receipt, value in erasures.published(platform) if receipt.models]
    erasures.erase(platform, "subject-7", "e-1")
    attacked.decide()

    again = erasures.published(platform)[-1][1]
    assert again == first[-1]


def test_a_repeat_is_answered_from_what_processes_with_keys_have_read(
    attacked: Attacked,
) -> None:
    """A process without keys has read a forged receipt into the store first."""
    platform = attacked.platform
    erasures.register(platform, "churn")
    attacked.forge(topics.ERASURE_RECEIPTS, "e-1", complete("e-1"))
    PublishedReceipts(platform.store.client, platform.reader, None).catch_up()
    for _ in range(2):
        erasures.erase(platform, "subject-7", "e-1")
        attacked.decide()

    [first, again] = [value for one, value in erasures.published(platform) if one.rows_deleted]
    assert first == again


def test_recovery_asks_for_no_request_that_a_forged_receipt_names(attacked: Attacked) -> None:
    platform = attacked.platform
    attacked.forge(topics.RECEIPTS, "m", applied("m", "r-1"))
    platform.producer.publish([Message(topics.RECEIPTS, b"m", applied("m", "r-2"))])
    parts = platform.store, platform.producer, platform.reader, platform.seals
    recovery = Recovery(*parts, trusted=TRUSTED)

    assert list(recovery._published_receipts("m")) == [{"r-2": True}]


@pytest.mark.parametrize("which", ["deletions", "erasures"])
def test_a_worker_that_nobody_would_believe_does_not_start(
    memory: Platform, tmp_path: Path, which: str
) -> None:
    trusted = tmp_path / "trusted"
    trusted.write_text(SIGNER.public_text)
    settings = load_settings(
        {"redis_url": memory.url, "trusted_keys": trusted, "data_dir": tmp_path, "http_port": 0}
    )
    supervisor = Supervisor([which], impatient=True)
    with (
        open_runtime(settings) as runtime,
        pytest.raises(InvalidData, match="LETHE_SIGNING_KEY"),
        supervisor.running(runtime),
    ):
        supervisor.stop.wait(_SECONDS)
