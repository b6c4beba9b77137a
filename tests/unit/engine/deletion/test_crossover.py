"""Folding V away by its cost: never more than twice what knowing the stream would have cost."""

from __future__ import annotations

import numpy as np
import pytest

from lethe.engine.deletion.crossover import (
    folding_seconds,
    polishing_seconds,
    rebuilding_seconds,
    refitting_seconds,
    step_seconds,
)


def cost(n: int, d: int, batches: list[int], at: float | None) -> float:
    """Return what a stream costs; ``at`` is a fixed threshold, or None for the rule."""
    total = spent = 0.0
    K, left = 0, n
    for k in batches:
        step = step_seconds(d, K, k)
        total, spent, K, left = total + step, spent + step, K + k, left - k
        price = min(folding_seconds(left, d, K), rebuilding_seconds(left, d, 1))
        if spent >= price if at is None else at < K:
            total, spent, K = total + price, 0.0, 0
    return total


STREAMS = {
    "single rows": [1] * 3000,
    "batches of 16": [16] * 190,
    "a burst, then single rows": [256] * 8 + [1] * 1000,
    "single rows, then a burst": [1] * 1000 + [256] * 8,
    "as they come": [int(k) for k in np.random.default_rng(0).geometric(0.1, 300)],
}


@pytest.mark.parametrize(("n", "d"), [(4000, 50), (4000, 1000), (30_000, 250), (30_000, 3000)])
@pytest.mark.parametrize("stream", STREAMS)
def test_the_rule_costs_at_most_twice_the_best_threshold_in_hindsight(
    n: int, d: int, stream: str
) -> None:
    """However early the stream ends: whoever knew it would not have spent less than half."""
    for length in (0.1, 0.5, 1.0):
        batches = STREAMS[stream]
        batches = batches[: max(1, int(length * len(batches)))]
        thresholds = [*(2.0**i for i in range(3, 12)), np.inf]
        best = min(cost(n, d, batches, at) for at in thresholds)
        assert cost(n, d, batches, None) <= 2.0 * best


def test_costs_grow_with_what_they_are_made_of() -> None:
    assert step_seconds(100, 0, 1) == 0.0
    assert step_seconds(100, 20, 1) == 2 * step_seconds(100, 10, 1) == 2 * step_seconds(50, 20, 1)
    # A batch shares the reading of V, until arithmetic is the limit.
    assert step_seconds(100, 20, 4) == step_seconds(100, 20, 1)
    assert step_seconds(100, 20, 256) < 256 * step_seconds(100, 20, 1)
    assert step_seconds(100, 20, 1, estimated=True) == 3 * step_seconds(100, 20, 1)
    for larger in ((2000, 100, 10), (1000, 200, 10), (1000, 100, 20)):
        assert folding_seconds(*larger) > folding_seconds(1000, 100, 10)
    assert rebuilding_seconds(1000, 100, 6) > rebuilding_seconds(1000, 100, 1)


@pytest.mark.parametrize(("hessians", "at"), [(1, 0.75), (6, 2.0)])
def test_a_compact_costs_a_rebuild_where_its_arithmetic_says(hessians: int, at: float) -> None:
    """In arithmetic, with many rows: K = 3 d / 4 for a linear model, 2 d for a logistic one."""
    n, d = 10**9, 1000
    compact, rebuild = folding_seconds(n, d, int(at * d)), rebuilding_seconds(n, d, hessians)
    assert compact == pytest.approx(rebuild, rel=1e-3)


MEASURED = [
    # n, d, hard, milliseconds of a polish and of a rebuild (docs/guards.md)
    (500, 10, False, 0.2, 1.5),
    (500, 10, True, 13.1, 2.6),
    (20_000, 10, False, 2.1, 35.3),
    (2_000, 30, True, 44.9, 21.0),
    (20_000, 30, False, 2.5, 84.6),
    (2_000, 100, True, 57.6, 28.5),
    (10_000, 100, False, 2.3, 67.9),
    (10_000, 300, True, 666.9, 907.5),
    (2_000, 1000, False, 131.4, 1416.8),
    (2_000, 1000, True, 297.1, 1798.5),
]


@pytest.mark.parametrize(("n", "d", "hard", "polish", "rebuild"), MEASURED)
def test_of_polish_and_rebuild_the_one_that_was_faster_is_priced_lower(
    n: int, d: int, hard: bool, polish: float, rebuild: float
) -> None:
    priced = polishing_seconds(n, d, n // 50, hard=hard, stored=False)
    beside = refitting_seconds(n, d, hard=hard, stored=False)
    assert (priced < beside) is (polish < rebuild)


def test_a_store_that_is_written_again_speaks_for_the_polish() -> None:
    for n, d in ((5_000, 100), (20_000, 100)):
        library = (
            polishing_seconds(n, d, 10, hard=True, stored=False),
            refitting_seconds(n, d, hard=True, stored=False),
        )
        worker = (
            polishing_seconds(n, d, 10, hard=True, stored=True),
            refitting_seconds(n, d, hard=True, stored=True),
        )
        assert worker[1] - library[1] == pytest.approx(2 * (worker[0] - library[0]))
