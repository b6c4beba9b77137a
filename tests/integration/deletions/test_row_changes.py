"""Inserts and corrections through the worker: what is live decides, whatever led there."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, cast

import numpy as np
import pytest

from lethe.consumers.commits.commit import RowChange
from lethe.consumers.commits.recovery.change_requests import read_changes
from lethe.consumers.contract import topics
from lethe.consumers.log.base import Message, Reader
from lethe.consumers.refresh.job import run_job
from lethe.consumers.refresh.new_generation import CATCH_UP_LIMIT
from lethe.consumers.service.telemetry.steps import Step
from lethe.engine.error.estimate import published_error
from lethe.engine.error.terms import ObjectiveNoise
from lethe.engine.fit.classes import class_counts
from lethe.engine.fit.factor import Factor
from lethe.engine.refresh.size import RefreshSize
from lethe.engine.store.factors import Factors
from lethe.engine.store.layout.config import LimitsRecord
from lethe.engine.store.layout.keys import ModelKeys
from lethe.engine.store.layout.state import ModelState
from lethe.engine.store.offline.snapshot import take_snapshot
from lethe.engine.store.server.connection import text
from tests.support.events import settle
from tests.support.families import Data, make
from tests.support.invariants import ledger_of
from tests.support.oracles import distance
from tests.support.platform import Platform
from tests.support.stores import backup, restore
from tests.support.tables import Table, registered_table
from tests.support.waiting import Clock


def test_rows_that_are_inserted_corrected_and_deleted_are_as_if_refitted(
    platform: Platform,
) -> None:
    table = registered_table(platform, "benign", "linear", budget=1e-3)
    first = table.change("insert", table.row("new-1"), table.row("new-2", weight=2.0))
    platform.drain()
    table.check()
    second = table.change("correct", table.row("row-3"), table.row("new-1"))
    platform.drain()
    table.check()
    third = table.delete("new-1", "row-3", "row-4")
    platform.drain()
    table.check()
    receipts = platform.finals()
    assert [receipts[r].status for r in (first, second, third)] == ["APPLIED"] * 3
    assert (receipts[first].op, receipts[first].rows_inserted) == ("insert", 2)
    assert (receipts[second].op, receipts[second].rows_corrected) == ("correct", 2)
    assert (receipts[third].op, receipts[third].rows_deleted) == ("delete", 3)
    assert platform.newest_version().rows_live == len(table.rows)


def test_what_a_request_does_to_a_row_holds_for_the_next_of_the_same_poll(
    memory: Platform,
) -> None:
    table = registered_table(memory, "benign", "linear")
    sent = [
        table.change("insert", table.row("new-1")),
        table.change("correct", table.row("new-1")),
        table.change("correct", table.row("new-1", weight=3.0), table.row("row-0")),
        table.change("insert", table.row("new-2")),
    ]
    memory.drain()
    table.check()
    receipts = memory.finals()
    assert [receipts[r].version for r in sent] == [1, 2, 3, 3]


@pytest.mark.parametrize("method", ["pru", "exact", "influence"])
@pytest.mark.parametrize(
    "family", ["benign", "wide", "badly_scaled", "several_outputs", "no_intercept"]
)
def test_mixed_requests_in_any_batching_are_as_if_refitted(
    memory: Platform, family: str, method: str
) -> None:
    memory.register("m", family, "linear", method=method, budget=10.0)
    table = Table(memory, seed=3)
    draw = np.random.default_rng(5)
    for turn in range(12):
        names = list(table.rows)
        chosen = [names[i] for i in draw.choice(len(names), 3, replace=False)]
        table.change("insert", *(table.row(f"new-{turn}-{i}") for i in range(draw.integers(1, 4))))
        table.change("correct", table.row(chosen[0]))
        if turn % 3 == 0:
            memory.drain()
        table.delete(*chosen[1:])
        memory.drain()
    table.check()


def test_thousands_of_mixed_operations_stay_at_refitting(memory: Platform) -> None:
    """5,000 rows inserted, corrected and deleted, in batches of any size and over refreshes."""
    draw = np.random.default_rng(11)
    d = 20
    X, y = draw.normal(size=(800, d)), draw.normal(size=(800, 1))
    data = Data("mixed", "linear", X, y, np.ones(800), 1.0, True, np.arange(0))
    memory.register("m", data, budget=1e-3)
    table = Table(memory, seed=12)
    done, turn = 0, 0
    while done < 5000:
        turn += 1
        k = int(draw.integers(1, 12))
        names = list(table.rows)
        chosen = [names[i] for i in draw.choice(len(names), 2 * k, replace=False)]
        table.change("insert", *(table.row(f"new-{turn}-{i}") for i in range(k)))
        table.change("correct", *(table.row(name) for name in chosen[:k]))
        table.delete(*chosen[k:])
        memory.drain()
        done += 3 * k
        if turn % 40 == 0:
            table.check()
    table.check()
    assert {receipt.status for receipt in memory.finals().values()} == {"APPLIED"}
    assert memory.load().meta.generation > 0


@pytest.mark.parametrize("family", ["benign", "classes", "badly_scaled"])
def test_rows_of_a_logistic_model_are_inserted_and_corrected(memory: Platform, family: str) -> None:
    """A refresh certifies the answer against the live rows; estimates between are a guide."""
    memory.register("m", family, "logistic", budget=1e-3)
    table, draw = Table(memory, seed=7), np.random.default_rng(8)
    for turn in range(6):
        names = list(table.rows)
        chosen = [names[i] for i in draw.choice(len(names), 3, replace=False)]
        table.change("insert", *(table.row(f"new-{turn}-{i}", weight=1.5) for i in range(2)))
        table.change("correct", table.row(chosen[0]))
        table.delete(*chosen[1:])
        memory.drain()
        state, truth = memory.load(), table.retrained()
        away = distance(state.stream.published, truth)
        error = state.meta.error
        assert error.bound is None or away <= error.bound
        assert error.value is None or away <= 10 * error.value
        counts = class_counts(np.array([y for _, y, _ in table.rows.values()]))
        assert state.meta.class_counts == counts
    memory.refresh("m", [RefreshSize.POLISH, RefreshSize.REBUILD][family == "classes"])
    assert memory.load().meta.error.kind == "certificate"
    table.check(1e-3)
    assert {receipt.status for receipt in memory.finals().values()} == {"APPLIED"}


def test_the_estimate_counts_rows_that_were_inserted_since_the_sample(memory: Platform) -> None:
    """A model that is loaded again, and a fold, have the sample that the worker had."""
    table = registered_table(memory, "benign", "logistic", method="exact", budget=10.0)
    before = backup(memory)
    outlier = {**table.row("new-1"), "values": [3.0] * table.data.X.shape[1]}
    table.change("insert", outlier, table.row("new-2"))
    table.change("correct", table.row("row-1"))
    table.delete("row-5")
    memory.drain()
    said = memory.newest_version().error.value
    for goes_back in (False, True):
        if goes_back:
            restore(memory, before)
        settle(memory)
        state = memory.load()
        chances = dict(zip(state.sentinels.ids, state.sentinels.chances(0), strict=True))
        assert all(chances[row] == 1.0 for row in ("new-1", "new-2", "row-1"))
        error = published_error(
            state.generation, state.stream, state.sentinels, state.meta.rows_live
        )
        assert error.value == pytest.approx(said, rel=1e-6)


@pytest.mark.parametrize(("op", "row"), [("correct", "row-0"), ("insert", "new")])
def test_the_last_row_of_a_class_stays_until_another_comes(
    memory: Platform, op: str, row: str
) -> None:
    data = make("benign", "logistic")
    y = np.ones_like(data.y)
    y[0] = 0.0
    table = registered_table(memory, replace(data, y=y))
    ones = {**table.row(row), "target": 1.0}
    if op == "correct":
        request = memory.send_change("m", op, ones)
        assert memory.answer(request).code == "ONE_CLASS_LEFT"
        return
    table.change(op, {**ones, "target": 0.0})
    table.change("correct", {**table.row("row-0"), "target": 1.0})
    memory.drain()
    assert memory.load().meta.class_counts == (1, len(y))


REFUSALS: list[tuple[str, str, dict[str, Any]]] = [
    ("ROW_EXISTS", "insert", {"id": "row-1"}),
    ("ROW_DELETED", "insert", {"id": "row-0"}),
    ("ROW_DELETED", "correct", {"id": "row-0"}),
    ("ROW_UNKNOWN", "correct", {"id": "never"}),
    ("SCHEMA", "insert", {"id": "new", "values": [1.0]}),
    ("SCHEMA", "insert", {"id": "new", "values": {"x0": 1.0, "nothing": 2.0}}),
    ("SCHEMA", "insert", {"id": "new", "target": [1.0, 2.0]}),
    ("SCHEMA", "correct", {"id": "row-1", "subject": "somebody"}),
    ("SCHEMA", "insert", {"id": "new", "target": "a class"}),
    ("INVALID_REQUEST", "insert", {"id": "new", "weight": 0.0}),
    ("INVALID_REQUEST", "insert", {"id": "new", "weight": "1"}),
    ("INVALID_REQUEST", "insert", {"id": "new", "target": True}),
    ("INVALID_REQUEST", "insert", {"id": 1.5}),
    ("INVALID_REQUEST", "replace", {"id": "new"}),
    ("OUT_OF_RANGE", "insert", {"id": "new", "target": 1e308, "weight": 1e308}),
]


def test_a_request_that_cannot_be_applied_is_rejected_whole_with_its_code(
    memory: Platform,
) -> None:
    table = registered_table(memory, "benign", "linear")
    table.delete("row-0")
    memory.drain()
    sent = []
    for _, op, fields in REFUSALS:
        row = {**table.row("new"), **fields}
        good = table.row("good" if op == "insert" else "row-2")
        sent.append(memory.send_change("m", op, good, row))
    neighbour = table.change("insert", table.row("other"))
    memory.drain()
    receipts = memory.finals()
    assert [receipts[r].code for r in sent] == [code for code, _, _ in REFUSALS]
    assert receipts[neighbour].status == "APPLIED"
    assert all(receipts[r].status == "REJECTED" for r in sent)
    table.check()


def test_what_cannot_be_read_leaves_its_digest_in_dead_letters_and_no_value(
    memory: Platform,
) -> None:
    memory.register("m", "benign", "linear")
    value = b'{"request_id": "r", "model_id": "m", "op": "insert", "rows": [{"id": "a", 777.25'
    memory.producer.publish([Message(topics.ROW_CHANGES, b"m", value, (("777.25", b"777.25"),))])
    memory.drain()
    [letter] = memory.dead_letters()
    assert b"777.25" not in (letter.value or b"")
    assert all(b"777.25" not in content for _, content in letter.headers)


def test_a_certified_model_that_cannot_be_changed_says_so(memory: Platform) -> None:
    noise = ObjectiveNoise(epsilon=1.0, delta=1e-4, sigma=1.0)
    memory.register("c", "benign", "linear", method="exact", certify=noise)
    table = Table(memory, "c")
    sent = memory.send_change("c", "insert", table.row("new"))
    memory.drain()
    assert memory.final(sent, "c").code == "UNSUPPORTED"


def test_the_same_request_again_has_the_first_receipt_and_another_body_conflicts(
    memory: Platform,
) -> None:
    table = registered_table(memory, "benign", "linear")
    row = table.row("new")
    table.change("insert", row, request_id="r")
    memory.drain()
    memory.send_change("m", "insert", row, request_id="r")
    memory.send_change("m", "insert", table.row("new"), request_id="r")
    memory.send("m", "row-5", request_id="r")
    memory.drain()
    said = [(receipt.status, receipt.code, receipt.op) for receipt in memory.receipts()]
    conflict = ("REJECTED", "REQUEST_ID_CONFLICT")
    applied = ("APPLIED", None, "insert")
    assert sorted(said, key=str) == sorted(
        [applied, applied, (*conflict, "insert"), (*conflict, "delete")], key=str
    )
    table.check()


def test_rows_are_found_by_the_subject_that_they_were_inserted_with(memory: Platform) -> None:
    table = registered_table(memory, "benign", "linear")
    table.change("insert", *({**table.row(f"new-{i}"), "subject": "s/é"} for i in range(2)))
    table.change("insert", {**table.row("new-9"), "subject": "subject-0"})
    memory.drain()
    for subject in ("s/é", "subject-0"):
        memory.send_raw(
            json.dumps({"request_id": subject, "model_id": "m", "subject_id": subject}).encode()
        )
    memory.drain()
    for name in ("new-0", "new-1", "new-9", "row-0", "row-1", "row-2"):
        del table.rows[name]
    table.check()


def test_no_value_of_a_row_is_in_a_commit_and_a_corrected_one_is_gone_from_the_store(
    memory: Platform,
) -> None:
    table = registered_table(memory, "benign", "linear")
    before = table.rows["row-7"][0]
    table.change("correct", table.row("row-7"))
    memory.drain()
    record = memory.store.row_records(memory.load().generation_keys, ["row-7"])["row-7"]
    assert before.tobytes() not in record
    erasures = ModelKeys("m").partition.erasures
    assert float(text(memory.raw().hget(erasures, "last"))) > 0
    assert ledger_of(memory) == {}


def test_a_row_whose_deletion_came_first_does_not_come_to_life_within_a_day(
    platform: Platform,
) -> None:
    table = registered_table(platform, "benign", "linear")
    worker = platform.deletion_worker()
    early = platform.send("m", "new-1", "row-1")
    none = platform.send("m", "new-2")
    platform.drain(worker)
    assert platform.final(early).rows_unknown == 1
    assert platform.final(none).code == "UNKNOWN_ROWS"
    del table.rows["row-1"]
    before = backup(platform)
    late = [platform.send_change("m", "insert", table.row(name)) for name in ("new-1", "new-2")]
    table.change("insert", table.row("new-3"))
    platform.drain(worker)
    assert [platform.final(r).code for r in late] == ["ROW_DELETED", "ROW_DELETED"]
    restore(platform, before)
    worker.recover()
    platform.drain(worker)
    table.check()
    key, raw = ModelKeys("m").tombstones, cast("Any", platform.raw())
    stored: list[bytes] = raw.zrange(key, 0, -1)
    assert len(stored) == 2
    assert not any(b"new" in mark for mark in stored)
    now = time.time()
    left = [until - now for _, until in raw.zrange(key, 0, -1, withscores=True)]
    assert all(24 * 3600 - 600 < one <= 24 * 3600 for one in left)
    raw.zadd(key, dict.fromkeys(stored, now - 1))  # a day later
    table.change("insert", table.row("new-1"))
    platform.drain(worker)
    table.check()


@pytest.mark.parametrize("hours", [(25, 0), (-25, 0), (0, 25), (0, -25), (-25, 25)])
def test_no_worker_with_another_clock_takes_an_insert_of_a_row_whose_deletion_came_first(
    memory: Platform, hours: tuple[int, int]
) -> None:
    """The store's clock counts: that of one worker decides neither when the day began nor ended."""
    deleting, inserting = Clock(), Clock()
    deleting.ahead, inserting.ahead = (3600.0 * ahead for ahead in hours)
    table = registered_table(memory, "benign", "linear")
    first = memory.deletion_worker(now=deleting)
    memory.send("m", "new-1")
    memory.drain(first)
    first.close()
    late = memory.send_change("m", "insert", table.row("new-1"))
    memory.drain(memory.deletion_worker(now=inserting))
    assert memory.final(late).code == "ROW_DELETED"
    table.check()


# -- crashes, rollbacks, refreshes ----------------------------------------------------------------


def test_values_that_the_log_no_longer_has_are_lost_and_only_then(
    memory: Platform, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = registered_table(memory, "benign", "linear")
    before = backup(memory)
    kept = table.row("new-1")
    table.change("insert", kept)
    memory.drain()
    restore(memory, before)
    monkeypatch.setattr(
        "lethe.consumers.commits.recovery.replay.read_changes",
        lambda *_: {},
    )
    settle(memory)
    lost = memory.send("m", "row-1")
    refused = memory.send_change("m", "insert", table.row("new-2"))
    settle(memory)
    assert memory.statuses(lost) == ["DEFERRED"]
    assert memory.receipts()[-1].code == "DATA_LOST" or memory.final(refused).code == "DATA_LOST"
    monkeypatch.undo()


def test_a_weight_that_was_lost_is_not_taken_from_the_row_as_it_was_before(
    memory: Platform, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The values of the correction that set it have expired, those of the next one have not."""
    table = registered_table(memory, "benign", "linear")
    before = backup(memory)
    table.change("correct", table.row("row-1", weight=3.0))
    memory.drain()
    table.change("correct", table.row("row-1"))
    memory.drain()
    restore(memory, before)
    expired: list[RowChange] = []

    def without_the_first(reader: Reader, changes: Sequence[RowChange]) -> Any:
        found = read_changes(reader, changes)
        expired.extend(list(found)[: not expired])
        return {change: one for change, one in found.items() if change not in expired}

    monkeypatch.setattr("lethe.consumers.commits.recovery.replay.read_changes", without_the_first)
    request = memory.send("m", "row-2")
    settle(memory)
    assert memory.receipts()[-1].code == "DATA_LOST"
    assert memory.statuses(request) == ["DEFERRED"]


@pytest.mark.parametrize("size", [RefreshSize.POLISH, RefreshSize.COMPACT, RefreshSize.REBUILD])
@pytest.mark.parametrize("op", ["insert", "correct"])
def test_a_refresh_beside_changes_loses_none(memory: Platform, size: RefreshSize, op: str) -> None:
    table = registered_table(memory, "benign", "linear", method="influence", budget=10.0)
    table.change("insert", table.row("new-1"))
    table.delete("row-9")
    memory.drain()
    event = memory.ordered("m", size)
    memory.compute_refresh(event)
    table.change(op, table.row("new-2" if op == "insert" else "row-5"))
    table.delete("row-7")
    memory.drain()
    memory.tell_refreshed(event)
    memory.drain()
    table.check()
    swapped = memory.newest_version()
    assert swapped.refresh is not None
    assert swapped.refresh.job_id == event.job_id
    table.change("correct", table.row("new-1"))
    table.change("correct", table.row("row-5"))
    table.delete("row-3")
    memory.drain()
    table.check()


def test_a_refresh_catches_up_with_any_number_of_changes(memory: Platform) -> None:
    """Rows change before each of its steps, more of them than a swap is left with."""
    table = registered_table(memory, "benign", "linear", budget=10.0)
    event = memory.ordered("m", RefreshSize.REBUILD)
    turn = 0

    def changes(step: str) -> None:
        nonlocal turn
        turn += 1
        many = CATCH_UP_LIMIT if step == Step.REFRESH_STAGE else 1
        table.change("insert", *(table.row(f"new-{turn}-{i}") for i in range(many)))
        table.change("correct", table.row("row-1"), table.row("row-2"))
        table.delete(f"row-{10 + turn}")
        memory.drain()

    job = run_job(memory.store, event, now=memory.load().meta.refreshed_at, at_step=changes)
    assert turn >= 3
    assert 0 < job.changed < memory.load().meta.rows_changed, "nothing is left to the swap"
    memory.tell_refreshed(event)
    memory.drain()
    table.check()
    assert memory.load().meta.generation == 1


def test_a_swap_that_caught_up_with_changes_is_folded_again(memory: Platform) -> None:
    """Given a store from before the swap, and one whose staged generation is gone as well."""
    table = registered_table(memory, "benign", "linear", budget=10.0)
    event = memory.ordered("m", RefreshSize.COMPACT)
    memory.compute_refresh(event)
    table.change("correct", table.row("row-1"), table.row("row-2"))
    table.change("insert", table.row("new-1"))
    table.delete("row-2", "row-3")
    memory.drain()
    before = backup(memory)
    memory.tell_refreshed(event)
    memory.drain()
    published = memory.newest_version()
    table.check()
    restore(memory, before)
    settle(memory)
    table.check()
    assert memory.newest_version() == published
    assert not memory.load().awaiting_rebuild, "the swap was lost"
    assert take_snapshot(memory.store, "m").state.meta.rows_live == len(table.rows)
    restore(memory, {name: kept for name, kept in before.items() if b":gen:1-" not in name})
    settle(memory)
    assert memory.load().awaiting_rebuild
    table.delete("row-4")
    memory.drain()
    table.check()


def test_a_row_that_is_corrected_while_rows_are_read_is_read_again(memory: Platform) -> None:
    table = registered_table(memory, "benign", "linear")

    def corrects_once(_: int) -> None:
        if not memory.load().meta.rows_corrected:
            table.change("correct", table.row("row-1"))
            memory.drain()

    snapshot = take_snapshot(memory.store, "m", corrects_once)
    place = snapshot.ids.index("row-1")
    assert snapshot.state.meta.rows_corrected == 1
    assert np.array_equal(snapshot.rows.X[place, :-1], table.rows["row-1"][0])


def test_rows_that_are_read_while_the_store_goes_back_are_the_newest(
    memory: Platform, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before and after it has the same commits; what was read in between is from before some."""
    table = registered_table(memory, "benign", "linear")
    table.change("insert", table.row("new-0"))
    memory.drain()
    before = backup(memory)
    table.change("correct", table.row("row-1"), table.row("new-0"))
    table.delete("row-2")
    table.change("insert", table.row("new-1"))
    memory.drain()
    load = memory.store.load_model

    def loses_the_last(model_id: str) -> ModelState:
        state = load(model_id)
        monkeypatch.undo()
        restore(memory, before)
        return state

    monkeypatch.setattr(memory.store, "load_model", loses_the_last)
    snapshot = take_snapshot(memory.store, "m", lambda _: settle(memory))
    assert set(snapshot.ids) == set(table.rows)
    for name in ("row-1", "new-0", "new-1"):
        place = snapshot.ids.index(name)
        assert np.array_equal(snapshot.rows.X[place, :-1], table.rows[name][0]), name


def test_a_full_generation_rejects_changes_until_it_is_rebuilt(memory: Platform) -> None:
    limits = LimitsRecord(fraction_of_d=0.01, floor_rows=4)
    table = registered_table(memory, "benign", "linear", limits=limits)
    hard = limits.limits().hard_rows(memory.load().meta.config.d)
    worker = memory.pair[0]
    refused = memory.send_change("m", "insert", *(table.row(f"x-{i}") for i in range(hard + 1)))
    memory.drain(worker)
    assert memory.final(refused).code == "GENERATION_FULL"
    for i in range(3 * hard):
        table.change("insert", table.row(f"y-{i}"))
        memory.drain()
    table.check()


def test_a_registration_that_replaces_the_model_begins_from_its_file(memory: Platform) -> None:
    table = registered_table(memory, "benign", "linear")
    table.change("insert", table.row("new-1"))
    table.change("correct", table.row("row-1"))
    table.delete("row-2")
    memory.drain()
    memory.register("m", "benign", "linear", replace_model=True)
    again = Table(memory)
    del again.rows["row-2"]
    memory.drain()
    again.check()
    again.change("insert", again.row("new-1"))
    again.change("correct", again.row("row-1"))
    memory.drain()
    again.check()
    again.delete("new-1")
    memory.drain()
    again.check()


def test_a_request_from_before_the_model_is_not_the_models(memory: Platform) -> None:
    memory.register("other", "benign", "linear")
    table = Table(memory, "other")
    early = memory.send_change("m", "insert", table.row("new"))
    memory.register("m", "benign", "linear")
    assert memory.answer(early).code == "UNKNOWN_MODEL"
    assert memory.final(early).op == "insert"


@pytest.mark.parametrize("when", ["before the turn", "during the turn"])
def test_a_model_that_was_replaced_a_moment_ago_is_changed_and_does_not_halt(
    memory: Platform, monkeypatch: pytest.MonkeyPatch, when: str
) -> None:
    """The worker has the state from before, and the factor that it names is gone."""
    memory.register("m")
    memory.delete("m", 0)

    def replace_then_load(factors: Factors, state: ModelState) -> Factor:
        monkeypatch.undo()
        memory.register("m", replace_model=True)
        return factors.of(state)

    if when == "before the turn":
        memory.register("m", replace_model=True)
    else:
        monkeypatch.setattr(Factors, "of", replace_then_load)
    request = memory.send_change("m", "insert", Table(memory).row("new-1"))
    assert memory.answer(request).status == "APPLIED"
    assert memory.load().meta.reference_epoch == 1
