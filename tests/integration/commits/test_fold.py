"""Whatever the store has lost, a fold brings it to what the log says, and nothing is contradicted.

The store goes back to earlier backups, once and again and between any two steps; workers die
between append, apply and publish. Published bytes stand, each request has one final receipt, and
theta_exact is bit for bit that of a store that nothing happened to.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from datetime import UTC, datetime

import numpy as np
import pytest

from lethe.consumers.commits.recovery import partition_fold
from lethe.consumers.contract import topics
from lethe.consumers.refresh import new_generation
from lethe.consumers.refresh.job import run_job
from lethe.consumers.service.loop import TRANSIENT
from lethe.consumers.service.telemetry.steps import Step
from lethe.consumers.workers.deletion_worker import DeletionWorker
from lethe.engine.refresh.kind import RefreshKind
from lethe.engine.store.layout.keys import shard_of
from lethe.engine.store.layout.state import ModelState
from lethe.engine.store.membership import registered_models
from lethe.engine.store.offline import staging
from tests.support.invariants import check_model, ledger_of
from tests.support.lost_topics import go_on_without
from tests.support.memory_log import MemoryConsumer, MemoryLog
from tests.support.platform import Platform, row_ids
from tests.support.stores import Backup, backup, neighbour_of, restore, wipe
from tests.support.waiting import CROWDED

PUBLISHED = (topics.RECEIPTS, topics.VERSIONS, topics.REFRESH_JOBS)
STEPS = (
    Step.POLL,
    Step.VALIDATE,
    Step.LOAD,
    Step.DECIDE,
    Step.APPEND,
    Step.APPLY,
    Step.PUBLISH,
    Step.ADVANCE,
)


class Died(Exception):
    """A worker ends here, without a word."""


def published(platform: Platform) -> dict[str, list[bytes]]:
    """Return what was published, repeats left out, in order."""
    return {
        topic: list(dict.fromkeys(record.value or b"" for record in platform.records(topic)))
        for topic in PUBLISHED
    }


def settle(platform: Platform) -> None:
    """Fold, and decide what there is."""
    platform.pair[0].recover()
    platform.drain()


def run_to_death(platform: Platform, worker: DeletionWorker) -> None:
    """Run a worker to where it ends, and take it out of its group as if its process had ended."""

    def run() -> None:
        for _ in range(200):
            worker.run_once(0.05)

    with pytest.raises(Died):
        run()
    platform._workers.remove(worker)
    if isinstance(platform.log, MemoryLog):
        assert isinstance(worker._consumer, MemoryConsumer)
        platform.log.evict(worker._consumer)
    else:
        for part in (worker._consumer, worker._producer, worker._reader):
            part.close()


def ends_at(step: str, times: int = 1) -> Callable[[str], None]:
    """Return what ends a worker when it reaches a step for the so-and-so-manieth time."""
    left = times

    def at_step(reached: str) -> None:
        nonlocal left
        if reached == step:
            left -= 1
            if left == 0:
                raise Died(step)

    return at_step


def check_same(found: ModelState, twin: ModelState) -> None:
    """Check that a state is its undisturbed twin's: thetas bit for bit, arrays up to rounding."""
    assert (found.head, found.version, found.digest) == (twin.head, twin.version, twin.digest)
    for name in ("theta_exact", "theta_r", "anchor", "published"):
        assert np.array_equal(getattr(found.stream, name), getattr(twin.stream, name)), name
    assert found.newest == twin.newest
    assert found.offsets == twin.offsets
    assert found.deferred == twin.deferred
    assert found.meta.rows_live == twin.meta.rows_live
    assert found.meta.error == twin.meta.error
    for name in ("V", "Q"):
        ours, theirs = getattr(found.stream, name).array, getattr(twin.stream, name).array
        assert ours.shape == theirs.shape
        # V's rows depend on the order in which rows were left out, what they span does not.
        np.testing.assert_allclose(ours.T @ ours, theirs.T @ theirs, rtol=1e-8, atol=1e-10)


# -- a store that goes back ------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["linear", "logistic"])
@pytest.mark.parametrize("method", ["pru", "exact"])
def test_a_store_that_goes_back_is_brought_to_what_the_log_says(
    memory: Platform, kind: str, method: str
) -> None:
    memory.register("m", "benign", kind, method=method, budget=10.0)
    kept: list[Backup] = []
    for i in range(5):
        kept.append(backup(memory, "m"))
        memory.send_index("m", 3 * i, 3 * i + 1)
        memory.send("m", "a stranger", f"row-{3 * i}")
        memory.drain()
    before, twin = published(memory), memory.load()
    ledger, index = ledger_of(memory), memory.raw().hgetall(twin.keys.requests)
    for earlier in [*kept, *reversed(kept)]:
        restore(memory, earlier, "m")
        settle(memory)
        check_same(memory.load(), twin)
        assert published(memory) == before
        assert ledger_of(memory) == ledger
        assert memory.raw().hgetall(twin.keys.requests) == index
        check_model(memory)
    memory.send_index("m", 50, 51)
    memory.drain()
    assert memory.load().version == twin.version + 1
    check_model(memory)


def test_a_worker_that_is_idle_notices_that_its_store_went_back(
    memory: Platform, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody asks for anything, nothing fails: it looks at the cursors now and then."""
    monkeypatch.setattr("lethe.consumers.workers.lag._PERIOD_SECONDS", 0.0)
    memory.register("m", budget=10.0)
    early = backup(memory, "m")
    memory.send_index("m", 1)
    memory.drain()
    twin = memory.load()
    restore(memory, early, "m")
    for _ in range(3):
        memory.turn(memory.pair[0])
    check_same(memory.load(), twin)


@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize("times", [1, 2])
def test_a_store_that_goes_back_under_a_workers_hands(
    memory: Platform, step: Step, times: int
) -> None:
    """Between any two of its steps, in one poll or in two that follow each other."""
    memory.register("m", budget=10.0)
    other = neighbour_of("m")
    memory.register(other, budget=10.0)
    early = backup(memory, "m")
    memory.send_index("m", 0)
    memory.send_index(other, 0)
    memory.drain()
    left = times

    def back(reached: str) -> None:
        nonlocal left
        if reached == step and left:
            left -= 1
            restore(memory, early, "m")

    memory.pair[0].close()
    memory._pair = memory.deletion_worker(at_step=back), memory.pair[1]
    for i in range(1, 4):
        memory.send_index("m", 2 * i, 2 * i + 1)
        memory.send_index(other, 2 * i)
        memory.drain()
    assert left == 0
    settle(memory)
    for model, rows in (("m", 7), (other, 4)):
        assert {r.status for r in memory.finals(model).values()} == {"APPLIED"}
        assert len(ledger_of(memory, model)) == rows
        check_model(memory, model)


@pytest.mark.parametrize("seed", range(8))
def test_walks_of_rollbacks_refreshes_and_replacements(memory: Platform, seed: int) -> None:
    """Any earlier store comes back between any two steps of a worker, of a fold, of a swap."""
    memory.most_turns = 500
    dice = random.Random(seed)
    kind = dice.choice(["linear", "logistic"])
    models = ["m", neighbour_of("m")]
    for model in models:
        limits = CROWDED if dice.random() < 0.3 else None
        memory.register(model, "benign", kind, budget=10.0, limits=limits)
    kept = [backup(memory, "m")]
    quiet = False

    def at_step(_: str) -> None:
        if quiet:
            return
        draw = dice.random()
        if draw < 0.04:
            restore(memory, dice.choice(kept), "m")
        elif draw < 0.08:
            kept.append(backup(memory, "m"))

    memory.pair[0].close()
    worker, refresher = memory.deletion_worker(at_step=at_step), memory.pair[1]
    memory._pair = worker, refresher
    for _ in range(40):
        model = dice.choice(models)
        draw = dice.random()
        if draw < 0.6:
            rows = dice.sample(range(120), dice.choice([1, 2, 5]))
            memory.send_index(model, *rows)
        elif draw < 0.7:
            memory.order(
                model, dice.choice([RefreshKind.COMPLETE, RefreshKind.REBUILD, RefreshKind.POLISH])
            )
        elif draw < 0.75:
            worker.recover()
        for _ in range(dice.randrange(4)):
            memory.turn(worker)
            if dice.random() < 0.5:
                try:
                    refresher.run_once(0.0)
                except TRANSIENT:
                    refresher.recover()
    quiet = True
    settle(memory)
    for model in models:  # what was lost of a refresh is made up for when somebody asks
        memory.send_index(model, 119, 118)
    settle(memory)
    for model in models:
        assert {r.status for r in memory.finals(model).values()} <= {"APPLIED", "ALREADY_APPLIED"}
        assert not memory.load(model).awaiting_rebuild
        check_model(memory, model)


# -- what a store cannot compute again -------------------------------------------------------------


def test_a_refresh_whose_result_is_lost_stands_and_the_model_waits_for_a_rebuild(
    memory: Platform,
) -> None:
    memory.register("m", budget=10.0)
    memory.send_index("m", 0, 1)
    memory.drain()
    early = backup(memory, "m")
    memory.order("m", RefreshKind.REBUILD)
    memory.drain()
    memory.send_index("m", 2)
    memory.drain()
    before, twin = published(memory), memory.load()
    restore(memory, early, "m")
    settle(memory)
    state = memory.load()
    assert state.awaiting_rebuild
    assert (state.head, state.version, state.newest) == (twin.head, twin.version, twin.newest)
    assert np.array_equal(state.stream.published, twin.stream.published)
    assert published(memory) == before
    request = memory.send_index("m", 7)
    strangers = memory.send("m", "nobody")
    memory.drain()
    assert memory.statuses(request) == ["DEFERRED", "APPLIED"]
    assert memory.final(strangers).code == "UNKNOWN_ROWS"
    assert memory.load().meta.rows_live == 120 - 4
    check_model(memory)


@pytest.mark.parametrize("chunks", [1, 3], ids=["some rows", "all rows, not the late deletions"])
def test_a_refresh_that_the_store_has_only_part_of_is_lost(
    memory: Platform, monkeypatch: pytest.MonkeyPatch, chunks: int
) -> None:
    """A store that goes back to a time amid a staging has some of what a commit makes live."""
    monkeypatch.setattr(staging, "CHUNK", 50)
    monkeypatch.setattr(new_generation, "CATCH_UP_LIMIT", 2)
    memory.register("m", budget=10.0)
    event = memory.ordered("m", RefreshKind.REBUILD)
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
    request = memory.send_index("m", 7)
    memory.drain()
    assert memory.statuses(request) == ["DEFERRED", "APPLIED"]
    assert memory.load().meta.rows_live == 120 - 4
    check_model(memory)


def test_deletions_whose_rows_are_erased_already_stand_and_a_rebuild_follows(
    memory: Platform,
) -> None:
    """The head went back and the row records did not: what was published is as it was."""
    memory.register("m", budget=10.0)
    early = backup(memory, "m")
    memory.send_index("m", 1, 2)
    memory.drain()
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
    request = memory.send_index("m", 3)
    memory.drain()
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
    again = memory.send_index("m", *range(20), request_id=request)
    memory.drain()
    assert set(memory.statuses(again)) == {"DEFERRED", "APPLIED"}
    assert memory.statuses(again)[-1] == "APPLIED"
    memory.send_index("m", 40)
    memory.drain()
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
    memory.drain()
    assert memory.final(late).code == "MODEL_UNREGISTERED"


def test_a_replacement_that_the_store_forgot_is_made_up_for_from_what_it_staged(
    memory: Platform,
) -> None:
    """Its staging does not expire: where only the head went back, it becomes live once more."""
    memory.register("m", budget=10.0)
    memory.send_index("m", 0)
    memory.drain()
    reached: list[Backup] = []

    def at_step(step: str) -> None:
        if step == Step.REGISTER_APPEND:
            reached.append(backup(memory, "m"))

    memory.registrar(at_step=at_step)
    memory.register("m", budget=10.0, replace_model=True, at_step=at_step)
    memory.send_index("m", 1)
    memory.drain()
    twin, before = memory.load(), published(memory)
    restore(memory, reached[0], "m")
    settle(memory)
    check_same(memory.load(), twin)
    assert published(memory) == before
    check_model(memory)


# -- a worker that dies ----------------------------------------------------------------------------


@pytest.mark.parametrize("step", [*STEPS, Step.FOLD_APPLY, Step.FOLD_PUBLISH, Step.FOLD_ADVANCE])
def test_a_worker_dies_before_any_of_its_steps(platform: Platform, step: Step) -> None:
    """The next one finds in the log what it had decided; nobody decides it again."""
    platform.register("m", budget=10.0)
    if step.startswith("fold"):  # of commits that nobody applied yet
        first = platform.deletion_worker(at_step=ends_at(Step.APPLY))
        platform.send_index("m", 9)
        run_to_death(platform, first)
    worker = platform.deletion_worker(at_step=ends_at(step))
    requests = [platform.send_index("m", i) for i in range(3)]
    run_to_death(platform, worker)
    platform.drain()
    assert {platform.final(one).status for one in requests} == {"APPLIED"}
    check_model(platform)


def test_a_fold_that_is_cut_short_is_gone_on_with(
    memory: Platform, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Servers that break off each long fold must not have it begin at the same place for ever."""
    monkeypatch.setattr(partition_fold, "RUN_LENGTH", 2)
    memory.register("m", budget=10.0)
    early = backup(memory)
    for row in range(6):
        memory.send_index("m", row)
        memory.drain()
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
    memory.drain()
    assert memory.final(request).version == 1
    assert not memory.raw().hexists(live.rows(shard_of("row-1")), "row-1")
    check_model(memory)


def test_a_wiped_store_is_told_of_its_models_by_the_log(memory: Platform) -> None:
    """All that commits say comes back: numbers, ledger, receipts; rows were in the store alone."""
    memory.register("m", budget=10.0)
    request = memory.send_index("m", 1, 2)
    memory.drain()
    twin, before = memory.load(), published(memory)
    index = memory.raw().hgetall(twin.keys.requests)
    wipe(memory)
    settle(memory)
    state = memory.load()
    assert (state.head, state.version, state.newest) == (twin.head, twin.version, twin.newest)
    assert state.secret == twin.secret
    assert ledger_of(memory) == {"row-1": 1, "row-2": 1}
    assert memory.raw().hgetall(twin.keys.requests) == index
    assert published(memory) == before
    again = memory.send_index("m", 1, 2, request_id=request)
    memory.drain()
    assert set(memory.statuses(again)) == {"APPLIED"}
    assert memory.load().version == twin.version
