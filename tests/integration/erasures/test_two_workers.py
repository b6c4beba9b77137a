"""Two erasure workers at work at once: one was stalled, and goes on when another has taken over."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing

import pytest

from lethe.consumers.contract import topics
from lethe.consumers.contract.erasure_events import SubjectErasureCompleted
from lethe.consumers.erasures.models import Models
from lethe.consumers.log.base import Bounds, Message, Partition
from lethe.consumers.suppression.suppressions import Suppression, Suppressions
from lethe.consumers.workers.erasure_worker import ErasureWorker
from tests.support import erasures
from tests.support.erasures import erase, outcomes
from tests.support.events import settle
from tests.support.memory_log import HookCall, MemoryLog, MemoryReader
from tests.support.platform import Platform
from tests.support.stores import backup, restore


@pytest.fixture
def stalled(memory: Platform) -> Iterator[ErasureWorker]:
    """The worker that is overtaken."""
    with closing(erasures.erasure_worker(memory)) as worker:
        yield worker


def overtake_before(
    memory: Platform,
    worker: ErasureWorker,
    sends: Callable[[Message], bool],
    others: Callable[[], None],
) -> None:
    """Let others take over and work when a worker is about to send such a message."""
    log = memory.log
    assert isinstance(log, MemoryLog)

    def hook(call: HookCall) -> None:
        held = call.client is worker._producer and call.stage == "before"
        if held and any(sends(message) for message in call.messages):
            log.hook = lambda _: None
            log.evict(worker._consumer)  # type: ignore[arg-type]  # a MemoryConsumer
            others()

    log.hook = hook


def work(memory: Platform) -> None:
    """Let another worker take over and finish."""
    with closing(erasures.erasure_worker(memory)) as other:
        erasures.drain(memory, other)


def drain_slowly(memory: Platform, worker: ErasureWorker) -> None:
    """Let a worker and the deletion worker take turns, until it has been overtaken."""
    for _ in range(6):
        erasures.turn(worker)
        memory.drain()


def is_final(message: Message) -> bool:
    """Return whether a message is a final combined receipt."""
    if message.topic != topics.ERASURE_RECEIPTS:
        return False
    return SubjectErasureCompleted.read(message.value or b"").final


def final_bytes(memory: Platform, name: str) -> list[bytes]:
    """Return all final receipts of an erasure, in order."""
    published = erasures.published(memory)
    return [value for one, value in published if one.erasure_id == name and one.final]


def test_two_workers_that_finish_the_same_erasure_publish_the_same_bytes(
    memory: Platform, stalled: ErasureWorker
) -> None:
    erasures.register(memory, "churn")
    erasures.register(memory, "risk", kind="logistic")
    erase(memory, "subject-1", "e-1")
    overtake_before(memory, stalled, is_final, lambda: work(memory))
    drain_slowly(memory, stalled)
    first, second = final_bytes(memory, "e-1")
    assert first == second
    receipt = SubjectErasureCompleted.read(first)
    answers = [memory.final(one.request_ids[0], one.model_id) for one in receipt.models]
    assert receipt.completed_at == max(answer.completed_at for answer in answers)


def test_if_models_came_meanwhile_the_first_final_receipt_counts(
    memory: Platform, stalled: ErasureWorker
) -> None:
    """One worker has looked for models before the registration, the other one afterwards."""
    erasures.register(memory, "churn")
    erase(memory, "subject-1", "e-1")

    def others() -> None:
        erasures.register(memory, "blind", subjects=False)
        work(memory)

    overtake_before(memory, stalled, is_final, others)
    drain_slowly(memory, stalled)
    first, second = final_bytes(memory, "e-1")
    assert outcomes(SubjectErasureCompleted.read(first))["blind"] == ("NOT_COVERED", 0)
    assert outcomes(SubjectErasureCompleted.read(second)) == {"churn": ("APPLIED", 3)}
    erase(memory, "subject-1", "e-1")
    erasures.drain(memory, stalled)
    assert final_bytes(memory, "e-1") == [first, second, first]


def test_a_lift_that_is_written_late_leaves_a_later_erasure_on_the_list(
    memory: Platform, stalled: ErasureWorker
) -> None:
    erasures.register(memory, "churn")
    erase(memory, "subject-1", "e-1")
    erasures.drain(memory, stalled)
    erase(memory, "subject-1", "l-1", lift=True)

    def others() -> None:
        work(memory)
        erase(memory, "subject-1", "e-2")
        work(memory)

    overtake_before(memory, stalled, lambda one: one.topic == topics.SUPPRESSIONS, others)
    erasures.turn(stalled)
    written = [Suppression.read(r.value or b"") for r in memory.records(topics.SUPPRESSIONS)]
    assert [one.lifted for one in written[:4]] == [False, True, False, True]  # the last one late
    assert erasures.register(memory, "later").erased == 3
    work(memory)
    # Compaction keeps the newest record, so that what counts was written once more
    newest = Suppression.read(memory.records(topics.SUPPRESSIONS)[-1].value or b"")
    assert (newest.erasure_id, newest.lifted) == ("e-2", False)


def test_an_erasure_that_is_written_late_does_not_undo_its_lift(
    memory: Platform, stalled: ErasureWorker
) -> None:
    erase(memory, "subject-1", "e-1")

    def others() -> None:
        work(memory)
        erase(memory, "subject-1", "l-1", lift=True)
        work(memory)

    overtake_before(memory, stalled, lambda one: one.topic == topics.SUPPRESSIONS, others)
    erasures.turn(stalled)
    assert erasures.finals(memory)["l-1"].complete
    assert erasures.register(memory, "later").erased == 0


def test_nobody_is_gone_while_the_store_lacks_a_model_that_the_log_has(
    memory: Platform, stalled: ErasureWorker
) -> None:
    """The store goes back to before a registration: it knows neither the model nor its rows."""
    kept = backup(memory)
    erasures.register(memory, "churn")
    restore(memory, kept)
    erase(memory, "subject-1", "e-1")
    for _ in range(3):
        erasures.turn(stalled)
    assert not final_bytes(memory, "e-1")
    memory.pair[0].recover()
    drain_slowly(memory, stalled)  # the commits are applied, but the rows are gone: DATA_LOST
    assert not final_bytes(memory, "e-1")
    assert erasures.register(memory, "churn", replace_model=True).erased == 3
    erasures.drain(memory, stalled)
    assert erasures.finals(memory)["e-1"].complete


def test_models_that_were_read_before_the_store_had_them_again_are_not_believed(
    memory: Platform, stalled: ErasureWorker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A fold brings a model back between the look at the models and the one at the commits."""
    kept = backup(memory)
    erasures.register(memory, "churn")
    restore(memory, kept)
    erase(memory, "subject-1", "e-1")
    while not stalled._pending:
        erasures.turn(stalled)
    read = stalled._models

    def read_then_folded() -> Models:
        found = read()
        settle(memory)
        return found

    monkeypatch.setattr(stalled, "_models", read_then_folded)
    drain_slowly(memory, stalled)
    assert not final_bytes(memory, "e-1")


def test_a_list_that_others_have_read_further_is_not_taken_for_lost(memory: Platform) -> None:
    """Between a look at the end of the topic and one at the view, others may have added."""

    class Slow(MemoryReader):
        def bounds(self, partition: Partition) -> Bounds:
            found = super().bounds(partition)
            if partition.topic == topics.SUPPRESSIONS and not memory.records(topics.ERASURES):
                erase(memory, "subject-1", "e-1")
                work(memory)
            return found

    assert isinstance(memory.log, MemoryLog)
    with closing(memory.new_store()) as store:
        suppressions = Suppressions(store, Slow(memory.log), memory.seals)
        suppressions.catch_up()
        assert suppressions.of("", ["subject-1"]) == {"subject-1": "e-1"}
