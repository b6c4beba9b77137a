"""Deletions between, during and after refresh jobs; events that are late, forged or repeated."""

from __future__ import annotations

import contextlib

import pytest

from lethe.consumers.refresh import job as refresh_job, new_generation
from lethe.consumers.refresh.job import run_job
from lethe.engine.refresh.size import RefreshSize
from lethe.engine.store.layout.config import LimitsRecord
from tests.support.invariants import check_model, ledger_of
from tests.support.platform import Platform, row_ids

SIZES = list(RefreshSize)
BOTH = ["linear", "logistic"]
SEVERAL_OUTPUTS = [("linear", "several_outputs"), ("logistic", "classes")]


@pytest.mark.parametrize(
    ("kind", "family"), [("linear", "benign"), ("logistic", "benign"), *SEVERAL_OUTPUTS]
)
@pytest.mark.parametrize("size", SIZES)
def test_deletions_between_a_result_and_its_swap(
    memory: Platform, kind: str, family: str, size: RefreshSize
) -> None:
    memory.register("m", family, kind, budget=10.0)
    memory.delete("m", 0, 1, 2)
    # Given a result that knows three deletions, and four more after it
    event = memory.ordered("m", size)
    memory.compute_refresh(event)
    memory.send_index("m", 3, 4)
    memory.send_index("m", 5)
    memory.drain()
    memory.delete("m", 6)
    # When it is swapped in, and deletions go on
    memory.tell_refreshed(event)
    memory.delete("m", 7, 8)
    # Then nothing was lost
    assert [v.refresh.size for v in memory.versions() if v.refresh] == [size]
    assert len(ledger_of(memory, "m")) == 9
    check_model(memory)
    data, counts = memory.data["m"], memory.load().meta.class_counts
    if counts is not None and len(counts) > 2:
        assert counts == tuple(data.y[9:].sum(axis=0))
    # and a rebuild from the stored rows agrees
    memory.refresh("m", RefreshSize.REBUILD)
    check_model(memory)


@pytest.mark.parametrize("kind", BOTH)
@pytest.mark.parametrize("size", [RefreshSize.POLISH, RefreshSize.COMPACT, RefreshSize.REBUILD])
@pytest.mark.parametrize("when", ["reading", "refitting", "folding", "polishing", "writing"])
def test_deletions_while_a_job_works(
    memory: Platform, kind: str, size: RefreshSize, when: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(new_generation, "CATCH_UP_LIMIT", 2)  # so that the job itself catches up
    memory.register("m", "benign", kind, budget=10.0)
    memory.delete("m", *range(4))
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
def test_an_event_that_comes_twice_changes_nothing(memory: Platform, size: RefreshSize) -> None:
    memory.register("m", "benign", "logistic", budget=10.0)
    memory.delete("m", 0, 1)
    event = memory.ordered("m", size)
    memory.compute_refresh(event)
    memory.tell_refreshed(event)
    memory.tell_refreshed(event)  # in the same batch
    memory.drain()
    memory.tell_refreshed(event)  # and later
    memory.drain()
    assert memory.load().version == 2
    check_model(memory)
    memory.delete("m", 2)
    memory.tell_refreshed(event)
    memory.drain()
    assert memory.load().version == 3
    check_model(memory)


def test_forged_events_change_nothing(memory: Platform) -> None:
    memory.register("m", "benign", "linear")
    memory.register("other", "benign", "linear")
    memory.delete("other", 1)
    theirs = memory.ordered("other", RefreshSize.REBUILD)
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


@pytest.mark.parametrize("size", [RefreshSize.COMPACT, RefreshSize.REBUILD])
def test_an_attempt_that_was_thought_dead_harms_nothing(
    memory: Platform, size: RefreshSize
) -> None:
    # Given a worker that stalls in a job while another does the same job and it is swapped in
    memory.register("m", "benign", "linear", budget=10.0)
    memory.delete("m", 0, 1)
    event = memory.ordered("m", size)
    other: list[bool] = []

    def stall(what: str, _done: int, _all: int) -> None:
        if what.startswith(("refitting", "folding")) and not other:
            other.append(True)
            memory.compute_refresh(event)
            memory.tell_refreshed(event)
            memory.drain()
            memory.delete("m", 2)

    # When it wakes up, stores its result and says so
    moment = memory.load().meta.refreshed_at
    with contextlib.suppress(refresh_job.Superseded):  # a compact needs the factor that is gone
        run_job(memory.store, event, now=moment, progress=stall)
    check_live_state_is_whole(memory)
    memory.tell_refreshed(event)
    memory.drain()
    # Then the swapped generation stands
    assert [v.refresh.size for v in memory.versions() if v.refresh] == [size]
    memory.delete("m", 3)
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
    memory: Platform, kind: str, size: RefreshSize
) -> None:
    limits = LimitsRecord(far_under=1e-8)  # so that a polish moves
    memory.register("m", "benign", kind, budget=10.0, limits=limits)
    memory.delete("m", 0, 1)
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
    assert memory.answer(again).status == "ALREADY_APPLIED"
    assert memory.versions()[-1].status == "EMPTY"
    check_model(memory)


def test_a_snapshot_is_whole_while_deleted_rows_wait_for_their_erasure(memory: Platform) -> None:
    """Publishing lies between commit and erasure: with the log down, that can be long."""
    memory.register("m", "benign", "linear", budget=10.0)
    event = memory.ordered("m", RefreshSize.REBUILD)
    results: list[int] = []

    def refresh(step: str) -> None:
        if step == "advance" and not results:
            results.append(memory.compute_refresh(event).rows)

    worker = memory.deletion_worker(at_step=refresh)
    memory.send_index("m", 0, 1, 2)
    memory.drain(worker)
    assert results == [len(memory.data["m"].X) - 3]
    memory.tell_refreshed(event)
    memory.drain(worker)
    check_model(memory)
