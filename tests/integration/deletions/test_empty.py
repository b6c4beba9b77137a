"""A model whose last row is deleted keeps nothing that was learned from any row."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from lethe.consumers.audit.health.models import check_model as check_stored
from lethe.engine.store.layout.config import LimitsRecord
from lethe.engine.store.server.connection import text
from tests.support.families import make
from tests.support.invariants import check_model
from tests.support.platform import Platform, row_ids


def remains(platform: Platform) -> list[str]:
    """Return the keys of generations, live or not."""
    pattern = f"lethe:{platform.load().keys.head.removesuffix('head')}gen:*"
    return [text(key) for key in platform.raw().scan_iter(match=pattern)]


@pytest.mark.parametrize("kind", ["linear", "logistic"])
@pytest.mark.parametrize("how", ["in one batch", "by a rebuild"])
def test_an_empty_model_keeps_nothing_of_its_rows(memory: Platform, kind: str, how: str) -> None:
    data = make("benign", kind)
    crowded = LimitsRecord(floor_rows=1, fraction_of_d=1e-9)  # more than 8 rows wait for a rebuild
    limits = crowded if how == "by a rebuild" else None
    memory.register("m", data, method="exact", budget=10.0, limits=limits)
    first = memory.delete("m", 3)
    everybody = row_ids(data)
    half = memory.send("m", *everybody[:60])
    rest = memory.send("m", *everybody[60:])
    memory.turn_until_decided(2)
    by_rebuild = "DEFERRED" in memory.statuses(rest)
    assert by_rebuild == (how == "by a rebuild")
    memory.drain()
    assert {memory.final(one).status for one in (first, half, rest)} == {"APPLIED"}
    state = memory.load()
    assert state.meta.status == "EMPTY"
    assert remains(memory) == []
    stream = state.stream
    for theta in (stream.theta_exact, stream.theta_r, stream.anchor, stream.published):
        assert not theta.any()
    check_model(memory)
    assert [one for one in check_stored(memory.store, memory.log, "m") if not one.ok] == []
    # It is still a model: it answers, is refreshed when somebody wants it, and can be replaced.
    again = memory.send("m", *everybody[:3])
    assert memory.answer(again).status == "ALREADY_APPLIED"
    newcomers = replace(
        data,
        X=np.concatenate([data.X, data.X[:40]]),
        y=np.concatenate([data.y, data.y[:40]]),
        weight=np.ones(len(data.X) + 40),
    )
    memory.register("m", newcomers, budget=10.0, replace_model=True)
    memory.drain()
    assert memory.load().meta.rows_live == 40
    check_model(memory)
