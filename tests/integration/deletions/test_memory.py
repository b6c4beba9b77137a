"""A worker of more models than its memory holds."""

from __future__ import annotations

import pytest

from lethe.consumers.commits.state_cache import StateCache
from lethe.consumers.workers import deletion_worker
from tests.support.invariants import check_model
from tests.support.platform import Platform


def test_models_that_were_forgotten_are_loaded_again(
    memory: Platform, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[StateCache] = []

    def small() -> StateCache:
        made.append(StateCache(1))
        return made[-1]

    monkeypatch.setattr(deletion_worker, "StateCache", small)
    models = ["m", "n", "o"]
    for model in models:
        memory.register(model)
    for row in range(4):
        for model in models:
            memory.send_index(model, row)
        memory.drain()
    assert [len(held) for held in made] == [1]
    for model in models:
        assert {r.status for r in memory.finals(model).values()} == {"APPLIED"}
        assert memory.load(model).meta.rows_deleted == 4
        check_model(memory, model)
