"""A snapshot is of one moment, whatever is committed while it is read; what is staged expires."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
import redis

from lethe.engine.errors import CorruptState
from lethe.engine.store.factors import Factors
from lethe.engine.store.generation import Sampled
from lethe.engine.store.offline import staging
from lethe.engine.store.offline.snapshot import load_factor, take_snapshot
from tests.support.memory_log import MemoryLog
from tests.support.platform import Platform, row_ids


@pytest.fixture
def platform(redis_url: str, redis_client: redis.Redis) -> Iterator[Platform]:
    del redis_client  # it has emptied the database
    made = Platform(MemoryLog(), redis_url)
    made.register("m", budget=10.0)
    yield made
    made.close()


def test_a_snapshot_is_consistent_while_deletions_commit(platform: Platform) -> None:
    rows = iter(range(120))

    def delete(_done: int) -> None:
        platform.send_index("m", next(rows), next(rows))
        platform.drain(platform.pair[0])

    for taken in range(1, 20):
        snapshot = take_snapshot(platform.store, "m", delete)
        gone = set(row_ids(platform.data["m"])[: 2 * taken])
        assert snapshot.state.version == taken
        assert set(snapshot.ids) == set(row_ids(platform.data["m"])) - gone
        assert len(snapshot.rows) == len(snapshot.ids) == snapshot.state.meta.rows_live
        assert snapshot.W.shape == snapshot.rows.X.shape


def test_a_lost_row_record_is_corrupt_state(platform: Platform) -> None:
    state = platform.load()
    live = state.generation_keys
    for shard in range(8):
        platform.raw().hdel(live.rows(shard), "row-7")
    with pytest.raises(CorruptState, match="lethe check"):
        take_snapshot(platform.store, "m")


def test_a_lost_factor_is_corrupt_state(platform: Platform) -> None:
    state = platform.load()
    platform.raw().delete(state.generation_keys.factor)
    with pytest.raises(CorruptState, match="factor"):
        load_factor(platform.store, state)


def test_what_is_staged_expires_and_touches_nothing_live(platform: Platform) -> None:
    snapshot = take_snapshot(platform.store, "m")
    state = snapshot.state
    before = set(platform.raw().scan_iter())
    where = state.keys.generation("staged")
    staging.stage_generation(
        platform.raw(),
        where,
        generation=state.generation,
        stream=state.stream,
        L=load_factor(platform.store, state).L,
        ids=snapshot.ids,
        rows=snapshot.rows,
        W=snapshot.W,
        sentinels=Sampled(tuple(snapshot.ids[:3])),
    )
    new = set(platform.raw().scan_iter()) - before
    assert new
    assert all(0 < platform.raw().ttl(key) <= staging.TIME_TO_LIVE for key in new)
    assert platform.load().head == state.head
    staging.discard(platform.raw(), where.everything())
    assert set(platform.raw().scan_iter()) == before


def test_factors_that_were_used_last_are_kept(platform: Platform) -> None:
    platform.register("other")
    states = [platform.load(model) for model in ("m", "other")]
    factors = Factors(platform.raw(), limit=1)
    first = factors.of(states[0])
    assert factors.of(states[0]) is first
    factors.of(states[1])
    again = factors.of(states[0])
    assert again is not first
    assert np.array_equal(again.L, first.L)
