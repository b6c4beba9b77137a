"""The combined receipt: what many answers come to, and when it is final."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from lethe.consumers.contract.erasure_events import SubjectErasureCompleted
from lethe.consumers.contract.events import Source
from lethe.consumers.contract.receipt import Receipt
from lethe.consumers.erasures.fan_out import requests_to
from lethe.consumers.erasures.models import Registered
from lethe.consumers.erasures.pending import Awaited, PendingErasure
from lethe.consumers.erasures.request import ErasureRequest, validate_erasure
from lethe.consumers.log.base import Partition, Record

EARLY, LATE = datetime(2026, 1, 1, tzinfo=UTC), datetime(2026, 1, 2, tzinfo=UTC)


def erasure() -> PendingErasure:
    value = b'{"erasure_id": "e-1", "subject_id": "h7"}'
    read = validate_erasure(
        Record(Partition("lethe.erasures", "id", 0), 7, b"h7", value, timestamp_ms=1000), None
    )
    assert isinstance(read, ErasureRequest)
    return PendingErasure(read, "0" * 64, {"p/0": 5}, unsearched=frozenset())


def ask(pending: PendingErasure, model: str, registration: str = "r", **answer: Any) -> Awaited:
    registered = Registered(model, registration, "", {"p/0": 10})
    [asked] = requests_to(registered, "e-1", "h7", [])
    one = Awaited(asked, "p/0", 12)
    if answer:
        one.receipt = Receipt(
            request_id=asked.request_id,
            model_id=model,
            source=Source(topic="lethe.deletions", partition=0, offset=12),
            completed_at=answer.pop("completed_at", EARLY),
            **answer,
        )
    pending.awaited[asked.request_id] = one
    return one


def told(receipt: SubjectErasureCompleted) -> dict[str, tuple[str, str | None]]:
    return {one.model_id: (one.status, one.code) for one in receipt.models}


def test_a_receipt_is_complete_when_every_model_has_answered() -> None:
    pending = erasure()
    ask(pending, "a", status="APPLIED", rows_deleted=2, version=4, completed_at=LATE)
    ask(pending, "b", status="ALREADY_APPLIED", version=9)
    ask(pending, "c", status="REJECTED", code="UNKNOWN_ROWS")
    receipt = pending.receipt()
    assert (receipt.status, receipt.complete, receipt.rows_deleted) == ("COMPLETE", True, 2)
    assert receipt.completed_at == LATE
    assert [one.version for one in receipt.models] == [4, None, None]
    assert receipt == SubjectErasureCompleted.read(receipt.value())


@pytest.mark.parametrize(
    ("answer", "status"),
    [({}, "AWAITED"), ({"status": "DEFERRED", "code": "AWAITING_REBUILD"}, "DEFERRED")],
)
def test_what_has_no_final_answer_is_awaited(answer: dict[str, Any], status: str) -> None:
    pending = erasure()
    ask(pending, "a", status="APPLIED", rows_deleted=2, version=4)
    ask(pending, "b", **answer)
    receipt = pending.receipt()
    assert (receipt.status, receipt.complete, receipt.awaited) == ("PENDING", False, ("b",))
    assert told(receipt)["b"] == (status, answer.get("code"))
    assert receipt.completed_at is None


@pytest.mark.parametrize("code", ["BUDGET_UNREACHABLE", "REQUEST_ID_CONFLICT", "SOMETHING_NEW"])
def test_a_model_that_may_still_hold_rows_keeps_the_receipt_incomplete(code: str) -> None:
    pending = erasure()
    ask(pending, "a", status="REJECTED", code=code)
    receipt = pending.receipt()
    assert (receipt.status, receipt.complete, told(receipt)) == (
        "INCOMPLETE", False, {"a": ("REJECTED", code)}
    )  # fmt: skip


def test_a_model_that_is_not_covered_is_never_complete_even_if_it_deleted_rows() -> None:
    pending = erasure()
    pending.not_covered = frozenset({"a", "b"})
    ask(pending, "a", status="APPLIED", rows_deleted=2, version=4)
    receipt = pending.receipt()
    assert (receipt.status, receipt.rows_deleted) == ("INCOMPLETE", 2)
    assert told(receipt) == {"a": ("NOT_COVERED", None), "b": ("NOT_COVERED", None)}


def test_of_several_answers_of_a_model_the_one_that_matters_most_counts() -> None:
    pending = erasure()
    ask(pending, "a", "old", status="APPLIED", rows_deleted=2, version=4)
    ask(pending, "a", "new", status="REJECTED", code="UNKNOWN_ROWS")
    assert told(pending.receipt()) == {"a": ("APPLIED", None)}
    ask(pending, "a", "newer", status="REJECTED", code="BUDGET_UNREACHABLE")
    assert told(pending.receipt()) == {"a": ("REJECTED", "BUDGET_UNREACHABLE")}
    ask(pending, "a", "newest")
    assert told(pending.receipt()) == {"a": ("AWAITED", None)}


def test_an_erasure_that_no_model_was_asked_for_says_so_once_it_is_final() -> None:
    pending = erasure()
    pending.similar = ("a",)
    receipt = pending.receipt()
    assert (receipt.status, receipt.unknown, receipt.similar) == ("COMPLETE", True, ("a",))
    pending.unsearched = None
    assert not pending.receipt().unknown
    pending.unsearched = frozenset()
    ask(pending, "a", status="REJECTED", code="UNKNOWN_ROWS")
    assert not pending.receipt().unknown


def test_no_receipt_is_final_before_the_index_was_read_again() -> None:
    pending = erasure()
    pending.unsearched = None
    assert pending.receipt().status == "PENDING"


def test_a_model_that_cannot_be_searched_is_awaited_beside_the_answers_of_others() -> None:
    pending = erasure()
    ask(pending, "a", status="APPLIED", rows_deleted=2, version=4)
    pending.unsearched = frozenset({"halted"})
    receipt = pending.receipt()
    assert (receipt.status, receipt.awaited) == ("PENDING", ("halted",))
    assert told(receipt) == {"a": ("APPLIED", None)}


def test_a_request_from_before_its_model_took_any_is_sent_again() -> None:
    pending = erasure()
    one = ask(pending, "a")
    assert one.lies_before({"p/0": 13})
    assert not one.lies_before({"p/0": 12})
    assert not one.lies_before(None)
    assert not ask(pending, "b", status="APPLIED").lies_before({"p/0": 13})
