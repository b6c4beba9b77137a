"""Deleted rows of a generation are folded away when they have cost as much as that would."""

from __future__ import annotations

import pytest

from lethe.engine.deletion.crossover import step_seconds
from lethe.engine.refresh.size import RefreshSize
from lethe.engine.store.layout.config import LimitsRecord
from tests.support.invariants import check_model
from tests.support.platform import Platform


@pytest.mark.parametrize("kind", ["linear", "logistic"])
def test_v_is_compacted_when_it_has_cost_as_much(
    memory: Platform, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    memory.register("m", "benign", kind, method="exact", budget=10.0)
    d = memory.load("m").meta.config.d
    one = step_seconds(d, 1, 1, estimated=kind == "logistic")
    monkeypatch.setattr("lethe.engine.refresh.policy.folding_seconds", lambda _n, _d, _K: 5.5 * one)
    for row in (1, 2, 3, 4):  # V costs 0, 1, 2, 3 times that
        before = memory.load("m")
        assert before.meta.generation == 0
        memory.delete("m", row)
    after = memory.load("m")
    assert before.stream.v_seconds == pytest.approx(3 * one)  # kept in the store
    assert (after.meta.generation, len(after.stream.V), after.stream.v_seconds) == (1, 0, 0.0)
    refresh = memory.newest_version("m").refresh
    assert refresh is not None
    assert refresh.size == RefreshSize.COMPACT
    assert (
        refresh.reason == "4 rows deleted in this generation have cost as much as folding them away"
    )
    check_model(memory)


def test_v_is_compacted_at_its_limit_whatever_it_has_cost(memory: Platform) -> None:
    limits = LimitsRecord(floor_rows=3, fraction_of_d=0.0)
    memory.register("m", "benign", "linear", method="exact", budget=10.0, limits=limits)
    for row in (1, 2, 3):
        memory.delete("m", row)
        assert memory.load("m").meta.generation == 0
    memory.delete("m", 4)
    assert memory.load("m").meta.generation == 1
    refresh = memory.newest_version("m").refresh
    assert refresh is not None
    assert refresh.size == RefreshSize.COMPACT
    assert refresh.reason == "4 rows deleted in this generation"
    check_model(memory)
