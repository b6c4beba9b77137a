"""Damage in the store that no length or digest shows: the drift audit finds it and rebuilds."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import redis

from lethe.consumers.audit.health.models import check_model as checks_of
from lethe.engine.refresh.size import RefreshSize
from lethe.engine.store.layout import codec
from lethe.engine.store.layout.keys import shard_of
from tests.support.families import make
from tests.support.invariants import check_model, retrained
from tests.support.oracles import distance
from tests.support.platform import Platform, row_ids

RELATIVE = 1e-3


def damage_v(platform: Platform, client: Any) -> None:
    keys = platform.load("m").generation_keys
    stored = client.lindex(keys.V, 1)
    row = np.frombuffer(stored[1:]) * (1 + RELATIVE)
    client.lset(keys.V, 1, codec.pack_signed_row(row))


def damage_live_row(platform: Platform, client: Any) -> None:
    """Change one feature of one live row's record."""
    state = platform.load("m")
    row = row_ids(platform.data["m"])[7]
    where = state.generation_keys.rows(shard_of(row))
    record = codec.unpack_rows([client.hget(where, row)], state.meta.config.d, 1, "row")
    x = record.X[0].copy()
    x[2] += 0.01
    client.hset(where, row, codec.pack_row(x, record.y[0], float(record.weight[0]), record.W[0]))


def drift_line(platform: Platform) -> tuple[bool, str]:
    [found] = [c for c in checks_of(platform.store, None, "m") if c.subject == "model m, drift"]
    return found.ok, found.detail


@pytest.mark.parametrize("kind", ["linear", "logistic"])
@pytest.mark.parametrize("size", [RefreshSize.POLISH, RefreshSize.COMPACT])
def test_a_damaged_row_of_v_orders_a_rebuild_that_says_why(
    memory: Platform, redis_client: redis.Redis, kind: str, size: RefreshSize
) -> None:
    memory.register("m", "benign", kind, method="exact", budget=10.0)
    memory.delete("m", 1, 2, 3)
    assert drift_line(memory)[0]
    damage_v(memory, redis_client)
    fine, detail = drift_line(memory)
    assert not fine
    assert "V does not match the live rows" in detail
    assert "run `lethe refresh --size rebuild`" in detail
    memory.refresh("m", size)
    doubted, rebuilt = memory.versions("m")[-2:]
    assert doubted.refresh is not None
    assert doubted.refresh.reason.startswith(
        "the drift audit failed: V does not match the live rows"
    )
    assert (doubted.error.kind, doubted.error.value) == ("unknown", None)
    assert rebuilt.refresh is not None
    assert rebuilt.refresh.size == RefreshSize.REBUILD
    assert rebuilt.error.kind in ("rounded", "certificate")
    assert drift_line(memory)[0]
    state = memory.load("m")
    truth = retrained(memory, "m")
    assert distance(state.stream.published, truth) <= 1e-9 * float(np.linalg.norm(truth))
    check_model(memory)


def test_a_sound_model_gets_the_size_that_was_ordered(memory: Platform) -> None:
    memory.register("m", "benign", "logistic", budget=10.0)
    memory.delete("m", 1, 2, 3)
    memory.refresh("m", RefreshSize.POLISH)
    refresh = memory.newest_version("m").refresh
    assert refresh is not None
    assert refresh.size == RefreshSize.POLISH
    assert refresh.reason.startswith("ordered")
    check_model(memory)


def test_a_live_row_that_changed_in_the_store_is_seen_by_check(
    memory: Platform, redis_client: redis.Redis
) -> None:
    memory.register("m", make("benign", "linear"), budget=10.0)
    assert drift_line(memory)[0]
    damage_live_row(memory, redis_client)
    # Where the probe happens to draw that row, it speaks first and the drift line is left out.
    wrong = {check.subject for check in checks_of(memory.store, None, "m") if not check.ok}
    assert wrong in ({"model m, drift"}, {"model m, dual rows"})


def test_a_model_too_large_for_a_check_says_so(
    memory: Platform, monkeypatch: pytest.MonkeyPatch
) -> None:
    memory.register("m", "benign", "linear", budget=10.0)
    monkeypatch.setattr("lethe.consumers.audit.health.models.AUDITED_NUMBERS", 100)
    fine, detail = drift_line(memory)
    assert fine
    assert detail.startswith("not audited here: 3120 numbers")
