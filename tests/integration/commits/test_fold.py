"""Whatever the store has lost, a fold brings it to what the log says, and nothing is contradicted.

The store goes back to earlier backups, once and again and between any two steps; workers die
between append, apply and publish. Published bytes stand, each request has one final receipt, and
theta_exact is bit for bit that of a store that nothing happened to.
"""

from __future__ import annotations

import random
from datetime import UTC, datetime

import numpy as np
import pytest

from lethe.consumers.commits.recovery import partition_fold
from lethe.consumers.contract import topics
from lethe.consumers.refresh import new_generation
from lethe.consumers.refresh.job import run_job
from lethe.consumers.service.telemetry.steps import Step
from lethe.consumers.workers.deletion_worker import DeletionWorker
from lethe.engine.refresh.size import RefreshSize
from lethe.engine.store.layout.keys import shard_of
from lethe.engine.store.membership import registered_models
from lethe.engine.store.offline import staging
from tests.support.events import check_same, ends_at, published, run_to_death, settle, walk
from tests.support.invariants import check_model
from tests.support.lost_topics import go_on_without
from tests.support.memory_log import MemoryLog
from tests.support.platform import Platform, row_ids
from tests.support.stores import Backup, backup, neighbour_of, restore
from tests.support.waiting import CROWDED

# -- a store that goes back ------------------------------------------------------------------------


def test_a_worker_that_is_idle_notices_that_its_store_went_back(
    memory: Platform, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody asks for anything, nothing fails: it looks at the cursors now and then."""
    monkeypatch.setattr("lethe.consumers.workers.lag._PERIOD_SECONDS", 0.0)
    memory.register("m", budget=10.0)
    early = backup(memory, "m")
    memory.delete("m", 1)
    twin = memory.load()
    restore(memory, early, "m")
    for _ in range(3):
        memory.turn(memory.pair[0])
    check_same(memory.load(), twin)


@pytest.mark.parametrize("seed", range(8))
def test_walks_of_rollbacks_refreshes_and_replacements(memory: Platform, seed: int) -> None:
    """Any earlier store comes back between any two steps of a worker, of a fold, of a swap."""
    dice = random.Random(seed)
    kind = dice.choice(["linear", "logistic"])
    models = ["m", neighbour_of("m")]
    for model in models:
        limits = CROWDED if dice.random() < 0.3 else None
        memory.register(model, "benign", kind, budget=10.0, limits=limits)

    def act(worker: DeletionWorker) -> None:
        model = dice.choice(models)
        draw = dice.random()
        if draw < 0.6:
            rows = dice.sample(range(120), dice.choice([1, 2, 5]))
            memory.send_index(model, *rows)
        elif draw < 0.7:
            memory.order(
                model, dice.choice([RefreshSize.COMPLETE, RefreshSize.REBUILD, RefreshSize.POLISH])
            )
        elif draw < 0.75:
            worker.recover()

    walk(memory, dice, act)
    for model in models:  # what was lost of a refresh is made up for when somebody asks
        memory.send_index(model, 119, 118)
    settle(memory)
    for model in models:
        assert {r.status for r in memory.finals(model).values()} <= {"APPLIED", "ALREADY_APPLIED"}
        assert not memory.load(model).awaiting_rebuild
        check_model(memory, model)


# -- what a store cannot compute again -------------------------------------------------------------


@pytest.mark.parametrize("chunks", [1, 3], ids=["some rows", "all rows, not the late deletions"])
def test_a_refresh_that_the_store_has_only_part_of_is_lost(
    memory: Platform, monkeypatch: pytest.MonkeyPatch, chunks: int
) -> None:
    """A store that goes back to a time amid a staging has some of what a commit makes live."""
    monkeypatch.setattr(staging, "CHUNK", 50)
    monkeypatch.setattr(new_generation, "CATCH_UP_LIMIT", 2)
    memory.register("m", budget=10.0)
    event = memory.ordered("m", RefreshSize.REBUILD)
    staged: list[Backup] = []

    def at_step(step: str) -> None:
        if step == Step.REFRESH_STAGE:
            staged.append(backup(memory, "m"))
            if len(staged) == 3:
                memory.send_index("m", 3, 4, 5)  # the job catches up with them
                memory.turn(memory.pair[0])

    run_job(memory.store, event, now=datetime.now(UTC), at_step=at_step)
    memory.tell_refreshed(event)
    memory.turn(memory.pair[0])
    before, twin = published(memory), memory.load()
    assert (twin.meta.generation, twin.meta.K) == (1, 3)
    restore(memory, staged[chunks - 1], "m")
    settle(memory)
    state = memory.load()
    assert state.awaiting_rebuild
    assert (state.head, state.version) == (twin.head, twin.version)
    assert published(memory) == before
    request = memory.delete("m", 7)
    assert memory.statuses(request) == ["DEFERRED", "APPLIED"]
    assert memory.load().meta.rows_live == 120 - 4
    check_model(memory)


def test_deletions_whose_rows_are_erased_already_stand_and_a_rebuild_follows(
    memory: Platform,
) -> None:
    """The head went back and the row records did not: what was published is as it was."""
    memory.register("m", budget=10.0)
    early = backup(memory, "m")
    memory.delete("m", 1, 2)
    before, twin = published(memory), memory.load()
    restore(memory, early, "m")
    live = memory.load().generation_keys
    memory.raw().hdel(live.rows(shard_of("row-1")), "row-1")
    settle(memory)
    state = memory.load()
    assert state.awaiting_rebuild
    assert np.array_equal(state.stream.theta_exact, twin.stream.theta_exact)
    assert published(memory) == before
    assert not memory.raw().hexists(live.rows(shard_of("row-2")), "row-2")
    request = memory.delete("m", 3)
    assert memory.statuses(request) == ["DEFERRED", "APPLIED"]
    check_model(memory)


def test_a_deferral_and_its_rebuild_that_the_store_forgot_stand(memory: Platform) -> None:
    memory.register("m", budget=10.0, limits=CROWDED)
    early = backup(memory, "m")
    request = memory.send_index("m", *range(20))
    memory.turn_until_decided(1)
    assert memory.statuses(request) == ["DEFERRED"]
    waiting = backup(memory, "m")
    memory.drain()
    before, twin = published(memory), memory.load()
    for kept in (waiting, early):
        restore(memory, kept, "m")
        settle(memory)
        state = memory.load()  # the job may have been done once more, for nothing
        assert (state.version, state.digest, state.deferred) == (twin.version, twin.digest, {})
        assert state.awaiting_rebuild
        assert published(memory) == before
    again = memory.delete("m", *range(20), request_id=request)
    assert set(memory.statuses(again)) == {"DEFERRED", "APPLIED"}
    assert memory.statuses(again)[-1] == "APPLIED"
    memory.delete("m", 40)
    check_model(memory)


def test_a_model_that_was_emptied_and_came_back_is_empty_again(memory: Platform) -> None:
    memory.register("m", budget=10.0)
    early = backup(memory, "m")
    memory.send("m", *row_ids(memory.data["m"]))
    memory.drain()
    assert memory.load().meta.status == "EMPTY"
    before = published(memory)
    restore(memory, early, "m")
    settle(memory)
    assert memory.load().meta.status == "EMPTY"
    assert published(memory) == before
    check_model(memory)


def test_a_model_that_was_unregistered_and_came_back_is_unregistered_again(
    memory: Platform,
) -> None:
    memory.register("m", budget=10.0, limits=CROWDED)
    waiting = memory.send_index("m", *range(20))
    memory.turn_until_decided(1)
    early = backup(memory, "m")
    memory.registrar().unregister("m")
    assert memory.final(waiting).code == "MODEL_UNREGISTERED"
    before = published(memory)
    restore(memory, early, "m")
    settle(memory)
    assert registered_models(memory.store.client) == []
    assert published(memory) == before
    assert [key for key in memory.raw().keys("lethe:{*}:m:gen:*") if b"job" not in key] == []
    late = memory.send("m", "row-50")
    assert memory.answer(late).code == "MODEL_UNREGISTERED"


def test_a_replacement_that_the_store_forgot_is_made_up_for_from_what_it_staged(
    memory: Platform,
) -> None:
    """Its staging does not expire: where only the head went back, it becomes live once more."""
    memory.register("m", budget=10.0)
    memory.delete("m", 0)
    reached: list[Backup] = []

    def at_step(step: str) -> None:
        if step == Step.REGISTER_APPEND:
            reached.append(backup(memory, "m"))

    memory.registrar(at_step=at_step)
    memory.register("m", budget=10.0, replace_model=True, at_step=at_step)
    memory.delete("m", 1)
    twin, before = memory.load(), published(memory)
    restore(memory, reached[0], "m")
    settle(memory)
    check_same(memory.load(), twin)
    assert published(memory) == before
    check_model(memory)


# -- a worker that dies ----------------------------------------------------------------------------


def test_a_fold_that_is_cut_short_is_gone_on_with(
    memory: Platform, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Servers that break off each long fold must not have it begin at the same place for ever."""
    monkeypatch.setattr(partition_fold, "RUN_LENGTH", 2)
    memory.register("m", budget=10.0)
    early = backup(memory)
    for row in range(6):
        memory.delete("m", row)
    before = memory.store.cursors.read(memory.load().keys.partition).pair.published
    restore(memory, early)
    for _ in range(2):
        run_to_death(memory, memory.deletion_worker(at_step=ends_at(Step.FOLD_PUBLISH, 2)))
    cursors = memory.store.cursors.read(memory.load().keys.partition).pair
    assert cursors.published == before - 2
    settle(memory)
    check_model(memory)


@pytest.mark.parametrize("step", [Step.APPLY, Step.PUBLISH])
def test_what_a_dead_worker_appended_is_finished_although_the_requests_are_gone(
    memory: Platform, step: Step
) -> None:
    """The commits say it all: rows are erased and receipts sent without a look at the requests."""
    memory.register("m", budget=10.0)
    worker = memory.deletion_worker(at_step=ends_at(step))
    request = memory.send_index("m", 1)
    run_to_death(memory, worker)
    live = memory.load().generation_keys
    assert isinstance(memory.log, MemoryLog)
    memory.log.delete_topic(topics.DELETIONS)
    memory.log.ensure_topics(topics.specs(2))
    go_on_without(memory, topics.DELETIONS)
    assert memory.answer(request).version == 1
    assert not memory.raw().hexists(live.rows(shard_of("row-1")), "row-1")
    check_model(memory)
