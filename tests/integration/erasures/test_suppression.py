"""Who was erased stays away, from registrations, inserts and corrections, until that is lifted."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing

import numpy as np
import pytest

from lethe.consumers.erasures.fan_out import SentRequest
from lethe.consumers.erasures.models import Registered
from lethe.consumers.erasures.sweep import Sweep
from lethe.consumers.service.telemetry.steps import Step
from lethe.consumers.workers.erasure_worker import ErasureWorker
from lethe.engine.errors import InvalidData, LogReset
from lethe.engine.refresh.size import RefreshSize
from lethe.engine.store.layout.keys import ERASED, ERASED_CURSORS
from tests.support import erasures
from tests.support.erasures import erase, live_rows, outcomes, rows_of
from tests.support.events import settle
from tests.support.families import make
from tests.support.invariants import check_model, ledger_of
from tests.support.platform import Platform
from tests.support.stores import backup, restore
from tests.support.tables import Table, registered_table


@pytest.fixture
def worker(memory: Platform) -> Iterator[ErasureWorker]:
    with closing(erasures.erasure_worker(memory)) as worker:
        yield worker


def assert_as_without_subject_1(platform: Platform, model_id: str) -> None:
    """The model is what a file without the rows of the subject gives."""
    others = [i for i in range(len(platform.data[model_id].X)) if i // 3 != 1]
    erasures.register(platform, "reference", keep=others)
    expected = platform.load("reference").stream.theta_exact
    np.testing.assert_allclose(platform.load(model_id).stream.theta_exact, expected, rtol=1e-8)


def test_a_model_registered_later_has_no_row_of_an_erased_subject(
    memory: Platform, worker: ErasureWorker
) -> None:
    erase(memory, "subject-1", "e-1")
    erasures.drain(memory, worker)
    done = erasures.register(memory, "later")
    assert (done.erased, done.in_ledger) == (3, 0)
    assert not live_rows(memory, "later") & set(rows_of(1))
    assert memory.store.subjects([(memory.load("later"), ["subject-1"])]) == [{}]
    assert_as_without_subject_1(memory, "later")


def test_a_file_of_erased_subjects_alone_is_refused(
    memory: Platform, worker: ErasureWorker
) -> None:
    erase(memory, "subject-1", "e-1")
    erasures.drain(memory, worker)
    with pytest.raises(InvalidData, match="nothing to fit"):
        erasures.register(memory, "later", keep=range(3, 6))


def test_a_replaced_model_does_not_bring_an_erased_subject_back(
    memory: Platform, worker: ErasureWorker
) -> None:
    erasures.register(memory, "churn")
    erase(memory, "subject-1", "e-1")
    erasures.drain(memory, worker)
    erasures.register(memory, "churn", replace_model=True)
    erasures.drain(memory, worker)
    assert not live_rows(memory, "churn") & set(rows_of(1))
    check_model(memory, "churn")


@pytest.mark.parametrize("op", ["insert", "correct"])
def test_no_row_becomes_that_of_an_erased_subject(
    memory: Platform, worker: ErasureWorker, op: str
) -> None:
    table = registered_table(memory, "benign", "linear", budget=10.0)
    erase(memory, "subject-1", "e-1")
    erase(memory, "stranger", "e-2")
    erasures.drain(memory, worker)
    row = table.row("new-1" if op == "insert" else "row-0")
    request = memory.send_change("m", op, {**row, "subject": "stranger"})
    other = memory.send_change("m", "insert", {**table.row("new-2"), "subject": "friend"})
    memory.drain()
    finals = memory.finals()
    assert (finals[request].status, finals[request].code) == ("REJECTED", "SUBJECT_ERASED")
    assert finals[other].status == "APPLIED"


def test_a_row_that_a_file_left_out_stays_its_persons_when_an_insert_brings_it_back(
    memory: Platform, worker: ErasureWorker
) -> None:
    erasures.register(memory, "churn")
    others = [i for i in range(len(memory.data["churn"].X)) if i // 3 != 1]
    erasures.register(memory, "churn", keep=others, replace_model=True)
    back, *_ = rows_of(1)
    memory.send_change("churn", "insert", Table(memory, "churn").row(back))
    memory.drain()
    assert back in live_rows(memory, "churn")

    erase(memory, "subject-1", "e-1")
    erasures.drain(memory, worker)

    assert outcomes(erasures.finals(memory)["e-1"]) == {"churn": ("APPLIED", 1)}
    assert back not in live_rows(memory, "churn")


def test_a_lift_lets_the_subject_come_back(memory: Platform, worker: ErasureWorker) -> None:
    table = registered_table(memory, "benign", "linear", budget=10.0)
    erase(memory, "stranger", "e-1")
    erasures.drain(memory, worker)
    erase(memory, "stranger", "l-1", lift=True)
    erasures.drain(memory, worker)
    request = memory.send_change("m", "insert", {**table.row("new-1"), "subject": "stranger"})
    memory.drain()
    assert memory.finals()[request].status == "APPLIED"
    lift = erasures.finals(memory)["l-1"]
    assert (lift.op, lift.status, lift.complete) == ("lift", "COMPLETE", True)
    # The same erasure again is answered, and does not suppress again
    erase(memory, "stranger", "e-1")
    erasures.drain(memory, worker)
    assert "new-1" in live_rows(memory, "m")


def test_an_id_stands_for_one_lift_even_if_it_comes_again_at_once(
    memory: Platform, worker: ErasureWorker
) -> None:
    erase(memory, "stranger", "e-1")
    erasures.drain(memory, worker)
    erase(memory, "stranger", "l-1", lift=True)
    erase(memory, "stranger", "l-1", lift=True)
    erase(memory, "stranger", "l-1")
    erasures.drain(memory, worker)
    told = [one for one, _ in erasures.published(memory) if one.erasure_id == "l-1"]
    assert [one for one in told if one.code is None] == [erasures.finals(memory)["l-1"]]
    assert [one.code for one in told if one.op == "erase"] == ["REQUEST_ID_CONFLICT"]


def test_a_lift_waits_for_an_erasure_that_is_not_finished(
    memory: Platform, worker: ErasureWorker
) -> None:
    erasures.register(memory, "churn")
    erase(memory, "subject-1", "e-1")
    erasures.turn(worker)
    erase(memory, "subject-1", "l-1", lift=True)
    erasures.drain(memory, worker)
    lift = erasures.finals(memory)["l-1"]
    assert (lift.status, lift.code) == ("REJECTED", "ERASURE_PENDING")
    assert erasures.register(memory, "later").erased == 3


def test_a_registration_that_misses_the_erasure_is_searched_afterwards(
    memory: Platform, worker: ErasureWorker
) -> None:
    """It read the list before the erasure, and commits after the erasure has looked for models."""

    def erased_meanwhile(step: str) -> None:
        if step == Step.REGISTER_APPEND:
            erase(memory, "subject-1", "e-1")
            erasures.drain(memory, worker)
            assert erasures.finals(memory)["e-1"].complete

    erasures.register(memory, "raced", at_step=erased_meanwhile)
    assert set(rows_of(1)) <= live_rows(memory, "raced")  # it raced in
    erasures.drain(memory, worker)
    assert not live_rows(memory, "raced") & set(rows_of(1))
    check_model(memory, "raced")


def test_a_rebuild_that_is_swapped_in_meanwhile_hides_no_row_from_the_search(
    memory: Platform, worker: ErasureWorker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The search knows the models as they were: the rows are in another generation by then."""

    def erased_meanwhile(step: str) -> None:
        if step == Step.REGISTER_APPEND:
            erase(memory, "subject-1", "e-1")
            erasures.drain(memory, worker)
            assert erasures.finals(memory)["e-1"].complete

    erasures.register(memory, "raced", at_step=erased_meanwhile)
    before = memory.load("raced").rows_generation

    def rebuilt(search: Sweep, model: Registered) -> list[SentRequest]:
        monkeypatch.undo()
        memory.refresh("raced", RefreshSize.REBUILD)
        assert memory.load("raced").rows_generation != before
        return search.search(model)

    monkeypatch.setattr(Sweep, "search", rebuilt)
    erasures.drain(memory, worker)
    assert not live_rows(memory, "raced") & set(rows_of(1))
    check_model(memory, "raced")


def test_a_registration_is_searched_when_it_takes_requests(
    memory: Platform, worker: ErasureWorker
) -> None:
    """What is asked before the model is open counts for nothing."""

    def erased_meanwhile(step: str) -> None:
        if step == Step.REGISTER_APPEND:
            erase(memory, "subject-1", "e-1")
            erasures.drain(memory, worker)
        if step == Step.REGISTER_OPEN:
            erasures.turn(worker)

    erasures.register(memory, "raced", at_step=erased_meanwhile)
    erasures.drain(memory, worker)
    assert not live_rows(memory, "raced") & set(rows_of(1))


def test_a_registration_that_died_before_it_took_requests_is_searched(
    memory: Platform, worker: ErasureWorker
) -> None:
    """Nobody else asks anything of it: the search opens it."""

    class Dies(Exception):
        pass

    def erased_meanwhile(step: str) -> None:
        if step == Step.REGISTER_APPEND:
            erase(memory, "subject-1", "e-1")
            erasures.drain(memory, worker)
        if step == Step.REGISTER_OPEN:
            raise Dies

    with pytest.raises(Dies):
        erasures.register(memory, "raced", at_step=erased_meanwhile)
    assert live_rows(memory, "raced") & set(rows_of(1))
    erasures.drain(memory, worker)
    assert not live_rows(memory, "raced") & set(rows_of(1))
    memory.data["raced"] = make("benign", "linear")
    check_model(memory, "raced")


def test_a_subject_erased_while_rows_are_staged_is_left_out_of_version_0(
    memory: Platform, worker: ErasureWorker
) -> None:
    seen: list[str] = []

    def erased_meanwhile(step: str) -> None:
        if step == Step.REGISTER_STAGE and not seen:
            seen.append(step)
            erase(memory, "subject-1", "e-1")
            erasures.drain(memory, worker)

    erasures.register(memory, "raced", at_step=erased_meanwhile)
    assert seen
    assert not live_rows(memory, "raced") & set(rows_of(1))
    assert memory.load("raced").version == 0
    assert_as_without_subject_1(memory, "raced")


def test_rows_inserted_on_their_way_are_found_when_the_index_is_read_again(
    memory: Platform, worker: ErasureWorker
) -> None:
    """The insert lies in the log before the erasure, and is decided after models were asked."""
    table = registered_table(memory, "benign", "linear", budget=10.0)
    memory.drain()
    deciding = memory.pair[0]
    sent = memory.send_change("m", "insert", {**table.row("new-1"), "subject": "stranger"})
    erase(memory, "stranger", "e-1")

    def until_listed(step: str) -> None:
        if step == Step.COMPUTE:  # the list was read, the commit is not made
            deciding._processor._at_step = lambda _: None
            for _ in range(3):
                erasures.turn(worker)

    deciding._processor._at_step = until_listed
    memory.drain()
    assert memory.finals()[sent].status == "APPLIED"
    erasures.drain(memory, worker)
    receipt = erasures.finals(memory)["e-1"]
    assert outcomes(receipt) == {"m": ("APPLIED", 1)}
    assert "new-1" in ledger_of(memory, "m")


def test_the_list_comes_back_from_its_topic_when_the_store_goes_back(
    memory: Platform, worker: ErasureWorker
) -> None:
    table = registered_table(memory, "benign", "linear", budget=10.0)
    memory.drain()
    kept = backup(memory)
    erase(memory, "stranger", "e-1")
    erase(memory, "subject-1", "e-2")
    erase(memory, "friend", "e-3")
    erasures.drain(memory, worker)
    erase(memory, "friend", "l-1", lift=True)
    erasures.drain(memory, worker)
    before = erasures.finals(memory)
    restore(memory, kept)
    assert not memory.store.client.exists(ERASED)
    request = memory.send_change("m", "insert", {**table.row("new-1"), "subject": "stranger"})
    other = memory.send_change("m", "insert", {**table.row("new-2"), "subject": "friend"})
    settle(memory)
    assert memory.finals()[request].code == "SUBJECT_ERASED"
    assert memory.finals()[other].status == "APPLIED"
    assert erasures.register(memory, "later").erased == 3
    worker.recover()
    erasures.drain(memory, worker)
    assert erasures.finals(memory) == before


@pytest.mark.parametrize("whole", [True, False], ids=["the key", "one person"])
def test_a_list_whose_key_is_gone_is_read_from_the_topic_again(
    memory: Platform, worker: ErasureWorker, whole: bool
) -> None:
    """A key that was removed or evicted reads as an empty one; its cursor is another key."""
    erasures.register(memory, "m")
    for number in (1, 2):
        erase(memory, f"subject-{number}", f"e-{number}")
    erasures.drain(memory, worker)
    client = memory.store.client
    if whole:
        client.delete(ERASED)
    else:
        client.hdel(ERASED, *client.hkeys(ERASED)[:1])
    row = Table(memory).row("new-1")
    requests = [
        memory.send_change("m", "insert", {**row, "subject": f"subject-{number}"})
        for number in (1, 2)
    ]
    memory.drain()
    assert {memory.finals()[name].code for name in requests} == {"SUBJECT_ERASED"}
    assert erasures.register(memory, "later").erased == 6


def test_a_list_that_was_lost_is_said(memory: Platform, worker: ErasureWorker) -> None:
    erase(memory, "subject-1", "e-1")
    erasures.drain(memory, worker)
    memory.store.client.hset(ERASED_CURSORS, "subjects", "another-topic 17")
    with pytest.raises(LogReset, match="was recreated or has lost"):
        erasures.register(memory, "later")
