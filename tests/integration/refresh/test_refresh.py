"""Batches of deletions and refreshes of all sizes in turn, each version held against the oracle."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from lethe.consumers.contract.version_chain import theta_of
from lethe.consumers.refresh import swap as refresh_swap
from lethe.engine.refresh.size import RefreshSize
from lethe.engine.store.offline.catch_up import catch_up
from lethe.engine.store.offline.snapshot import load_factor
from lethe.engine.store.offline.staging import StagedGeneration
from lethe.engine.store.store import ModelStore
from tests.support.invariants import check_model, ledger_of, retrained, true_error
from tests.support.oracles import distance, projection
from tests.support.platform import Platform, row_ids

SIZES = list(RefreshSize)
BOTH = ["linear", "logistic"]


class Watch:
    """Checks each version as it appears, against retraining at that version."""

    def __init__(self, platform: Platform, model_id: str = "m") -> None:
        self.platform, self.model_id = platform, model_id
        self.seen = 0
        self.bounded = 0
        self.refreshed: dict[str, int] = {}
        self.anchor = theta_of(platform.parameters(model_id))
        self.anchored_at = 0

    def look(self) -> None:
        """Check the newest version; the caller looks after every single commit."""
        platform, state = self.platform, self.platform.load(self.model_id)
        if state.version == self.seen:
            return
        assert state.version == self.seen + 1
        self.seen = state.version
        version = platform.newest_version(self.model_id)
        published = theta_of(platform.parameters(self.model_id))
        truth = retrained(platform, self.model_id)
        error = distance(published, truth)
        size = float(np.linalg.norm(published))
        if version.error.bound is not None:
            self.bounded += 1
            assert error <= version.error.bound
        if version.refresh is not None or version.completed:
            self.anchor, self.anchored_at = published, state.version
        if version.refresh is not None:
            self.refreshed[version.refresh.size] = self.refreshed.get(version.refresh.size, 0) + 1
            assert error <= version.error.budget * size
        if platform.data[self.model_id].kind == "linear":
            expected = self._published(np.asarray(truth, dtype=np.float64), version.method)
            assert distance(published, expected) <= 1e-8 * size

    def _published(self, truth: np.ndarray, method: str) -> np.ndarray:
        """What page 1.4 says is published, from the oracle's answer."""
        if method == "exact":
            return truth
        data, ledger = self.platform.data[self.model_id], ledger_of(self.platform, self.model_id)
        since = [ledger.get(row, -1) > self.anchored_at for row in row_ids(data)]
        if not any(since):
            return self.anchor
        moved: np.ndarray = self.anchor + projection(data.design[since], truth - self.anchor)
        return moved


def turns(platform: Platform, watch: Watch) -> None:
    """Drain, looking after every turn of the deletion worker."""
    worker, refresher = platform.pair
    while True:
        done = platform.turn(worker)
        watch.look()
        done += refresher.run_once(0.0)
        if done == 0 and worker.idle() and refresher.idle():
            return


def interleave(platform: Platform, batches: int, first: int = 0) -> Watch:
    """Send ``batches`` requests of 1 or 2 rows with refreshes of all sizes in between."""
    watch = Watch(platform)
    order = [int(i) for i in np.random.default_rng(5).permutation(len(platform.data["m"].X))]
    del order[:first]
    for batch in range(batches):
        rows = [order.pop() for _ in range(1 + batch % 3 // 2)]
        platform.send_index("m", *rows)
        turns(platform, watch)
        if batch % 4 == 3:
            platform.order("m", SIZES[batch // 4 % 4])
            turns(platform, watch)
    return watch


@pytest.mark.parametrize("method", ["pru", "exact"])
@pytest.mark.parametrize("family", ["benign", "badly_scaled", "duplicated", "sparse"])
def test_linear_stays_at_retraining_through_52_batches_and_all_sizes(
    memory: Platform, family: str, method: str
) -> None:
    memory.register("m", family, "linear", method=method, budget=0.02)
    watch = interleave(memory, 52)
    assert set(watch.refreshed) >= {"complete", "compact", "rebuild"}
    assert watch.bounded == watch.seen >= 52
    check_model(memory)


@pytest.mark.parametrize("family", ["benign", "near_separable"])
def test_logistic_keeps_its_bounds_and_budget_through_52_batches_and_all_sizes(
    memory: Platform, family: str
) -> None:
    memory.register("m", family, "logistic", budget=0.05)
    watch = interleave(memory, 52)
    assert set(watch.refreshed) == {str(size) for size in SIZES}
    assert watch.bounded >= 4
    check_model(memory)


@pytest.mark.kafka
@pytest.mark.xdist_group("kafka")
@pytest.mark.parametrize("kind", BOTH)
def test_52_batches_and_all_sizes_through_kafka(
    platform_on: Callable[..., Platform], kind: str
) -> None:
    platform = platform_on("kafka")
    platform.register("m", "benign", kind, budget=0.05)
    order = list(range(len(platform.data["m"].X)))
    for batch in range(52):
        platform.send_index("m", *[order.pop() for _ in range(1 + batch % 2)])
        if batch % 4 == 3:
            platform.turn(platform.pair[0], 0.1)
        if batch % 13 == 12:
            platform.drain()
            platform.refresh("m", SIZES[batch // 13])
            assert platform.versions()[-1].refresh is not None
            published = float(np.linalg.norm(platform.load().stream.published))
            assert true_error(platform) <= 0.05 * published
    check_model(platform)


@pytest.mark.parametrize("part", ["fixed", "factor"])
def test_a_generation_that_expires_during_its_swap_does_not_become_live(
    memory: Platform, monkeypatch: pytest.MonkeyPatch, part: str
) -> None:
    memory.register("m", "benign", "linear", budget=10.0)
    memory.delete("m", 0, 1)
    event = memory.ordered("m", RefreshSize.REBUILD)
    memory.compute_refresh(event)
    # Given a key whose time ends after the staged generation was read

    def last_moment(store: ModelStore, staged: StagedGeneration, *rest: Any) -> Any:
        store.client.unlink(getattr(staged.keys, part))
        return catch_up(store, staged, *rest)

    monkeypatch.setattr(refresh_swap, "catch_up", last_moment)
    # When its event comes
    memory.tell_refreshed(event)
    memory.drain()
    monkeypatch.undo()
    # Then the live generation stays, whole
    assert memory.load().meta.generation == 0
    load_factor(memory.store, memory.load())
    memory.delete("m", 2)
    check_model(memory)
