"""A person is erased from every model that knows them, and one receipt says so."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing

import pytest

from lethe.consumers.contract import topics
from lethe.consumers.contract.events import DeletionRequest
from lethe.consumers.workers.erasure_worker import ErasureWorker
from tests.support import erasures
from tests.support.erasures import erase, outcomes, rows_of
from tests.support.invariants import check_model, ledger_of
from tests.support.platform import Platform


@pytest.fixture
def worker(memory: Platform) -> Iterator[ErasureWorker]:
    with closing(erasures.erasure_worker(memory)) as worker:
        yield worker


def test_a_person_is_erased_from_every_model_that_knows_them(platform: Platform) -> None:
    """On every log: two models know the subject, one does not."""
    erasures.register(platform, "churn")
    erasures.register(platform, "risk", kind="logistic")
    erasures.register(platform, "small", keep=range(60))
    erase(platform, "subject-21", "e-1")
    with closing(erasures.erasure_worker(platform)) as worker:
        erasures.drain(platform, worker)
    receipt = erasures.finals(platform)["e-1"]
    assert (receipt.status, receipt.complete, receipt.awaited) == ("COMPLETE", True, ())
    assert outcomes(receipt) == {"churn": ("APPLIED", 3), "risk": ("APPLIED", 3)}
    assert receipt.rows_deleted == 6
    for model in ("churn", "risk"):
        assert set(rows_of(21)) <= ledger_of(platform, model).keys()
        check_model(platform, model)


def test_a_receipt_names_neither_the_subject_nor_a_row(
    memory: Platform, worker: ErasureWorker
) -> None:
    erasures.register(memory, "churn")
    erase(memory, "subject-1", "e-1")
    erasures.drain(memory, worker)
    for topic in (topics.ERASURE_RECEIPTS, topics.SUPPRESSIONS):
        for record in memory.records(topic):
            content = b"".join(
                [record.key or b"", record.value or b"", *(v for _, v in record.headers)]
            )
            assert b"subject-1" not in content
            assert b"row-" not in content


def test_a_model_without_subjects_is_not_covered_and_the_receipt_never_complete(
    memory: Platform, worker: ErasureWorker
) -> None:
    erasures.register(memory, "churn")
    erasures.register(memory, "blind", subjects=False)
    erase(memory, "subject-1", "e-1")
    erasures.drain(memory, worker)
    receipt = erasures.finals(memory)["e-1"]
    assert (receipt.status, receipt.complete) == ("INCOMPLETE", False)
    assert outcomes(receipt) == {"churn": ("APPLIED", 3), "blind": ("NOT_COVERED", 0)}


def test_namespaces_tell_subjects_apart(memory: Platform, worker: ErasureWorker) -> None:
    for model, namespace in (("crm", "crm"), ("shop", "shop"), ("plain", None)):
        erasures.register(memory, model, namespace=namespace)
    erase(memory, "subject-1", "e-1", namespace="shop")
    erase(memory, "subject-2", "e-2")
    erasures.drain(memory, worker)
    finals = erasures.finals(memory)
    assert set(outcomes(finals["e-1"])) == {"shop"}
    assert set(outcomes(finals["e-2"])) == {"plain"}
    assert set(rows_of(1)) <= erasures.live_rows(memory, "crm")


def test_an_erasure_that_no_model_knows_says_so_and_who_knows_another_spelling(
    memory: Platform, worker: ErasureWorker
) -> None:
    """Of its own namespace; nothing is deleted under another spelling, and no receipt names it."""
    erasures.register(memory, "churn")
    erasures.register(memory, "crm", namespace="crm")
    erase(memory, "Subject-7", "e-1")
    erase(memory, "nobody", "e-2")
    erase(memory, "subject-7", "e-3")
    erasures.drain(memory, worker)
    finals = erasures.finals(memory)
    told = {
        name: (one.status, one.unknown, one.similar, one.rows_deleted)
        for name, one in finals.items()
    }
    assert told == {
        "e-1": ("COMPLETE", True, ("churn",), 0),
        "e-2": ("COMPLETE", True, (), 0),
        "e-3": ("COMPLETE", False, (), 3),
    }
    assert b"ubject-7" not in finals["e-1"].value()
    assert b"unknown" not in finals["e-3"].value()


def test_a_receipt_says_what_is_awaited_while_models_have_not_answered(
    memory: Platform, worker: ErasureWorker
) -> None:
    erasures.register(memory, "churn")
    erase(memory, "subject-1", "e-1")
    for _ in range(3):
        erasures.turn(worker)
    [(receipt, _)] = erasures.published(memory)
    assert (receipt.status, receipt.complete, receipt.awaited) == ("PENDING", False, ("churn",))
    assert outcomes(receipt) == {"churn": ("AWAITED", 0)}
    erasures.drain(memory, worker)
    assert erasures.finals(memory)["e-1"].complete


def test_the_same_erasure_again_gets_the_same_receipt_and_another_subject_a_conflict(
    memory: Platform, worker: ErasureWorker
) -> None:
    erasures.register(memory, "churn")
    erase(memory, "subject-1", "e-1")
    erase(memory, "subject-1", "e-1")
    erase(memory, "subject-2", "e-1")
    erasures.drain(memory, worker)
    erase(memory, "subject-1", "e-1", reason="again")
    erase(memory, "subject-2", "e-1")
    erasures.drain(memory, worker)
    told = [one for one, _ in erasures.published(memory)]
    first = erasures.finals(memory)["e-1"]
    assert [one.status for one in told if one == first] == ["COMPLETE"] * 2
    conflicts = [one for one in told if one.code == "REQUEST_ID_CONFLICT"]
    assert [one.conflicts_with for one in conflicts] == [first.source] * 2
    assert not set(rows_of(2)) & ledger_of(memory, "churn").keys()


def test_a_subject_that_no_model_knows_is_complete_and_suppressed(
    memory: Platform, worker: ErasureWorker
) -> None:
    erasures.register(memory, "churn", keep=range(30))
    erase(memory, "subject-20", "e-1")
    erasures.drain(memory, worker)
    receipt = erasures.finals(memory)["e-1"]
    assert (receipt.complete, receipt.models) == (True, ())
    assert erasures.register(memory, "later").erased == 3


def test_what_is_no_erasure_holds_up_nothing(memory: Platform, worker: ErasureWorker) -> None:
    erasures.register(memory, "churn")
    bad = [
        *(None, b"", b"{", b"[]", b"[" * 100_000),
        b'{"erasure_id": "x"}',
        b'{"erasure_id": "x", "subject_id": 1.5}',
        b'{"erasure_id": "", "subject_id": "s"}',
        b'{"erasure_id":"x","subject_id":"\xff"}',
        b'{"erasure_id": "x", "subject_id": "s", "lift": "yes"}',
    ]
    for value in bad:
        erasures.send_erasure(memory, value)
    erase(memory, "subject-1", "e-1")
    erasures.drain(memory, worker)
    assert erasures.finals(memory).keys() == {"e-1"}
    letters = memory.records(topics.DEAD_LETTERS)
    assert [dict(one.headers)["lethe-error-code"] for one in letters] == (
        [b"INVALID_REQUEST"] * len(bad)
    )


def test_a_subject_of_very_many_rows_is_asked_for_in_parts(
    memory: Platform, worker: ErasureWorker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("lethe.consumers.erasures.fan_out.MAX_ROWS", 2)
    erasures.register(memory, "churn")
    erase(memory, "subject-1", "e-1")
    erasures.drain(memory, worker)
    receipt = erasures.finals(memory)["e-1"]
    assert outcomes(receipt) == {"churn": ("APPLIED", 3)}
    sent = [DeletionRequest.read(one.value or b"") for one in memory.records(topics.DELETIONS)]
    assert [one.row_ids for one in sent] == [("row-3", "row-4"), ("row-5",)]
    assert receipt.models[0].request_ids == tuple(sorted(one.request_id for one in sent))


def test_a_model_that_was_unregistered_meanwhile_holds_nothing(
    memory: Platform, worker: ErasureWorker
) -> None:
    erasures.register(memory, "churn")
    erase(memory, "subject-1", "e-1")
    erasures.turn(worker)  # asked, not answered
    memory.registrar().unregister("churn")
    erasures.drain(memory, worker)
    receipt = erasures.finals(memory)["e-1"]
    [model] = receipt.models
    assert (receipt.complete, model.status, model.code) == (True, "REJECTED", "MODEL_UNREGISTERED")
