"""What a deletion publishes where its version would be over the error budget, by each rule."""

from __future__ import annotations

import pytest

from lethe.consumers.contract.receipt import Receipt
from lethe.consumers.refresh import swap as refresh_swap
from lethe.engine.deletion.generation import distance_to_exact
from lethe.engine.error.budget import OverBudget
from lethe.engine.store.layout.config import LimitsRecord
from tests.support.invariants import check_model, true_error
from tests.support.platform import Platform

SMALL = 1e-6
"""A budget that a projection of the family passes with every row, and the exact answer does not."""


def deleted_one_by_one(platform: Platform, rows: int = 12) -> None:
    """Delete rows, each in a version of its own, with refreshes as they are ordered."""
    for row in range(rows):
        platform.delete("m", row)


def answers(platform: Platform, request_id: str) -> list[Receipt]:
    """Return the receipts of a request, in order."""
    return [each for each in platform.receipts("m") if each.request_id == request_id]


@pytest.mark.parametrize("method", ["pru", "influence"])
def test_no_projection_over_the_budget_is_ever_published(memory: Platform, method: str) -> None:
    memory.register("m", "benign", "linear", method=method, budget=SMALL)
    deleted_one_by_one(memory)
    versions = memory.versions("m")
    assert [version.completed for version in versions[1:]] == [True] * 12
    assert not any(version.error.over for version in versions)
    state = memory.load()
    assert (len(state.stream.Q), distance_to_exact(state.stream)) == (0, 0.0)
    assert true_error(memory) <= SMALL
    check_model(memory)


def test_passing_the_budget_orders_a_refresh_that_finds_nothing_left_to_do(
    memory: Platform,
) -> None:
    memory.register("m", "benign", "linear", budget=SMALL)
    memory.send_index("m", 0)
    memory.turn_until_decided(1)
    pending = memory.load().meta.pending_job
    assert pending is not None
    assert pending.reason == "error_budget"
    memory.drain()
    assert memory.load().meta.pending_job is None
    assert [version.version for version in memory.versions("m")] == [0, 1]


def test_completions_of_a_generation_end_in_a_rebuild(memory: Platform) -> None:
    memory.register("m", "benign", "linear", budget=SMALL, limits=LimitsRecord(completions=4))
    deleted_one_by_one(memory, 6)
    sizes = [version.refresh.size for version in memory.versions("m") if version.refresh]
    assert sizes == ["rebuild"]
    check_model(memory)


def test_a_projection_is_published_where_that_was_asked_for(memory: Platform) -> None:
    memory.register("m", "benign", "linear", budget=SMALL, over_budget=OverBudget.PUBLISH)
    memory.delete("m", 0)
    versions = memory.versions("m")
    assert versions[1].error.over
    assert not versions[1].completed
    assert versions[2].refresh is not None
    assert versions[2].refresh.size == "complete"


def test_what_a_logistic_model_still_lacks_is_published_and_said(memory: Platform) -> None:
    memory.register("m", "benign", "logistic", budget=SMALL)
    memory.delete("m", 0)
    first, refreshed = memory.versions("m")[1:]
    assert first.completed
    assert first.error.over
    assert refreshed.refresh is not None
    assert refreshed.refresh.size in ("polish", "rebuild")
    assert not refreshed.error.over


def test_the_last_version_is_held_until_a_rebuild_without_the_rows(memory: Platform) -> None:
    memory.register("m", "benign", "logistic", budget=SMALL, over_budget=OverBudget.HOLD)
    request = memory.send_index("m", 0)
    memory.turn_until_decided(1)
    [waits] = answers(memory, request)
    assert (waits.status, waits.code, waits.version) == ("DEFERRED", "OVER_BUDGET", 0)
    memory.drain()
    [_, done] = answers(memory, request)
    assert (done.status, done.rows_deleted, done.version) == ("APPLIED", 1, 1)
    assert not any(version.error.over for version in memory.versions("m"))
    check_model(memory)


def test_a_request_is_rejected_if_even_a_rebuild_is_over_the_budget(
    memory: Platform, monkeypatch: pytest.MonkeyPatch
) -> None:
    memory.register("m", "benign", "logistic", budget=SMALL, over_budget=OverBudget.HOLD)
    request, other = memory.send_index("m", 0), memory.send_index("m", 1)
    monkeypatch.setattr(refresh_swap, "_must_hold", lambda *_: True)
    memory.drain()
    for each in (request, other):
        [_, done] = answers(memory, each)
        assert (done.status, done.code) == ("REJECTED", "BUDGET_UNREACHABLE")
    state = memory.load()
    assert (state.version, state.deferred, state.meta.pending_job) == (0, {}, None)
    assert state.meta.rows_live == len(memory.data["m"].X)
    monkeypatch.undo()
    memory.delete("m", 0)
    check_model(memory)
