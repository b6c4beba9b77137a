"""Requests that wait for a rebuild without their rows: each ends in one final receipt."""

from __future__ import annotations

from datetime import timedelta

import numpy as np
import pytest

from lethe.consumers.contract import topics
from lethe.consumers.refresh import resolved
from lethe.engine.refresh.size import RefreshSize
from lethe.engine.store.layout.config import LimitsRecord
from lethe.engine.store.offline.staging import TIME_TO_LIVE
from tests.support.families import Data, make
from tests.support.invariants import check_model, live_mask, unfinished
from tests.support.memory_log import MemoryLog
from tests.support.platform import Platform


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
    platform.delete("m", 0, 12, request_id=offender)
    assert platform.statuses(offender) == ["DEFERRED", "DEFERRED", "APPLIED", "APPLIED"]
    check_model(platform)


def test_one_class_left_penalises_the_intercept(memory: Platform) -> None:
    data = make("benign", "logistic")
    memory.register("m", data, budget=0.05)
    ones = [int(i) for i in np.flatnonzero(data.y[:, 0] == 1)]
    request = memory.delete("m", *ones)
    assert memory.statuses(request) == ["DEFERRED", "APPLIED"]
    assert memory.versions()[-1].status == "INTERCEPT_PENALISED"
    zeros = [i for i in range(len(data.X)) if i not in set(ones)]
    memory.delete("m", *zeros[:5])
    check_model(memory)
    last = memory.delete("m", *zeros)
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
    event = full.ordered("m", RefreshSize.REBUILD)
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
    event = full.ordered("m", RefreshSize.REBUILD)
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
    monkeypatch.setattr(resolved, "RESOLVED_BYTES", 80)
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
