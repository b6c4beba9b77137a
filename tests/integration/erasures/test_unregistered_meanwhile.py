"""A model that is unregistered or replaced, or comes back under its name, during an erasure."""

from __future__ import annotations

import json
from contextlib import closing

import pytest

from lethe.consumers.service.telemetry.steps import Step
from lethe.consumers.workers.erasure_worker import ErasureWorker
from lethe.engine.store.layout.config import LimitsRecord
from tests.integration.deletions.test_deferral import leveraged
from tests.support import erasures
from tests.support.erasures import erase, outcomes, rows_of
from tests.support.events import settle
from tests.support.invariants import check_model
from tests.support.platform import Platform, config_of, training_data
from tests.support.stores import wipe

STEPS = [Step.ERASE_ASK, Step.ERASE_AWAIT, Step.ERASE_PUBLISH]


def end_model(platform: Platform, *, again: bool) -> None:
    """Unregister a model; register the same rows under its name again."""
    platform.registrar().unregister("churn")
    if again:
        erasures.register(platform, "churn")


@pytest.mark.parametrize("again", [False, True])
@pytest.mark.parametrize("step", STEPS)
def test_the_receipt_is_final_and_right_whenever_the_model_ends(
    memory: Platform, step: Step, again: bool
) -> None:
    erasures.register(memory, "churn")
    erasures.register(memory, "other")
    ended: list[Step] = []

    def end(reached: Step) -> None:
        if reached is step and not ended:
            ended.append(step)
            end_model(memory, again=again)

    erase(memory, "subject-1", "e-1")
    with closing(erasures.erasure_worker(memory, at_step=end)) as worker:
        erasures.drain(memory, worker)
        erasures.drain(memory, worker)

    receipt = erasures.finals(memory)["e-1"]
    assert ended
    assert receipt.complete
    assert outcomes(receipt)["other"] == ("APPLIED", 3)
    if again:
        assert not erasures.live_rows(memory, "churn") & set(rows_of(1))


@pytest.mark.parametrize("again", [False, True])
def test_a_request_that_waits_for_a_rebuild_is_answered_when_its_model_ends(
    memory: Platform, again: bool
) -> None:
    memory.register("churn", leveraged("linear"), method="exact", budget=10.0)
    erase(memory, "subject-0", "e-1")
    with closing(erasures.erasure_worker(memory)) as worker:
        for _ in range(4):
            erasures.turn(worker)
            memory.turn(memory.pair[0])
        [*_, (waiting, _)] = erasures.published(memory)
        assert outcomes(waiting) == {"churn": ("DEFERRED", 0)}
        end_model(memory, again=again)
        erasures.drain(memory, worker)
    receipt = erasures.finals(memory)["e-1"]
    assert receipt.complete
    assert [one.code for one in receipt.models] == ["MODEL_UNREGISTERED"]
    if again:
        assert not erasures.live_rows(memory, "churn") & set(rows_of(0))


def ask_twice(worker: ErasureWorker) -> None:
    """Let a worker ask all models, and look a second time, before any has answered."""
    for _ in range(4):
        erasures.turn(worker)
    [pending] = worker._pending.values()
    assert pending.asked_again
    assert not any(one.answered for one in pending.awaited.values())


@pytest.mark.parametrize("unregister", [False, True])
def test_a_model_that_forgets_whose_rows_it_has_before_it_answers_is_not_covered(
    memory: Platform, unregister: bool
) -> None:
    erasures.register(memory, "churn")
    erase(memory, "subject-1", "e-1")
    with closing(erasures.erasure_worker(memory)) as worker:
        ask_twice(worker)
        if unregister:
            memory.registrar().unregister("churn")
        erasures.register(memory, "churn", subjects=False, replace_model=not unregister)
        erasures.drain(memory, worker)
    receipt = erasures.finals(memory)["e-1"]
    assert set(rows_of(1)) <= erasures.live_rows(memory, "churn")
    assert (receipt.status, receipt.models[0].status) == ("INCOMPLETE", "NOT_COVERED")


def test_a_person_of_another_namespace_keeps_the_rows_of_a_model_that_was_replaced(
    memory: Platform,
) -> None:
    erasures.register(memory, "churn")
    erase(memory, "subject-1", "e-1")
    with closing(erasures.erasure_worker(memory)) as worker:
        ask_twice(worker)
        erasures.register(memory, "churn", namespace="crm", replace_model=True)
        erasures.drain(memory, worker)
    receipt = erasures.finals(memory)["e-1"]
    assert set(rows_of(1)) <= erasures.live_rows(memory, "churn")
    assert receipt.complete
    assert [one.code for one in receipt.models] == ["UNKNOWN_ROWS"]


@pytest.mark.parametrize("namespace", ["crm", None])
def test_whose_rows_a_lost_model_had_is_looked_up_in_the_subjects_own_namespace(
    memory: Platform, namespace: str | None
) -> None:
    erasures.register(memory, "churn")
    erase(memory, "subject-1", "e-1")
    with closing(erasures.erasure_worker(memory)) as worker:
        ask_twice(worker)
        wipe(memory, "churn")
        settle(memory)
        [waits] = memory.receipts("churn")
        assert (waits.status, waits.code) == ("DEFERRED", "DATA_LOST")
        erasures.register(memory, "churn", namespace=namespace, replace_model=True)
        erasures.drain(memory, worker)
    assert erasures.finals(memory)["e-1"].complete
    assert bool(set(rows_of(1)) & erasures.live_rows(memory, "churn")) is bool(namespace)


def test_another_person_of_the_same_id_does_not_take_the_rows_out_of_later_files(
    memory: Platform,
) -> None:
    """The rows that a file lacks are forgotten by a request of whom they were, not by others'."""
    erasures.register(memory, "churn")
    others = [number for number in range(120) if number not in range(3, 6)]
    erasures.register(memory, "churn", namespace="crm", keep=others, replace_model=True)
    request = {"request_id": "r-1", "model_id": "churn", "subject_id": "subject-1"}
    memory.send_raw(json.dumps(request).encode(), b"churn")
    memory.drain()
    erasures.register(memory, "churn", replace_model=True)
    assert set(rows_of(1)) <= erasures.live_rows(memory, "churn")


@pytest.mark.parametrize("restarted", [False, True])
def test_a_deferred_request_is_of_its_namespace_when_its_model_is_replaced(
    memory: Platform, restarted: bool
) -> None:
    """The rows of the same ids are another person's; the rebuild takes none of them."""
    data = leveraged("linear")
    memory.register("churn", data, method="exact", budget=10.0)
    erase(memory, "subject-0", "e-1")
    worker = erasures.erasure_worker(memory)
    for _ in range(4):
        erasures.turn(worker)
        memory.turn(memory.pair[0])
    [*_, (waiting, _)] = erasures.published(memory)
    assert outcomes(waiting) == {"churn": ("DEFERRED", 0)}
    if restarted:
        worker.close()
        worker = erasures.erasure_worker(memory)

    config = config_of(data, "churn", "exact", 10.0, LimitsRecord())
    crm = config.model_copy(update={"subject_namespace": "crm"})
    memory.registrar().register(crm, training_data(data), replace_model=True)
    with closing(worker):
        erasures.drain(memory, worker)

    assert set(rows_of(0)) <= erasures.live_rows(memory, "churn")
    receipt = erasures.finals(memory)["e-1"]
    assert (receipt.status, receipt.rows_deleted) == ("COMPLETE", 0)
    own = memory.receipts("churn")
    assert [(one.status, one.code, one.rows_deleted) for one in own if one.final] == [
        ("REJECTED", "UNKNOWN_ROWS", 0)
    ]
    assert not memory.load("churn").deferred
    check_model(memory, "churn")


def test_a_deferred_request_goes_with_its_model_where_the_namespace_is_kept(
    memory: Platform,
) -> None:
    data = leveraged("linear")
    memory.register("churn", data, method="exact", budget=10.0)
    request = {"request_id": "r-1", "model_id": "churn", "row_ids": rows_of(0), "namespace": ""}
    memory.send_raw(json.dumps(request).encode(), b"churn")
    memory.turn(memory.pair[0])
    assert [one.status for one in memory.receipts("churn")] == ["DEFERRED"]
    config = config_of(data, "churn", "exact", 10.0, LimitsRecord())
    memory.registrar().register(config, training_data(data), replace_model=True)
    memory.drain()
    assert memory.final("r-1", "churn").status == "APPLIED"
    assert not set(rows_of(0)) & erasures.live_rows(memory, "churn")
