"""Every kind of model through every event: nothing is lost, nothing doubled or contradicted.

The workloads, and who judges them, are those of `tests.support.workloads`. Workers die at each
step, stall there while a successor goes on, are two in place of one, or find that their store went
back; refreshes are folded, or lost; the store is wiped, or loses a key. What is particular to one
kind of model or one guard stands in a module of its own.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from lethe.consumers.service.telemetry.metrics import Metrics
from lethe.consumers.service.telemetry.steps import Step
from lethe.engine.error import gaussian
from lethe.engine.refresh.size import RefreshSize
from lethe.engine.store.layout.keys import ModelKeys
from tests.integration.conftest import KAFKA
from tests.support.events import (
    FOLD_STEPS,
    STEPS,
    another_owner,
    check_same,
    ends_at,
    evict,
    published,
    run_to_death,
    settle,
    succeed,
)
from tests.support.invariants import ledger_of
from tests.support.platform import Platform
from tests.support.stores import Backup, backup, neighbour_of, restore, wipe
from tests.support.workloads import ENCRYPTED, ENCRYPTED_FILES, MAIN, WORKLOADS, Workload

KEYS = ModelKeys("m")
LAST = 119
"""A row of every family that no round comes to."""


@pytest.fixture(autouse=True)
def seeded_noise(monkeypatch: pytest.MonkeyPatch) -> None:
    """Noise that is another at each draw and the same in each run."""
    draw = np.random.default_rng(11)
    monkeypatch.setattr(
        gaussian, "draw_noise", lambda shape, sigma: sigma * draw.standard_normal(shape)
    )


@pytest.fixture
def load(request: pytest.FixtureRequest, memory: Platform) -> Workload:
    """A registered model, on the log in memory."""
    return registered(memory, request.param)


EVERY = pytest.mark.parametrize("load", [*WORKLOADS, *ENCRYPTED_FILES], indirect=True)
FEW = pytest.mark.parametrize("load", [*MAIN, "encrypted-files-logistic"], indirect=True)
"""Where what happens to a worker is the same for all kinds of models that are kept alike."""
WORKERS = pytest.mark.parametrize("load", [*MAIN, *ENCRYPTED], indirect=True)
"""Where the store does not go back."""


def registered(platform: Platform, name: str) -> Workload:
    made = (WORKLOADS | ENCRYPTED)[name](platform)
    made.register()
    return made


def answered(load: Workload) -> None:
    finals = load.platform.finals()
    assert {finals[one].status for one in load.requests} <= {"APPLIED", "ALREADY_APPLIED"}


# -- workers ---------------------------------------------------------------------------------------


def die_one_after_another(load: Workload) -> None:
    """Let workers die at each step, of a poll or a fold, the first or the second time."""
    platform, refresher = load.platform, load.platform.refresh_worker()
    for number, step in enumerate([*STEPS, *FOLD_STEPS]):
        load.ask()
        if step in FOLD_STEPS:  # of commits that nobody applied yet
            run_to_death(platform, platform.deletion_worker(at_step=ends_at(Step.APPLY)))
        times = 1 if step in FOLD_STEPS else 1 + number % 2
        worker = platform.deletion_worker(at_step=ends_at(step, times))
        run_to_death(platform, worker, load.ask)
        last = platform.deletion_worker()
        platform.drain(last, refresher)
        answered(load)
        last.close()
        platform._workers.remove(last)
    refresher.close()
    platform._workers.remove(refresher)


@WORKERS
def test_workers_that_die_at_each_step_lose_and_double_nothing(load: Workload) -> None:
    """The next one finds in the log what was decided; nobody decides it again."""
    die_one_after_another(load)
    load.platform.drain()
    load.judge()


@pytest.mark.parametrize("name", ["linear", "changes"])
@pytest.mark.parametrize("kind", ["streams", KAFKA])
def test_on_a_real_log_too_workers_that_die_lose_and_double_nothing(
    platform_on: Callable[..., Platform], kind: str, name: str
) -> None:
    load = registered(platform_on(kind), name)
    die_one_after_another(load)
    load.platform.drain()
    load.judge()


@WORKERS
def test_a_stalled_worker_wakes_up_after_its_successor_went_on(load: Workload) -> None:
    """A pause of one process within a commit, in one group: its partitions moved meanwhile.

    Whichever of the two appends first decides; what the other one had in mind is void.
    """
    platform, stalls = load.platform, list(STEPS)

    def stall(step: str) -> None:
        if stalls and step == stalls[0]:
            stalls.pop(0)
            evict(platform, stalled)
            load.ask()
            successor = platform.deletion_worker()
            platform.drain(successor)
            successor.close()

    stalled, refresher = platform.deletion_worker(at_step=stall), platform.refresh_worker()
    while stalls:
        load.ask()
        platform.turn(stalled)
        load.ask()
        platform.drain(stalled, refresher)
    load.judge()


@WORKERS
def test_two_owners_that_read_the_same_requests_decide_each_once(
    load: Workload, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In two groups: whichever appends first decides, between any two steps of the other one."""
    platform, refresher, turns = load.platform, load.platform.refresh_worker(), list(STEPS)

    def meanwhile(step: str) -> None:
        if turns and step == turns[0]:
            turns.pop(0)
            load.ask()
            platform.drain(other)

    other = another_owner(platform, monkeypatch)
    metrics = Metrics()
    worker = platform.deletion_worker(at_step=meanwhile, metrics=metrics)
    while turns:
        load.ask()
        platform.drain(worker, refresher)
    platform.drain(other)
    load.judge()
    assert metrics.registry.get_sample_value("lethe_commits_total", {"outcome": "contested"})


# -- a store that goes back ------------------------------------------------------------------------


@EVERY
def test_a_store_that_goes_back_is_brought_to_what_the_log_says(load: Workload) -> None:
    platform = load.platform
    kept: list[Backup] = []
    for _ in range(4):
        kept.append(backup(platform, "m"))
        load.work()
    before, twin = published(platform), platform.load()
    ledger, index = ledger_of(platform), platform.raw().hgetall(KEYS.requests)
    disclosed = platform.raw().hgetall(KEYS.dataset(twin.meta.dataset_key).disclosed)
    for earlier in [*kept, *reversed(kept)]:
        restore(platform, earlier, "m")
        settle(platform)
        check_same(platform.load(), twin)
        assert published(platform) == before
        assert ledger_of(platform) == ledger
        assert platform.raw().hgetall(KEYS.requests) == index
        assert platform.raw().hgetall(KEYS.dataset(twin.meta.dataset_key).disclosed) == disclosed
    load.judge()
    load.work()
    assert platform.load().version > twin.version
    load.judge()


@FEW
def test_a_store_goes_back_under_a_workers_hands(load: Workload) -> None:
    """Between any two of its steps, in one poll or in two that follow each other."""
    platform, other = load.platform, neighbour_of("m")
    platform.register(other, budget=10.0)
    early = backup(platform, "m")
    goes_back: list[str] = []

    def at_step(reached: str) -> None:
        if goes_back and reached == goes_back[0]:
            goes_back.pop(0)
            restore(platform, early, "m")

    succeed(platform, at_step)
    for number, step in enumerate(STEPS):
        goes_back = [step] * (1 + number % 2)
        for _ in range(2):
            load.ask()
            platform.delete(other, 2 * number)
        assert not goes_back, step
    settle(platform)
    load.judge()
    assert {receipt.status for receipt in platform.finals(other).values()} <= {
        "APPLIED",
        "ALREADY_APPLIED",
    }


@EVERY
def test_a_refresh_that_caught_up_with_changes_is_folded_again(load: Workload) -> None:
    """Rows change after it has read them, and once more after its swap; all is folded at once."""
    platform = load.platform
    load.work()
    order = platform.ordered("m", RefreshSize.REBUILD)
    platform.compute_refresh(order)
    early = backup(platform, "m")
    load.work()
    platform.tell_refreshed(order)
    platform.drain()
    assert platform.load().meta.generation >= 1
    load.judge()
    load.work()
    before, twin = published(platform), platform.load()
    restore(platform, early, "m")
    settle(platform)
    check_same(platform.load(), twin)
    assert published(platform) == before
    load.work()
    load.judge()


@pytest.mark.parametrize("load", [*MAIN, "certified"], indirect=True)
def test_a_refresh_whose_result_is_lost_stands_and_a_rebuild_follows(load: Workload) -> None:
    platform = load.platform
    load.work()
    early = backup(platform, "m")
    platform.refresh("m", RefreshSize.REBUILD)
    load.work()
    before, twin = published(platform), platform.load()
    restore(platform, early, "m")
    settle(platform)
    state = platform.load()
    assert state.awaiting_rebuild
    assert (state.head, state.version, state.newest) == (twin.head, twin.version, twin.newest)
    assert np.array_equal(state.stream.published, twin.stream.published)
    assert published(platform) == before
    request, stranger = load.delete(LAST), platform.send("m", "nobody")
    platform.drain()
    assert platform.statuses(request) == ["DEFERRED", "APPLIED"]
    load.work()
    load.judge(strangers=[stranger])


# -- a store that loses more -----------------------------------------------------------------------


@pytest.mark.parametrize("load", [*MAIN, "disclosure"], indirect=True)
def test_a_wiped_store_is_told_of_its_models_by_the_log(load: Workload) -> None:
    """All that commits say comes back: numbers, ledger, receipts; rows were in the store alone."""
    platform = load.platform
    for _ in range(2):
        load.work()
    twin, before = platform.load(), published(platform)
    ledger, index = ledger_of(platform), platform.raw().hgetall(KEYS.requests)
    disclosed = platform.raw().hgetall(KEYS.dataset(twin.meta.dataset_key).disclosed)
    wipe(platform)
    settle(platform)
    state = platform.load()
    assert (state.head, state.version, state.newest) == (twin.head, twin.version, twin.newest)
    assert state.secret == twin.secret
    assert ledger_of(platform) == ledger
    assert platform.raw().hgetall(KEYS.requests) == index
    assert platform.raw().hgetall(KEYS.dataset(twin.meta.dataset_key).disclosed) == disclosed
    assert published(platform) == before
    answered(load)
    waits = load.delete(LAST)
    platform.drain()
    there = state.meta.row_files is not None  # a rebuild brings the model back from its files
    assert platform.statuses(waits) == ["DEFERRED", *["APPLIED"] * there]
    if there:
        load.judge()


@FEW
@pytest.mark.parametrize("warm", [True, False], ids=["warm", "fresh"])
@pytest.mark.parametrize("key", ["ledger", "requests"])
def test_a_lost_key_comes_back_from_commits_before_anything_is_decided(
    load: Workload, key: str, warm: bool
) -> None:
    """What is asked for next names a row that is deleted, and a request that is decided."""
    platform, name = load.platform, getattr(KEYS, key)
    for _ in range(2):
        load.work()
    before = platform.raw().hgetall(name)
    assert before
    platform.raw().delete(name)
    if not warm:
        succeed(platform)
    load.work()
    answered(load)
    assert before.items() <= platform.raw().hgetall(name).items()
    load.judge()
