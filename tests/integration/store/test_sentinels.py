"""Which rows the estimate is made from survives a restart, an older release, and deletions."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pytest
import redis

from lethe.engine.error.estimate import remainder_estimate
from lethe.engine.error.sentinels import SENTINELS
from lethe.engine.errors import CorruptState
from lethe.engine.store.layout.state import ModelState
from lethe.engine.store.offline.snapshot import with_enough_sentinels
from tests.support.families import Data
from tests.support.memory_log import MemoryLog
from tests.support.oracles import retrain
from tests.support.platform import Platform, row_ids

N = 3000
LONG = 30  # rows, ten times as long as the others
GONE = 60


def _data() -> Data:
    rng = np.random.default_rng(4)
    X = rng.standard_normal((N, 6))
    X[:LONG] *= 10.0
    u = X @ rng.standard_normal((6, 1)) / 10
    y = (rng.random((N, 1)) < 1 / (1 + np.exp(-u))).astype(np.float64)
    return Data("long rows", "logistic", X, y, np.ones(N), 1.0, True, np.arange(N - GONE, N))


@pytest.fixture
def platform(redis_url: str, redis_client: redis.Redis) -> Iterator[Platform]:
    del redis_client  # it has emptied the database
    made = Platform(MemoryLog(), redis_url)
    made.register("m", _data(), method="exact", budget=1e6)
    yield made
    made.close()


def _edit_info(platform: Platform, **changes: object) -> None:
    fixed = platform.load().generation_keys.fixed
    info = json.loads(str(platform.raw().hget(fixed, "info"), "utf-8"))  # type: ignore[arg-type]
    kept = {name: value for name, value in {**info, **changes}.items() if value is not None}
    platform.raw().hset(fixed, "info", json.dumps(kept))


def test_long_rows_are_sentinels_and_the_chances_are_loaded_again(platform: Platform) -> None:
    sentinels = platform.load().sentinels
    assert len(sentinels.ids) == SENTINELS
    assert sentinels.pi is not None
    long = set(row_ids(_data())[:LONG])
    assert len(long & set(sentinels.ids)) > LONG / 2  # alike, three of them would be
    assert sentinels.pi.min() >= 0.25 * SENTINELS / N * 0.5
    # The chances add up to the rows again: about, because the sample is random.
    assert float(np.sum(1.0 / sentinels.pi)) == pytest.approx(N, rel=0.35)


def test_a_linear_model_has_no_chances_to_store(platform: Platform) -> None:
    platform.register("linear", "benign", "linear")
    state = platform.load("linear")
    fixed = platform.raw().hgetall(state.generation_keys.fixed)
    assert b"sentinel_chances" not in fixed[b"info"]


def test_a_generation_without_chances_loads_as_if_all_were_equal(platform: Platform) -> None:
    _edit_info(platform, sentinel_chances=None)
    sentinels = platform.load().sentinels
    assert sentinels.pi is None
    np.testing.assert_allclose(sentinels.chances(N), SENTINELS / N)


@pytest.mark.parametrize("chances", [[0.5], [0.0] * SENTINELS, [1.5] * SENTINELS])
def test_chances_that_cannot_be_are_corrupt_state(platform: Platform, chances: list[float]) -> None:
    _edit_info(platform, sentinel_chances=chances)
    with pytest.raises(CorruptState, match="chances"):
        platform.load()


def _few_left(platform: Platform) -> ModelState:
    """Return the state after `GONE` deletions, with sixty of its sentinels."""
    platform.delete("m", *range(N - GONE, N))
    state = platform.load()
    order = np.argsort(-np.asarray(state.sentinels.pi), kind="stable")
    left = {state.sentinels.ids[i] for i in order[:60]}
    gone = frozenset(set(state.sentinels.ids) - left)
    return replace(state, sentinels=state.sentinels.without(gone))


def test_a_new_sample_keeps_the_certain_rows_and_estimates_as_well(platform: Platform) -> None:
    state = _few_left(platform)
    before = state.sentinels
    assert before.pi is not None
    certain = {row for row, pi in zip(before.ids, before.pi, strict=True) if pi >= 1.0}
    assert certain
    renewed = with_enough_sentinels(platform.store, state)
    after = renewed.sentinels
    assert after.pi is not None
    assert len(after.ids) == len(set(after.ids)) == len(after.W) == len(after.pi) == SENTINELS
    assert certain <= set(after.ids)
    assert not set(after.ids) & set(row_ids(_data())[N - GONE :])
    assert float(np.sum(1.0 / after.pi)) == pytest.approx(N - GONE, rel=0.5)

    data, live = _data(), slice(0, N - GONE)
    design = np.hstack([data.X, np.ones((N, 1))])
    penalty = np.append(np.ones(6), 0.0)
    truth = retrain("logistic", design[live], data.y[live], data.weight[live], penalty)
    true = float(np.linalg.norm(state.stream.theta_exact - truth))
    ratio = remainder_estimate(state.generation, state.stream, after, N - GONE) / true
    assert 0.8 <= ratio <= 3.0


def test_a_sample_that_is_large_enough_is_kept(platform: Platform) -> None:
    state = platform.load()
    assert with_enough_sentinels(platform.store, state) is state
