"""Requests that wait for company: one version for several, once, in order, and not for ever."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from contextlib import closing

import numpy as np
import pytest

from lethe.consumers.contract import topics
from lethe.consumers.contract.events import Parameters
from lethe.consumers.contract.version_chain import theta_of
from lethe.consumers.deletions import batching
from lethe.consumers.deletions.batching import Batching
from lethe.consumers.service.telemetry.health import Health
from lethe.consumers.workers.deletion_worker import DeletionWorker
from lethe.consumers.workers.drained import Drained, lags
from lethe.consumers.workers.supervisor import Supervisor
from lethe.engine.refresh.size import RefreshSize
from tests.support.invariants import check_model
from tests.support.platform import Platform
from tests.support.waiting import CROWDED, Clock

WAIT = 600.0


def patient(
    platform: Platform, clock: Clock, rows: int = 3, health: Health | None = None
) -> DeletionWorker:
    return platform.deletion_worker(batching=Batching(rows, WAIT), now=clock, health=health)


def turns(worker: DeletionWorker, until: Callable[[], bool] = lambda: False) -> None:
    """Let a worker turn until something holds; without it, until it reads nothing new."""
    deadline, quiet = time.monotonic() + 120, 0
    while quiet < 5 and not until():
        assert time.monotonic() < deadline, "it does not happen"
        quiet = 0 if Platform.turn(worker, 0.02) or not worker._assignment.positions else quiet + 1


def undecided(platform: Platform) -> int:
    return sum(lag.waiting for lag in lags(platform.reader, platform.store, topics.DELETIONS))


def test_one_version_leaves_out_several_rows(platform: Platform, clock: Clock) -> None:
    platform.register("m", budget=10.0)
    health = Health()
    worker = patient(platform, clock, health=health)
    first = [platform.send_index("m", 1), platform.send_index("m", 2)]
    turns(worker, lambda: len(worker._window) == 2)
    assert platform.receipts() == []
    assert (undecided(platform), worker.idle()) == (2, False), "they are not decided"
    worker._lag.measure_next()
    turns(worker)
    assert health.live()[1]["lag"] == 0, "they are no stall"
    last = platform.send_index("m", 3)
    turns(worker, lambda: undecided(platform) == 0)
    assert [v.request_ids for v in platform.versions()] == [(), (*first, last)]
    assert [r.status for r in platform.receipts()] == ["APPLIED"] * 3
    assert worker.idle()
    check_model(platform)


def test_a_lone_request_is_applied_when_it_has_waited(platform: Platform, clock: Clock) -> None:
    platform.register("m", budget=10.0)
    worker = patient(platform, clock)
    request = platform.send_index("m", 1)
    turns(worker)
    assert platform.receipts() == []
    clock.ahead = WAIT
    turns(worker, lambda: undecided(platform) == 0)
    assert platform.final(request).status == "APPLIED"
    check_model(platform)


def test_a_restart_reads_again_what_was_held_and_does_not_prolong_the_wait(
    platform: Platform, clock: Clock
) -> None:
    platform.register("m", budget=10.0)
    worker = patient(platform, clock)
    requests = [platform.send_index("m", 1), platform.send_index("m", 2)]
    turns(worker)
    assert platform.receipts() == []
    worker.close()
    clock.ahead = WAIT
    again = patient(platform, clock)
    turns(again, lambda: undecided(platform) == 0)
    assert [v.request_ids for v in platform.versions()] == [(), tuple(requests)]
    check_model(platform)


def test_a_full_worker_stays_a_member_and_reads_on_when_something_is_due(
    platform: Platform, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(batching, "HELD_RECORDS", 2)
    platform.register("m", budget=10.0)
    worker = patient(platform, clock, rows=6)
    requests = [platform.send_index("m", i) for i in range(5)]
    turns(worker, lambda: len(worker._window) == 2)
    turns(worker)
    assert len(worker._window) == 2
    assert worker._consumer.assignment(), "it is still a member of the group"
    assert platform.receipts() == []
    clock.ahead = WAIT
    turns(worker, lambda: undecided(platform) == 0)
    assert [r.request_id for r in platform.receipts()] == requests
    check_model(platform)


def test_other_models_of_the_partition_do_not_wait(
    platform_on: Callable[..., Platform], clock: Clock
) -> None:
    platform = platform_on("memory", partitions=1)
    platform.register("m", budget=10.0)
    platform.register("other", budget=10.0)
    worker = patient(platform, clock)
    alone, many = platform.send_index("m", 1), platform.send_index("other", 1, 2, 3)
    turns(worker)
    assert platform.final(many, "other").status == "APPLIED"
    assert platform.receipts("m") == []
    assert undecided(platform) == 2, "the watermark stays below what is held"
    clock.ahead = WAIT
    turns(worker, lambda: undecided(platform) == 0)
    assert platform.final(alone).status == "APPLIED"
    assert len(platform.receipts("other")) == 1
    check_model(platform)
    check_model(platform, "other")


def revealed(platform: Platform, rows: list[int]) -> list[float]:
    """Return how well the step between the last two versions points at each row: |cos|, 0 to 1."""
    found = [
        Parameters.model_validate_json(r.value or b"") for r in platform.records(topics.MODELS)
    ]
    step = theta_of(found[-1]) - theta_of(found[-2])
    X = platform.data["m"].X[rows]
    X = np.column_stack([X, np.ones(len(X))])[:, : len(step)]
    return [
        float(abs(x @ step[:, 0]) / (np.linalg.norm(x) * np.linalg.norm(step[:, 0]))) for x in X
    ]


def test_a_lone_row_is_seen_between_two_versions_and_one_of_several_is_not(
    memory: Platform, clock: Clock
) -> None:
    """The projective update moves theta along the rows it deletes: one row is the step itself."""
    memory.register("m", budget=10.0)
    worker = patient(memory, clock, rows=5)
    memory.send_index("m", 7)
    turns(worker)
    clock.ahead = WAIT
    turns(worker)
    assert revealed(memory, [7])[0] > 0.999999
    clock.ahead = 0
    memory.register("m", budget=10.0, replace_model=True)
    for i in range(10, 15):
        memory.send_index("m", i)
    turns(worker)
    assert memory.versions()[-1].rows_deleted == 6
    assert max(revealed(memory, [*range(10, 15)])) < 0.9


def test_what_deletes_nothing_is_answered_at_once(memory: Platform, clock: Clock) -> None:
    memory.register("m", budget=10.0)
    worker = patient(memory, clock)
    unknown, stranger = memory.send("m", "nobody"), memory.send("stranger", "row-1")
    turns(worker)
    assert memory.final(unknown).code == "UNKNOWN_ROWS"
    assert memory.final(stranger, "stranger").code == "UNKNOWN_MODEL"
    known = memory.send("m", "row-1", "row-2", "row-3")
    turns(worker)
    again = memory.send("m", "row-1")
    turns(worker)
    assert memory.final(known).status == "APPLIED"
    assert memory.final(again).status == "ALREADY_APPLIED"


def test_rows_that_nobody_has_are_no_company(memory: Platform, clock: Clock) -> None:
    memory.register("m", budget=10.0)
    worker = patient(memory, clock)
    memory.send("m", "row-1", "nobody", "no one", "none")
    turns(worker)
    memory.send("m", "nothing", "never")
    turns(worker)
    assert memory.receipts() == []
    assert len(worker._window) == 2


def test_a_refresh_keeps_its_place_in_the_log(memory: Platform, clock: Clock) -> None:
    memory.register("m", budget=10.0)
    worker = patient(memory, clock)
    memory.send_index("m", 1)
    turns(worker)
    order = memory.ordered("m", RefreshSize.COMPACT)
    memory.compute_refresh(order)
    memory.tell_refreshed(order)
    late = [memory.send_index("m", i) for i in (2, 3, 4)]
    turns(worker)
    assert [v.version for v in memory.versions()] == [0], "it waits behind the request"
    clock.ahead = WAIT
    turns(worker, lambda: undecided(memory) == 0)
    made = memory.versions()
    assert [v.rows_deleted for v in made] == [0, 1, 1, 4]
    assert made[2].refresh is not None
    assert made[3].request_ids == tuple(late)
    check_model(memory)


def test_a_request_that_needs_a_rebuild_keeps_its_place_too(memory: Platform, clock: Clock) -> None:
    memory.register("m", budget=10.0, limits=CROWDED)
    worker = patient(memory, clock)
    first, crowd = memory.send_index("m", 50), memory.send_index("m", *range(20))
    turns(worker)
    assert memory.receipts() == [], "one row would leave, the others wait for a rebuild"
    clock.ahead = WAIT
    turns(worker, lambda: undecided(memory) == 0)
    assert [(r.request_id, r.status) for r in memory.receipts()] == [
        (first, "APPLIED"),
        (crowd, "DEFERRED"),
    ]


def test_held_requests_of_a_partition_that_moves_are_the_next_workers(
    platform_on: Callable[..., Platform], clock: Clock
) -> None:
    platform = platform_on("memory", partitions=2)
    models = [f"m{i}" for i in range(4)]
    for model in models:
        platform.register(model, budget=10.0)
    one = patient(platform, clock)
    for model in models:
        platform.send_index(model, 1)
    turns(one)
    two = patient(platform, clock)
    for _ in range(10):
        Platform.turn(two)
        Platform.turn(one)
    assert one._consumer.assignment()
    assert two._consumer.assignment()
    assert len(one._window) + len(two._window) == len(models)
    for model in models:
        platform.send_index(model, 2, 3)
    for _ in range(10):
        Platform.turn(two)
        Platform.turn(one)
    for model in models:
        assert [v.rows_deleted for v in platform.versions(model)] == [0, 3]
        check_model(platform, model)


def test_until_idle_waits_the_wait_out(memory: Platform) -> None:
    memory.register("m", budget=10.0)
    worker = memory.deletion_worker(batching=Batching(2, 2.0))
    sent, request = time.monotonic(), memory.send_index("m", 1)
    supervisor = Supervisor(["deletions"])
    thread = threading.Thread(target=worker.run, args=(supervisor.stop,))
    thread.start()
    try:
        with closing(Drained(memory.log.reader(), memory.store)) as drained:
            assert supervisor.wait_until_idle(drained)
    finally:
        supervisor.stop.set()
        thread.join()
    assert time.monotonic() - sent >= 1.9
    assert memory.final(request).status == "APPLIED"
