"""Refreshes that come too often wait or are refused; none that a model waits for is lost."""

from __future__ import annotations

import pytest

from lethe.consumers.cli.maintain.refresh import _outdated
from lethe.consumers.contract import topics
from lethe.consumers.log.base import Message
from lethe.consumers.refresh import job as refresh_job
from lethe.consumers.refresh.queue import RefreshLimit
from lethe.consumers.service.telemetry.steps import Step
from lethe.consumers.workers.deletion_worker import DeletionWorker
from lethe.consumers.workers.drained import lags
from lethe.consumers.workers.refresh_worker import RefreshWorker
from lethe.engine.error.budget import OverBudget
from lethe.engine.errors import NotConverged, RefreshFailed
from lethe.engine.refresh.size import RefreshSize
from lethe.engine.store.offline.jobs import read_refusal
from tests.support.invariants import check_model
from tests.support.platform import Platform
from tests.support.waiting import CROWDED, Clock


def limited(platform: Platform, clock: Clock, burst: int = 1) -> RefreshWorker:
    return platform.refresh_worker(limit=RefreshLimit(60.0, burst), now=clock)


def turns(platform: Platform, refresher: RefreshWorker, times: int = 6) -> None:
    """Let both workers do what they can now."""
    found = [one for one in platform._workers if isinstance(one, DeletionWorker)]
    worker = found[0] if found else platform.deletion_worker()
    for _ in range(times):
        platform.turn(worker)
        refresher.run_once(0.0)


def sizes(platform: Platform, model: str = "m") -> list[RefreshSize]:
    return [v.refresh.size for v in platform.versions(model) if v.refresh is not None]


def jobs_left(platform: Platform) -> int:
    return sum(lag.waiting for lag in lags(platform.reader, platform.store, topics.REFRESH_JOBS))


def ordered_jobs(platform: Platform) -> int:
    return len(platform.records(topics.REFRESH_JOBS))


def test_of_orders_beyond_the_limit_one_waits_and_more_are_refused(
    memory: Platform, clock: Clock
) -> None:
    memory.register("m", budget=10.0)
    refresher = limited(memory, clock, burst=2)
    for _ in range(2):
        memory.order("m", RefreshSize.REBUILD)
        turns(memory, refresher)
    assert sizes(memory) == [RefreshSize.REBUILD] * 2
    waits, refused = memory.order("m", RefreshSize.REBUILD), memory.order("m", RefreshSize.COMPLETE)
    turns(memory, refresher)
    assert sizes(memory) == [RefreshSize.REBUILD] * 2
    assert jobs_left(memory) == 2, "the watermark stays below the one that waits"
    reason = read_refusal(memory.store.client, memory.load().keys, refused.job_id) or ""
    assert "LETHE_REFRESH_MIN_INTERVAL" in reason
    assert read_refusal(memory.store.client, memory.load().keys, waits.job_id) is None
    with pytest.raises(RefreshFailed, match="order again"):
        _outdated(memory.store, refused)
    clock.ahead = 61
    turns(memory, refresher)
    assert sizes(memory) == [RefreshSize.REBUILD] * 3
    assert jobs_left(memory) == 0
    check_model(memory)


def test_a_model_that_waits_holds_up_no_other_and_a_restart_forgets_nothing(
    memory: Platform, clock: Clock
) -> None:
    memory.register("m", budget=10.0)
    memory.register("other", budget=10.0)
    refresher = limited(memory, clock)
    memory.order("m", RefreshSize.REBUILD)
    turns(memory, refresher)
    memory.order("m", RefreshSize.COMPACT)
    memory.order("other", RefreshSize.REBUILD)
    turns(memory, refresher)
    assert (sizes(memory), sizes(memory, "other")) == ([RefreshSize.REBUILD], [RefreshSize.REBUILD])
    assert jobs_left(memory) == 2
    assert not refresher.idle()
    refresher.close()
    again = limited(memory, clock)
    clock.ahead = 61
    turns(memory, again)
    assert sizes(memory)[:2] == [RefreshSize.REBUILD, RefreshSize.COMPACT]
    assert jobs_left(memory) == 0
    assert again.idle()
    for model in ("m", "other"):
        check_model(memory, model)


def test_requests_that_need_a_rebuild_share_the_next_one(memory: Platform, clock: Clock) -> None:
    memory.register("m", budget=10.0, limits=CROWDED)
    refresher = limited(memory, clock)
    first = memory.send_index("m", *range(20))
    turns(memory, refresher)
    assert memory.final(first).status == "APPLIED"
    later = [memory.send_index("m", *range(i, i + 20)) for i in (20, 40, 60)]
    turns(memory, refresher)
    memory.order("m", RefreshSize.REBUILD)
    turns(memory, refresher)
    assert [memory.statuses(request) for request in later] == [["DEFERRED"]] * 3
    assert sizes(memory) == [RefreshSize.REBUILD]
    clock.ahead = 61
    turns(memory, refresher)
    assert {memory.final(request).version for request in later} == {2}
    check_model(memory)


def test_a_job_is_read_once_its_order_is_in_the_store(memory: Platform) -> None:
    """The swap of one job orders the next, of the new generation: the store has it already."""
    memory.register("m", budget=10.0, limits=CROWDED)
    refresher = memory.refresh_worker(limit=RefreshLimit(60.0, 9))

    def refresh(step: str) -> None:
        if step == Step.APPLY:
            refresher.run_once(0.0)

    worker = memory.deletion_worker(at_step=refresh)
    requests = []
    for i in (0, 20):
        requests.append(memory.send_index("m", *range(i, i + 20)))
        memory.turn(worker)
    memory.drain(worker, refresher)
    assert [memory.final(request).status for request in requests] == ["APPLIED"] * 2
    assert sizes(memory) == [RefreshSize.REBUILD] * 2
    check_model(memory)


@pytest.mark.parametrize("seconds", [0.0, 60.0])
def test_who_waits_for_a_job_that_another_overtakes_is_told(
    memory: Platform, seconds: float
) -> None:
    memory.register("m", budget=10.0)
    refresher = memory.refresh_worker(limit=RefreshLimit(seconds, 9))
    first, second = (memory.order("m", RefreshSize.REBUILD) for _ in range(2))
    turns(memory, refresher)
    assert [v.refresh.job_id for v in memory.versions() if v.refresh] == [first.job_id]
    with pytest.raises(RefreshFailed, match="another refresh was faster; order again"):
        _outdated(memory.store, second)


def test_a_job_of_a_generation_that_the_store_has_lost_is_not_refused(memory: Platform) -> None:
    """It is superseded instead: if the model still waits for it, its end orders another."""
    memory.register("m", budget=10.0)
    refresher = memory.refresh_worker(limit=RefreshLimit(60.0, 9))
    ordered = memory.ordered("m", RefreshSize.REBUILD)
    later = ordered.model_copy(update={"generation": ordered.generation + 1})
    memory.producer.publish([Message(topics.REFRESH_JOBS, b"m", later.value())])
    turns(memory, refresher)
    assert read_refusal(memory.store.client, memory.load().keys, later.job_id) is None
    [done] = memory.records(topics.DELETIONS)
    assert later.job_id.encode() in (done.value or b"")


def test_a_completion_that_a_commit_orders_is_free(memory: Platform, clock: Clock) -> None:
    memory.register("m", budget=1e-6, over_budget=OverBudget.PUBLISH)
    refresher = limited(memory, clock)
    memory.order("m", RefreshSize.REBUILD)
    turns(memory, refresher)
    for i in range(3):
        memory.send_index("m", i)
        turns(memory, refresher)
    assert sizes(memory) == [RefreshSize.REBUILD, *[RefreshSize.COMPLETE] * 3]
    check_model(memory)


def test_orders_for_nobody_are_passed(memory: Platform, clock: Clock) -> None:
    memory.register("m", budget=10.0)
    refresher = limited(memory, clock)
    order = memory.ordered("m", RefreshSize.REBUILD).model_copy(update={"model_id": "nobody"})
    memory.producer.publish(
        [
            Message(topics.REFRESH_JOBS, b"nobody", order.value()),
            Message(topics.REFRESH_JOBS, b"m", b"no job"),
        ]
    )
    turns(memory, refresher)
    assert jobs_left(memory) == 0
    assert not [name for name in memory.raw().scan_iter() if b"nobody" in name]


def failing(*_: object, **__: object) -> None:
    raise NotConverged("the fit ends nowhere")


def test_a_rebuild_that_fails_is_ordered_again_later_and_later(
    memory: Platform, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock.stop()
    memory.register("m", "benign", "linear", budget=10.0, limits=CROWDED)
    worker, refresher = memory.deletion_worker(now=clock), memory.refresh_worker(now=clock)
    with monkeypatch.context() as broken:
        broken.setattr(refresh_job, "rebuild", failing)
        crowd = memory.send_index("m", *range(20))
        memory.drain(worker, refresher)
        assert ordered_jobs(memory) == 1
        for i, (ahead, jobs) in enumerate([(1, 1), (59, 1), (61, 2), (120, 2), (179, 2), (182, 3)]):
            clock.ahead = ahead
            memory.send_index("m", 30 + i)
            memory.drain(worker, refresher)
            assert ordered_jobs(memory) == jobs, f"after {ahead} s"
        assert memory.load().meta.failures is not None
    clock.ahead = 182 + 241
    memory.send_index("m", 50)
    memory.drain(worker, refresher)
    assert memory.final(crowd).status == "APPLIED"
    assert memory.load().meta.failures is None
    check_model(memory)
