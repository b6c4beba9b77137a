"""Registering over a store that was cut off and went on by itself: its branch never gets out."""

from __future__ import annotations

from typing import Any

import pytest

from consumers import topics
from consumers.deletion_worker import BatchLimits
from consumers.history import history
from consumers.log.memory import MemoryLog, Moment
from consumers.publisher import message
from consumers.steps import Step
from engine.errors import ModelExists, StoreUnavailable, VersionFork
from engine.store.outbox import Entry, Outbox, Stage, encode
from tests.integration.test_worker_lost_writes import lose_at_receipts, values
from tests.integration.test_worker_takeover import dump
from tests.support.evidence import check_receipt_log
from tests.support.invariants import check_rows, check_theta, check_versions, ledger_of
from tests.support.platform import Platform
from tests.support.stores import cut_off, put_back, whole
from tests.support.waiting import CROWDED

pytestmark = pytest.mark.redis

APART = BatchLimits(rows=1)
"""A version a request."""


def others_go_on(memory: Platform, *, records: int | None = None) -> None:
    """Let another worker decide the same requests, all of them or so many of the first."""
    worker = memory.deletion_worker(limits=BatchLimits(records=1 if records else 256))
    if records is None:
        memory.drain(worker, memory.pair[1])
    decided = 0
    while decided < (records or 0):
        decided += worker.run_once(0.0)
    worker.close()


def halted(memory: Platform) -> str:
    """Let a worker take the store over; return why it halts the model."""
    worker = memory.deletion_worker()
    memory.drain(worker)
    [reason] = worker._halted.values()
    worker.close()
    return reason


def works_again(memory: Platform) -> None:
    """Let workers go on; check that nothing of this history contradicts anything else."""
    worker = memory.deletion_worker()
    memory.drain(worker, memory.pair[1])
    assert not worker._halted
    worker.close()
    check_versions(memory, "m", accounted=False)
    check_receipt_log(memory, "m")
    check_rows(memory, "m")
    check_theta(memory, "m", 1e-8)
    finals = memory.finals("m")
    assert finals.keys() == {request for _, request in memory.asked}
    assert memory.raw().xlen(memory.load().keys.outbox) == 0
    assert [version.version for version in history(memory.reader, "m")] == [
        version.version for version in memory.versions()
    ]


def check_account(memory: Platform) -> None:
    """Versions and receipts name each other, and delete the same rows, as `lethe audit` asks."""
    applied = [receipt for receipt in memory.finals("m").values() if receipt.status == "APPLIED"]
    deleted = 0
    for version in memory.versions():
        own = [receipt for receipt in applied if receipt.version == version.version]
        assert {receipt.request_id for receipt in own} == set(version.request_ids)
        assert {receipt.generation for receipt in own} <= {version.generation}
        deleted += sum(receipt.rows_deleted for receipt in own)
        assert version.rows_deleted == deleted
    assert len(ledger_of(memory)) == deleted == memory.load().meta.rows_deleted


def replace_model(memory: Platform, **options: Any) -> None:
    memory.register("m", budget=10.0, replace_model=True, **options)


# -- what has an answer in the log ----------------------------------------------------------------


@pytest.mark.parametrize("limits", [APART, BatchLimits()], ids=["two versions", "one version"])
def test_replacing_a_model_that_was_cut_off_does_not_publish_its_branch(
    memory: Platform, limits: BatchLimits
) -> None:
    memory.register("m", budget=10.0)
    memory.drain()
    requests = [memory.send_index("m", row) for row in (1, 2)]
    branch = cut_off(memory, limits)
    others_go_on(memory)
    published, receipts = memory.versions(), values(memory, topics.RECEIPTS)
    put_back(memory, branch)
    assert "--replace" in halted(memory)
    replace_model(memory)
    found = memory.versions()
    assert found[:-1] == published
    assert found[-1].version == len(published)
    assert (found[-1].request_ids, found[-1].rows_deleted) == ((), 2)
    assert values(memory, topics.RECEIPTS) == receipts
    works_again(memory)
    check_account(memory)
    # A repeat gets the receipt that everybody knows, not that of the branch
    for request, row in zip(requests, (1, 2), strict=True):
        memory.send_index("m", row, request_id=request)
    works_again(memory)


def test_registering_what_is_registered_does_not_publish_a_branch(memory: Platform) -> None:
    memory.register("m", budget=10.0)
    memory.drain()
    for row in (1, 2):
        memory.send_index("m", row)
    branch = cut_off(memory, APART)
    others_go_on(memory)
    published = [values(memory, topic) for topic in (topics.VERSIONS, topics.RECEIPTS)]
    put_back(memory, branch)
    with pytest.raises(VersionFork, match="--replace"):
        memory.register("m", budget=10.0)
    assert [values(memory, topic) for topic in (topics.VERSIONS, topics.RECEIPTS)] == published


def test_registering_what_is_registered_publishes_what_waits(memory: Platform) -> None:
    memory.register("m", budget=10.0)
    memory.drain()
    memory.send_index("m", 1)
    branch = cut_off(memory, APART)
    put_back(memory, branch)
    with pytest.raises(ModelExists):
        memory.register("m", budget=10.0)
    assert [version.version for version in memory.versions()] == [0, 1]


def test_replacing_what_two_failovers_halted(memory: Platform) -> None:
    memory.register("m", "benign", "linear", budget=10.0, limits=CROWDED)
    memory.send_index("m", *range(20))
    worker, refresher = memory.pair
    memory.turn(worker)
    before = whole(memory)
    lose_at_receipts(memory, dump(memory.store, "m"))
    while len(memory.records(topics.RECEIPTS)) < 2:
        refresher.run_once(0.0)
        memory.turn(worker)
    put_back(memory, before)
    worker.recover()
    memory.turn(worker)
    memory.send_index("m", 30)
    memory.turn(worker)
    memory.drain()
    put_back(memory, before)
    worker.recover()
    memory.drain()
    if worker._halted:
        memory.register("m", "benign", "linear", budget=10.0, limits=CROWDED, replace_model=True)
    worker.recover()
    memory.drain()
    assert not worker._halted
    assert list(history(memory.reader, "m")) == memory.versions()
    memory.finals("m")


def test_a_request_that_only_the_branch_made_wait_keeps_its_published_answer(
    memory: Platform,
) -> None:
    """Its rows have to wait here, and are deleted by a rebuild that answers nobody."""
    memory.register("m", "benign", "linear", budget=10.0, limits=CROWDED)
    memory.drain()
    memory.send_index("m", *range(5))
    second = memory.send_index("m", *range(5, 10))
    branch = cut_off(memory, APART)
    others_go_on(memory)
    answer = memory.final(second)
    put_back(memory, branch)
    assert memory.load().deferred.keys() == {second}
    halted(memory)
    memory.register("m", "benign", "linear", budget=10.0, limits=CROWDED, replace_model=True)
    assert memory.load().answered == {second}
    works_again(memory)
    assert memory.final(second) == answer
    assert ledger_of(memory).keys() == {f"row-{row}" for row in range(10)}


# -- what only the branch has answered ------------------------------------------------------------


def test_what_only_the_branch_has_answered_is_answered_by_the_replacement(
    memory: Platform,
) -> None:
    memory.register("m", budget=10.0)
    memory.drain()
    both = memory.send_index("m", 1)
    alone = memory.send_index("m", 2, 3)
    stranger = memory.send("m", "a stranger")
    branch = cut_off(memory, APART)
    others_go_on(memory, records=1)
    known = memory.final(both)
    put_back(memory, branch)
    halted(memory)
    replace_model(memory)
    answer = memory.final(alone)
    assert (answer.status, answer.rows_deleted, answer.version) == ("APPLIED", 2, 2)
    assert memory.final(stranger).code == "UNKNOWN_ROWS"
    newest = memory.versions()[-1]
    assert (newest.version, newest.request_ids, newest.rows_deleted) == (2, (alone,), 3)
    assert newest.rows_live == len(memory.data["m"].X) - 3
    works_again(memory)
    check_account(memory)
    # A repeat gets it again, byte for byte
    receipts = values(memory, topics.RECEIPTS)
    memory.send_index("m", 2, 3, request_id=alone)
    works_again(memory)
    assert values(memory, topics.RECEIPTS) == receipts
    assert memory.statuses(alone) == ["APPLIED", "APPLIED"]
    assert memory.final(both) == known


def test_what_others_decided_and_the_branch_did_not_keeps_its_answer(memory: Platform) -> None:
    memory.register("m", budget=10.0)
    memory.drain()
    memory.send_index("m", 1)
    branch = cut_off(memory, APART)
    later = memory.send_index("m", 2)
    others_go_on(memory)
    answer = memory.final(later)
    put_back(memory, branch)
    halted(memory)
    replace_model(memory)
    worker = memory.deletion_worker()
    memory.drain(worker)
    assert not worker._halted
    assert memory.final(later) == answer
    assert ledger_of(memory).keys() == {"row-1", "row-2"}
    assert list(history(memory.reader, "m")) == memory.versions()


# -- crashes and others, in between ---------------------------------------------------------------


@pytest.mark.parametrize(
    "step", [Step.REGISTER_COMMIT, Step.REGISTER_FINISH, Step.PUBLISH_VERSIONS]
)
@pytest.mark.parametrize("then", ["replaced", "taken over"])
def test_a_replacement_of_a_branch_that_ends_early_leaves_nothing_half_done(
    memory: Platform, step: Step, then: str
) -> None:
    memory.register("m", budget=10.0)
    memory.drain()
    memory.send_index("m", 1)
    memory.send_index("m", 2)
    branch = cut_off(memory, APART)
    others_go_on(memory, records=1)
    published = memory.versions()
    put_back(memory, branch)

    def die(name: str) -> None:
        if name == step:
            raise StoreUnavailable("gone")

    with pytest.raises(StoreUnavailable):
        replace_model(memory, at_step=die)
    if then == "replaced" or step == Step.REGISTER_COMMIT:
        replace_model(memory)
    works_again(memory)
    assert memory.versions()[: len(published)] == published
    check_account(memory)


def test_what_another_worker_publishes_of_the_branch_meanwhile_is_an_answer(
    memory: Platform,
) -> None:
    """A worker that is slow, or does not know yet, sends a receipt of the branch and trims it."""
    memory.register("m", budget=10.0)
    memory.drain()
    memory.send_index("m", 1)
    alone = memory.send_index("m", 2)
    branch = cut_off(memory, APART)
    others_go_on(memory, records=1)
    put_back(memory, branch)
    outbox = Outbox(memory.store.client)
    keys = memory.load().keys
    sent: list[bytes] = []

    def slow(name: str) -> None:
        if name != Step.REGISTER_COMMIT or sent:
            return
        for entry_id, entry in list(outbox.everything(keys)):
            if entry.stage is Stage.RECEIPTS and alone.encode() in entry.value:
                sent.append(entry.value)
                memory.producer.publish([message(entry)])
                outbox.trim(keys, [entry_id])

    replace_model(memory, at_step=slow)
    assert memory.final(alone).value() == sent[0]
    works_again(memory)


def test_a_store_that_is_restored_while_its_branch_is_replaced_goes_on_as_it_is(
    memory: Platform,
) -> None:
    memory.register("m", budget=10.0)
    memory.drain()
    memory.send_index("m", 1)
    branch = cut_off(memory, APART)
    others_go_on(memory)
    sound = whole(memory)
    put_back(memory, branch)
    staged: list[str] = []

    def restored(name: str) -> None:
        if name == Step.REGISTER_COMMIT and not staged:
            staged.append(name)
            kept = {
                key: value
                for key, value in whole(memory).items()
                if b":gen:" in key or b":data:" in key
            }
            put_back(memory, {**kept, **sound})
            memory.send_index("m", 5)
            worker = memory.deletion_worker()
            memory.drain(worker)
            worker.close()

    replace_model(memory, at_step=restored)
    works_again(memory)
    check_account(memory)


def test_what_is_withdrawn_while_it_is_being_sent_is_not_sent(memory: Platform) -> None:
    """Given a publisher that is slow with the receipts; what is sent last is still there."""
    memory.register("m", budget=10.0)
    memory.drain()
    outbox, keys, versions = Outbox(memory.store.client), memory.load().keys, memory.versions()

    def withdraw(moment: Moment) -> None:
        if any(one.topic == topics.RECEIPTS for one in moment.messages):
            waiting = outbox.read(keys)
            assert waiting[-1][1].stage is Stage.AFTER
            outbox.trim(keys, [name for name, entry in waiting if entry.stage is Stage.VERSIONS])

    assert isinstance(memory.log, MemoryLog)
    memory.log.hook = withdraw
    memory.send_index("m", 1)
    memory.send_raw(b'{"request_id": "r", "model_id": "m", "row_ids": [1.5]}')
    memory.turn(memory.pair[0])
    assert memory.load().version == 1
    assert memory.versions() == versions


def test_a_branch_with_a_damaged_log_of_receipts_is_replaced(memory: Platform) -> None:
    memory.register("m", budget=10.0)
    memory.drain()
    memory.send_index("m", 1)
    memory.drain()
    memory.send_index("m", 2)
    memory.send_index("m", 3)
    branch = cut_off(memory, APART)
    others_go_on(memory)
    put_back(memory, branch)
    memory.raw().lset(memory.load().keys.receipt_log, 0, "damaged")
    assert "went on by itself" in halted(memory)
    replace_model(memory)
    memory.send_index("m", 4)
    worker = memory.deletion_worker()
    memory.drain(worker, memory.pair[1])
    assert not worker._halted
    check_versions(memory, "m", accounted=False)


def test_a_message_that_cannot_be_read_halts_its_model_by_name(memory: Platform) -> None:
    memory.register("m", budget=10.0)
    memory.drain()
    state = memory.load()
    spoilt = encode(Entry(Stage.RECEIPTS, topics.RECEIPTS, b"m", b'{"request_id": 1}'))
    memory.raw().xadd(state.keys.outbox, {"entry": spoilt}, id=f"{state.commit_seq}-99")
    memory.pair[0].close()
    assert "a receipt in the outbox" in halted(memory)
    replace_model(memory)
    assert memory.load().version == 1
