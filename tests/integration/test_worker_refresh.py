"""Refreshes of all sizes between, during and after deletions: nothing is lost or done twice."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from datetime import timedelta

import numpy as np
import pytest

from consumers import refresh_job, topics
from consumers.chain import theta_of
from consumers.log.memory import MemoryLog
from consumers.refresh_job import run_job
from engine.refresh import Size
from engine.store.head import LimitsRecord
from engine.store.staging import TIME_TO_LIVE
from tests.families import Data, make
from tests.oracles import distance, projection
from tests.support.invariants import (
    check_model,
    ledger_of,
    live_mask,
    retrained,
    true_error,
    unfinished,
)
from tests.support.platform import Platform, row_ids

SIZES = list(Size)
BOTH = ["linear", "logistic"]


class Watch:
    """Checks each version as it appears, against retraining at that version."""

    def __init__(self, platform: Platform, model_id: str = "m") -> None:
        self.platform, self.model_id = platform, model_id
        self.seen = 0
        self.bounded = 0
        self.refreshed: dict[str, int] = {}
        self.anchor = theta_of(platform.parameters(model_id))
        self.anchored_at = 0

    def look(self) -> None:
        """Check the newest version; the caller looks after every single commit."""
        platform, state = self.platform, self.platform.load(self.model_id)
        if state.version == self.seen:
            return
        assert state.version == self.seen + 1
        self.seen = state.version
        version = platform.newest_version(self.model_id)
        published = theta_of(platform.parameters(self.model_id))
        truth = retrained(platform, self.model_id)
        error = distance(published, truth)
        size = float(np.linalg.norm(published))
        if version.error.bound is not None:
            self.bounded += 1
            assert error <= version.error.bound
        if version.refresh is not None:
            self.anchor, self.anchored_at = published, state.version
            self.refreshed[version.refresh.size] = self.refreshed.get(version.refresh.size, 0) + 1
            assert error <= version.error.budget * size
        if platform.data[self.model_id].kind == "linear":
            expected = self._published(np.asarray(truth, dtype=np.float64), version.method)
            assert distance(published, expected) <= 1e-8 * size

    def _published(self, truth: np.ndarray, method: str) -> np.ndarray:
        """What page 1.4 says is published, from the oracle's answer."""
        if method == "exact":
            return truth
        data, ledger = self.platform.data[self.model_id], ledger_of(self.platform, self.model_id)
        since = [ledger.get(row, -1) > self.anchored_at for row in row_ids(data)]
        if not any(since):
            return self.anchor
        moved: np.ndarray = self.anchor + projection(data.design[since], truth - self.anchor)
        return moved


def turns(platform: Platform, watch: Watch) -> None:
    """Drain, looking after every turn of the deletion worker."""
    worker, refresher = platform.pair
    while True:
        done = platform.turn(worker)
        watch.look()
        done += refresher.run_once(0.0)
        if done == 0 and worker.idle() and refresher.idle():
            return


def interleave(platform: Platform, batches: int, first: int = 0) -> Watch:
    """Send ``batches`` requests of 1 or 2 rows with refreshes of all sizes in between."""
    watch = Watch(platform)
    order = [int(i) for i in np.random.default_rng(5).permutation(len(platform.data["m"].X))]
    del order[:first]
    for batch in range(batches):
        rows = [order.pop() for _ in range(1 + batch % 3 // 2)]
        platform.send_index("m", *rows)
        turns(platform, watch)
        if batch % 4 == 3:
            platform.order("m", SIZES[batch // 4 % 4])
            turns(platform, watch)
    return watch


@pytest.mark.parametrize("method", ["pru", "exact"])
@pytest.mark.parametrize("family", ["benign", "badly_scaled", "duplicated", "sparse"])
def test_linear_stays_at_retraining_through_52_batches_and_all_sizes(
    memory: Platform, family: str, method: str
) -> None:
    memory.register("m", family, "linear", method=method, budget=0.02)
    watch = interleave(memory, 52)
    assert set(watch.refreshed) >= {"complete", "compact", "rebuild"}
    assert watch.bounded == watch.seen >= 52
    check_model(memory)


@pytest.mark.parametrize("family", ["benign", "near_separable"])
def test_logistic_keeps_its_bounds_and_budget_through_52_batches_and_all_sizes(
    memory: Platform, family: str
) -> None:
    memory.register("m", family, "logistic", budget=0.05)
    watch = interleave(memory, 52)
    assert set(watch.refreshed) == {str(size) for size in SIZES}
    assert watch.bounded >= 4
    check_model(memory)


@pytest.mark.kafka
@pytest.mark.xdist_group("kafka")
@pytest.mark.parametrize("kind", BOTH)
def test_52_batches_and_all_sizes_through_kafka(
    platform_on: Callable[..., Platform], kind: str
) -> None:
    platform = platform_on("kafka")
    platform.register("m", "benign", kind, budget=0.05)
    order = list(range(len(platform.data["m"].X)))
    for batch in range(52):
        platform.send_index("m", *[order.pop() for _ in range(1 + batch % 2)])
        if batch % 4 == 3:
            platform.turn(platform.pair[0], 0.1)
        if batch % 13 == 12:
            platform.drain()
            platform.order("m", SIZES[batch // 13])
            platform.drain()
            assert platform.versions()[-1].refresh is not None
            published = float(np.linalg.norm(platform.load().stream.published))
            assert true_error(platform) <= 0.05 * published
    check_model(platform)


# -- races ------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", BOTH)
@pytest.mark.parametrize("size", SIZES)
def test_deletions_between_a_result_and_its_swap(memory: Platform, kind: str, size: Size) -> None:
    memory.register("m", "benign", kind, budget=10.0)
    memory.send_index("m", 0, 1, 2)
    memory.drain()
    # Given a result that knows three deletions, and four more after it
    event = memory.ordered("m", size)
    memory.compute_refresh(event)
    memory.send_index("m", 3, 4)
    memory.send_index("m", 5)
    memory.drain()
    memory.send_index("m", 6)
    memory.drain()
    # When it is swapped in, and deletions go on
    memory.tell_refreshed(event)
    memory.send_index("m", 7, 8)
    memory.drain()
    # Then nothing was lost
    assert [v.refresh.size for v in memory.versions() if v.refresh] == [size]
    assert len(ledger_of(memory, "m")) == 9
    check_model(memory)
    # and a rebuild from the stored rows agrees
    memory.order("m", Size.REBUILD)
    memory.drain()
    check_model(memory)


@pytest.mark.parametrize("kind", BOTH)
@pytest.mark.parametrize("size", [Size.POLISH, Size.COMPACT, Size.REBUILD])
@pytest.mark.parametrize("when", ["reading", "refitting", "folding", "polishing", "writing"])
def test_deletions_while_a_job_works(
    memory: Platform, kind: str, size: Size, when: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(refresh_job, "CATCH_UP_LIMIT", 2)  # so that the job itself catches up
    memory.register("m", "benign", kind, budget=10.0)
    memory.send_index("m", *range(4))
    memory.drain()
    event = memory.ordered("m", size)
    rows = iter(range(4, 120))

    def delete_some(what: str, _done: int, _all: int) -> None:
        if what.startswith(when):
            memory.send_index("m", *(next(rows) for _ in range(3)))
            memory.drain(memory.pair[0])

    run_job(memory.store, event, now=memory.load().meta.refreshed_at, progress=delete_some)
    memory.tell_refreshed(event)
    memory.drain()
    assert memory.versions()[-1].refresh is not None
    check_model(memory)


@pytest.mark.parametrize("size", SIZES)
def test_an_event_that_comes_twice_changes_nothing(memory: Platform, size: Size) -> None:
    memory.register("m", "benign", "logistic", budget=10.0)
    memory.send_index("m", 0, 1)
    memory.drain()
    event = memory.ordered("m", size)
    memory.compute_refresh(event)
    memory.tell_refreshed(event)
    memory.tell_refreshed(event)  # in the same batch
    memory.drain()
    memory.tell_refreshed(event)  # and later
    memory.drain()
    assert memory.load().version == 2
    check_model(memory)
    memory.send_index("m", 2)
    memory.drain()
    memory.tell_refreshed(event)
    memory.drain()
    assert memory.load().version == 3
    check_model(memory)


def test_forged_events_change_nothing(memory: Platform) -> None:
    memory.register("m", "benign", "linear")
    memory.register("other", "benign", "linear")
    memory.send_index("other", 1)
    memory.drain()
    theirs = memory.ordered("other", Size.REBUILD)
    memory.compute_refresh(theirs)
    before = memory.load()
    for job_id in ("no-such-job", theirs.job_id, "x" * 128, "}:head"):
        memory.tell_refreshed(theirs.model_copy(update={"model_id": "m", "job_id": job_id}))
    value = b'{"job_id": "job", "model_id": "nobody"}'
    memory.send_raw(value, b"nobody", (("ce_type", b"lethe.refresh.completed.v1"),))
    memory.drain()
    after = memory.load()
    assert (after.version, after.digest) == (before.version, before.digest)
    assert after.generation_keys == before.generation_keys
    check_model(memory)


@pytest.mark.parametrize("size", [Size.COMPACT, Size.REBUILD])
def test_an_attempt_that_was_thought_dead_harms_nothing(memory: Platform, size: Size) -> None:
    # Given a worker that stalls in a job while another does the same job and it is swapped in
    memory.register("m", "benign", "linear", budget=10.0)
    memory.send_index("m", 0, 1)
    memory.drain()
    event = memory.ordered("m", size)
    other: list[bool] = []

    def stall(what: str, _done: int, _all: int) -> None:
        if what.startswith(("refitting", "folding")) and not other:
            other.append(True)
            memory.compute_refresh(event)
            memory.tell_refreshed(event)
            memory.drain()
            memory.send_index("m", 2)
            memory.drain()

    # When it wakes up, stores its result and says so
    moment = memory.load().meta.refreshed_at
    with contextlib.suppress(refresh_job.Superseded):  # a compact needs the factor that is gone
        run_job(memory.store, event, now=moment, progress=stall)
    check_live_state_is_whole(memory)
    memory.tell_refreshed(event)
    memory.drain()
    # Then the swapped generation stands
    assert [v.refresh.size for v in memory.versions() if v.refresh] == [size]
    memory.send_index("m", 3)
    memory.drain()
    check_model(memory)


def check_live_state_is_whole(platform: Platform) -> None:
    """Every key of the live generation is there for good."""
    live = platform.load().generation_keys
    assert platform.raw().ttl(live.fixed) == -1
    assert platform.raw().ttl(live.factor) == -1
    assert len(platform.store.row_records(live, row_ids(platform.data["m"]))) > 0


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("kind", BOTH)
def test_every_row_deleted_while_a_refresh_is_under_way(
    memory: Platform, kind: str, size: Size
) -> None:
    limits = LimitsRecord(far_under=1e-8)  # so that a polish moves
    memory.register("m", "benign", kind, budget=10.0, limits=limits)
    memory.send_index("m", 0, 1)
    memory.drain()
    event = memory.ordered("m", size)
    memory.compute_refresh(event)
    everybody = row_ids(memory.data["m"])
    memory.send("m", *everybody)
    memory.drain()
    assert memory.versions()[-1].status == "EMPTY"
    memory.tell_refreshed(event)
    memory.drain()
    assert memory.versions()[-1].status == "EMPTY"
    again = memory.send("m", *everybody[:5])
    memory.order("m", size)
    memory.drain()
    assert memory.final(again).status == "ALREADY_APPLIED"
    assert memory.versions()[-1].status == "EMPTY"
    check_model(memory)


def test_a_snapshot_is_whole_while_deleted_rows_wait_for_their_erasure(memory: Platform) -> None:
    """Publishing lies between commit and erasure: with the log down, that can be long."""
    memory.register("m", "benign", "linear", budget=10.0)
    event = memory.ordered("m", Size.REBUILD)
    results: list[int] = []

    def refresh(step: str) -> None:
        if step == "publish" and not results:
            results.append(memory.compute_refresh(event).rows)

    worker = memory.deletion_worker(at_step=refresh)
    memory.send_index("m", 0, 1, 2)
    memory.drain(worker)
    assert results == [len(memory.data["m"].X) - 3]
    memory.tell_refreshed(event)
    memory.drain(worker)
    check_model(memory)


# -- requests that wait for a rebuild ---------------------------------------------------------


def leveraged(kind: str) -> Data:
    """Data in which row 0 alone has a feature, and almost no ridge: its leverage is 1."""
    data = make("benign", kind)
    X = data.X.copy()
    X[:, 3] = 0.0
    X[0, 3] = 1e5
    return Data(data.name, kind, X, data.y, data.weight, 1e-5, data.intercept, data.deleted)


@pytest.mark.parametrize("kind", ["linear"])
def test_a_row_of_leverage_one_waits_for_a_rebuild_and_its_neighbours_do_not(
    platform: Platform, kind: str
) -> None:
    platform.register("m", leveraged(kind), method="exact", budget=10.0)
    before = platform.send_index("m", 10, 11)
    offender = platform.send_index("m", 0, 12)
    sharing = platform.send_index("m", 12, 13)
    after = platform.send_index("m", 14)
    repeat = platform.send_index("m", 0, 12, request_id=offender)
    platform.turn_until_decided(5)
    assert platform.statuses(before) == ["APPLIED"]
    assert platform.statuses(after) == ["APPLIED"]
    assert platform.statuses(sharing) == ["DEFERRED"]
    assert platform.statuses(repeat) == ["DEFERRED", "DEFERRED"]
    platform.drain()
    finished = platform.finals()
    assert finished[offender].status == "APPLIED"
    assert finished[offender].rows_deleted + finished[sharing].rows_deleted == 3
    assert not unfinished(platform, "m")
    platform.send_index("m", 0, 12, request_id=offender)
    platform.drain()
    assert platform.statuses(offender) == ["DEFERRED", "DEFERRED", "APPLIED", "APPLIED"]
    check_model(platform)


def test_one_class_left_penalises_the_intercept(memory: Platform) -> None:
    data = make("benign", "logistic")
    memory.register("m", data, budget=0.05)
    ones = [int(i) for i in np.flatnonzero(data.y[:, 0] == 1)]
    request = memory.send_index("m", *ones)
    memory.drain()
    assert memory.statuses(request) == ["DEFERRED", "APPLIED"]
    assert memory.versions()[-1].status == "INTERCEPT_PENALISED"
    zeros = [i for i in range(len(data.X)) if i not in set(ones)]
    memory.send_index("m", *zeros[:5])
    memory.drain()
    check_model(memory)
    last = memory.send_index("m", *zeros)
    memory.drain()
    assert memory.final(last).status == "APPLIED"
    check_model(memory)


@pytest.fixture
def full(memory: Platform) -> Platform:
    """A platform whose model defers every request of more than 8 rows."""
    memory.register(
        "m",
        make("benign", "logistic"),
        budget=10.0,
        limits=LimitsRecord(floor_rows=1, fraction_of_d=0.0),
    )
    return memory


@pytest.mark.parametrize("rest", ["the last of a class", "everybody"])
def test_what_deferred_rows_hide_from_the_guard(full: Platform, rest: str) -> None:
    # Given a deferred request for all but one row of a class, and a rebuild without its rows
    data = full.data["m"]
    ones = [int(i) for i in np.flatnonzero(data.y[:, 0] == 1)]
    zeros = [int(i) for i in np.flatnonzero(data.y[:, 0] == 0)]
    named = ones[1:] if rest == "the last of a class" else [*ones[2:], *zeros[2:]]
    waiting = full.send_index("m", *named)
    full.drain(full.pair[0])
    assert full.statuses(waiting) == ["DEFERRED"]
    event = full.ordered("m", Size.REBUILD)
    full.compute_refresh(event)
    # When deletions take what is left of the class, or of all, before the swap
    others = [ones[0]] if rest == "the last of a class" else [*ones[:2], *zeros[:2]]
    full.send_index("m", *others)
    full.drain(full.pair[0])
    full.tell_refreshed(event)
    full.drain(full.pair[0])
    # Then that result is dropped, and another rebuild knows what to do
    full.drain()
    assert full.finals()[waiting].status == "APPLIED"
    wanted = "INTERCEPT_PENALISED" if rest == "the last of a class" else "EMPTY"
    assert full.versions()[-1].status == wanted
    check_model(full)


def test_a_deferral_is_resolved_although_its_job_was_superseded(full: Platform) -> None:
    # Given an ordered rebuild that began before the deferral, and is swapped after it
    event = full.ordered("m", Size.REBUILD)
    full.compute_refresh(event)
    waiting = full.send_index("m", *range(20))
    full.drain(full.pair[0])
    full.tell_refreshed(event)
    full.drain(full.pair[0])
    # When the deferral's own job runs, for a generation that is gone
    full.drain()
    assert full.finals()[waiting].status == "APPLIED"
    check_model(full)


def test_many_deferrals_are_resolved_in_several_rebuilds(
    full: Platform, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(refresh_job, "RESOLVED_BYTES", 80)
    waiting = [full.send_index("m", *range(10 * i, 10 * i + 12)) for i in range(8)]
    full.drain()
    finished = full.finals()
    assert {finished[name].status for name in waiting} == {"APPLIED"}
    assert sum(finished[name].rows_deleted for name in waiting) == 82
    assert max(len(version.request_ids) for version in full.versions()) <= 6
    assert live_mask(full, "m").sum() == len(full.data["m"].X) - 82
    check_model(full)


def test_a_job_that_was_lost_is_ordered_again(full: Platform) -> None:
    """The topic of jobs was made again: nobody will ever do the pending one."""
    waiting = full.send_index("m", *range(20))
    full.drain(full.pair[0])
    lost = full.load().meta.pending_job
    assert lost is not None
    assert isinstance(full.log, MemoryLog)
    full.log.delete_topic(topics.REFRESH_JOBS)
    full.log.ensure_topics(topics.specs(2))
    # Then the next version after the result would have expired orders another
    later = lost.ordered_at + timedelta(seconds=TIME_TO_LIVE + 1)
    full.pair[0].close()
    patient = full.deletion_worker(now=lambda: later)
    full.send_index("m", 50)
    full.drain(patient, full.pair[1])
    assert full.finals()[waiting].status == "APPLIED"
    check_model(full)
