"""The simulation of the service against closed formulas, and the table in the docs against it."""

from __future__ import annotations

import numpy as np
import pytest

from capacity.against import compared
from capacity.calibration import Calibrated, Drained, solved
from capacity.simulation import Costs, Place, poisson, simulate
from capacity.sizing import Load, different, most, need, sizes, table, turn_of
from harness.results import ROOT

ONE_BY_ONE = Place(records=1)
LEVELS = (np.arange(1000) + 0.5) / 1000
EXPONENTIAL = tuple(float(x) for x in -np.log1p(-LEVELS))


def _mean(rate: float, spread: tuple[float, ...]) -> float:
    """Return the mean seconds in a queue whose turns take one request, a second on average."""
    mean = float(np.mean(spread))
    costs = Costs((0.0, 0.0, 1.0), spread=tuple(x / mean for x in spread))
    return float(simulate(*poisson(rate, 60_000, 1, 3), costs, ONE_BY_ONE, 4).latencies.mean())


@pytest.mark.parametrize("rate", [0.3, 0.6, 0.8])
def test_constant_turns_are_an_m_d_1_queue(rate: float) -> None:
    assert _mean(rate, (1.0,)) == pytest.approx(1 + rate / (2 * (1 - rate)), rel=0.05)


@pytest.mark.parametrize("rate", [0.3, 0.6, 0.8])
def test_exponential_turns_are_an_m_m_1_queue(rate: float) -> None:
    assert _mean(rate, EXPONENTIAL) == pytest.approx(1 / (1 - rate), rel=0.1)


def test_the_store_is_one_queue_of_all_workers() -> None:
    """Eight workers that only wait for the store are no faster than one; with eight, they are."""
    costs = Costs((0.0, 0.0, 1.0), store=(0.0, 0.0, 1.0))
    times, models = np.zeros(800), np.arange(800) % 16
    one, eight = (
        simulate(times, models, costs, Place(8, 16, primaries, records=1)).end
        for primaries in (1, 8)
    )
    assert (one, eight) == (800.0, 100.0)


@pytest.mark.parametrize("workers", [1, 3, 16])
def test_every_request_is_answered_once_and_not_before_its_turn(workers: int) -> None:
    costs = Costs((0.004, 0.002, 0.0001), store=(0.001, 0.0003, 0.00003), answer=0.001)
    times, models = poisson(700.0, 5_000, 40, 5)
    outcome = simulate(times, models, costs, Place(workers, primaries=2))

    assert outcome.latencies.shape == times.shape
    assert outcome.latencies.min() >= costs.seconds(1, 1) + costs.answer - 1e-12
    assert outcome.turns <= len(times)
    assert outcome.end >= times[-1]


def test_more_load_is_no_quicker_and_makes_larger_turns() -> None:
    costs = Costs((0.004, 0.002, 0.0001))
    found = [simulate(*poisson(rate, 20_000, 10, 6), costs) for rate in (10.0, 50.0, 200.0, 800.0)]

    latencies = [outcome.quantile(0.99) for outcome in found]
    assert latencies == sorted(latencies)
    turns = [outcome.turns for outcome in found]
    assert turns == sorted(turns, reverse=True)


def test_turns_grow_until_they_keep_pace() -> None:
    costs = Costs((0.004, 0.002, 0.0001))
    rate = 0.5 * most(costs, 10, 256)
    times, models = poisson(rate, 50_000, 10, 7)
    simulated = 50_000 / simulate(times, models, costs).turns

    assert simulated == pytest.approx(turn_of(costs, rate, 10, 256), rel=0.1)


def test_how_many_models_a_turn_has() -> None:
    drawn = np.random.default_rng(8).integers(0, 16, (4_000, 20))
    assert different(16, 20) == pytest.approx(np.mean([len(set(row)) for row in drawn]), rel=0.01)
    assert different(1, 20) == 1.0


def test_what_turns_take_is_found_in_what_drains_took() -> None:
    sizes_ = [(64.0, 64.0, 512.0), (4.0, 64.0, 1024.0), (4.0, 4.0, 1024.0)]
    drained = [Drained(one, float(np.dot(one, (5, 3, 0.1))), 1.0) for one in sizes_]
    assert solved(drained, "seconds") == pytest.approx([5, 3, 0.1])


def test_a_larger_load_needs_no_less() -> None:
    calibrated = Calibrated()
    small, large = (need(Load(users, 100, users / 1_000), calibrated) for users in (1e6, 1e7))
    assert small.store < large.store
    assert small.log < large.log
    assert small.workers <= large.workers
    assert all(small.shares[name] < large.shares[name] for name in small.shares)


def test_the_docs_have_the_tables_that_the_command_prints() -> None:
    calibrated = Calibrated()
    page = (ROOT / "docs" / "capacity.md").read_text()
    assert table(calibrated) in page
    assert compared() in page
    assert sizes(calibrated) in (ROOT / "docs" / "operations.md").read_text()
