"""Waiting for a receipt: other people's are passed over, a deferral is said, the final one ends."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime

import pytest

from lethe.consumers.cli.send.deletion import _wait
from lethe.consumers.cli.terminal.output import Output
from lethe.consumers.contract import topics
from lethe.consumers.contract.events import DeletionRequest, Source
from lethe.consumers.contract.receipt import Receipt, ReceiptStatus
from lethe.consumers.log.base import Message, Record
from lethe.consumers.service.client import Answers, NoReceipt
from tests.support.memory_log import MemoryLog

REQUEST = DeletionRequest(request_id="r1", model_id="m", row_ids=("u1",))


def receipt(status: ReceiptStatus, request_id: str = "r1", model_id: str = "m") -> bytes:
    return Receipt(
        request_id=request_id,
        model_id=model_id,
        status=status,
        code="ILL_CONDITIONED" if status == "DEFERRED" else None,
        rows_deleted=1,
        version=4,
        source=Source(topic=topics.DELETIONS, partition=0, offset=0),
        completed_at=datetime.now(UTC),
    ).value()


@pytest.fixture
def log() -> MemoryLog:
    log = MemoryLog()
    log.ensure_topics(topics.specs(1))
    return log


def publish(log: MemoryLog, *values: bytes) -> Iterator[Sequence[Record]]:
    producer = log.producer()
    producer.publish([Message(topics.RECEIPTS, b"m", value) for value in values])
    reader = log.reader()
    partition = reader.partition_for(topics.RECEIPTS, b"m")
    return Answers(reader, partition, 0, None).until(time.monotonic() + 0.2)


def test_a_deferral_is_said_and_the_final_receipt_is_the_answer(
    log: MemoryLog, capsys: pytest.CaptureFixture[str]
) -> None:
    others = (receipt("REJECTED", "r2"), receipt("REJECTED", model_id="n"), b"no receipt")
    batches = publish(log, *others, receipt("DEFERRED"), receipt("DEFERRED"), receipt("APPLIED"))

    code = _wait(Output(as_json=True), batches, REQUEST, 5.0)

    said = capsys.readouterr()
    assert code == 0
    assert json.loads(said.out)["status"] == "APPLIED"
    assert said.err == "lethe: request r1: DEFERRED; ILL_CONDITIONED\n"


def test_a_deferral_alone_is_no_answer(log: MemoryLog) -> None:
    batches = publish(log, receipt("DEFERRED"))

    with pytest.raises(NoReceipt, match="deferred, waits for a refresh") as caught:
        _wait(Output(as_json=True), batches, REQUEST, 0.2)

    assert caught.value.exit_code == 1


def test_a_rejection_is_1(log: MemoryLog) -> None:
    batches = publish(log, receipt("REJECTED"))

    assert _wait(Output(as_json=True), batches, REQUEST, 5.0) == 1
