"""``lethe erase --wait``: the receipt is that of this erasure, whatever its id was used for."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime

import pytest

from lethe.consumers.cli.send.erasure import _newest, _Sent, _wait
from lethe.consumers.cli.terminal.output import Output
from lethe.consumers.contract import topics
from lethe.consumers.contract.erasure_events import SubjectErasureCompleted, SubjectErasureRequested
from lethe.consumers.contract.events import Source
from lethe.consumers.log.base import Appended, Partition, Record

MINE, THEIRS = "1" * 64, "2" * 64
ERASURES = Partition(topics.ERASURES, "t", 0)
REQUEST = SubjectErasureRequested(erasure_id="e-1", subject_id="subject-8")


def sent(*, sealed: bool) -> _Sent:
    return _Sent(REQUEST, Appended(ERASURES, 5), [MINE] if sealed else None)


def record(commitment: str | None, offset: int, code: str | None = None) -> Record:
    receipt = SubjectErasureCompleted(
        erasure_id="e-1",
        status="REJECTED" if code else "COMPLETE",
        complete=code is None,
        code=code,
        subject_commitment=commitment,
        source=Source(topic=topics.ERASURES, partition=0, offset=offset),
        completed_at=datetime.now(UTC),
    )
    return Record(Partition(topics.ERASURE_RECEIPTS, "t", 0), 0, b"e-1", receipt.value())


THEIRS_FINAL = record(THEIRS, 4)
MINE_REFUSED = record(None, 5, "REQUEST_ID_CONFLICT")
OTHERS_REFUSED = record(None, 3, "REQUEST_ID_CONFLICT")


def newest(records: Sequence[Record], *, sealed: bool = True) -> SubjectErasureCompleted | None:
    return _newest([records], {"e-1": sent(sealed=sealed)}).get("e-1")


def waited(answer: Record) -> int:
    options = {"wait": 1.0, "lift": False, "file": None}
    return _wait(Output(as_json=True), [[answer]], [sent(sealed=False)], options)


def test_a_receipt_of_another_person_under_the_same_id_is_no_answer() -> None:
    found = newest([OTHERS_REFUSED, THEIRS_FINAL, MINE_REFUSED])
    assert found is not None
    assert found.code == "REQUEST_ID_CONFLICT"
    assert newest([OTHERS_REFUSED, THEIRS_FINAL]) is None


def test_the_receipt_of_the_same_erasure_that_was_sent_before_is_the_answer() -> None:
    found = newest([record(MINE, 4)])
    assert found is not None
    assert found.complete


def test_without_the_seal_key_it_says_that_it_cannot_tell(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert newest([OTHERS_REFUSED], sealed=False) is None
    assert waited(THEIRS_FINAL) == 0
    assert "cannot tell whether it concerns this subject" in capsys.readouterr().err
    assert waited(record(MINE, 5)) == 0
    assert not capsys.readouterr().err
