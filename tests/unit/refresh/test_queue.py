"""How often a model's refreshes may begin: some in a row, then one every so many seconds."""

from __future__ import annotations

import pytest
from hypothesis import given, strategies as st

from lethe.consumers.refresh.queue import RefreshLimit

LIMIT = RefreshLimit(60.0, 3)


def begun(limit: RefreshLimit, wishes: list[float]) -> list[float]:
    """Return when refreshes begin that are wished for at these times, each as soon as it may."""
    pace, clock, times = 0.0, 0.0, []
    for wish in sorted(wishes):
        clock = max(clock, wish)
        clock += limit.wait(pace, clock)
        pace = limit.after(pace, clock)
        times.append(clock)
    return times


def test_some_follow_at_once_and_then_one_a_minute() -> None:
    assert begun(LIMIT, [1000.0] * 6) == [1000, 1000, 1000, 1060, 1120, 1180]


def test_who_has_waited_may_do_as_many_again() -> None:
    assert begun(LIMIT, [0.0] * 3 + [1000.0] * 4) == [0, 0, 0, 1000, 1000, 1000, 1060]


@given(st.lists(st.floats(0, 1e5), max_size=40), st.floats(0.1, 1e4), st.integers(1, 6))
def test_no_stretch_of_time_has_more_than_it_may(
    wishes: list[float], seconds: float, burst: int
) -> None:
    times = begun(RefreshLimit(seconds, burst), wishes)
    for first, one in enumerate(times):
        for last in range(first, len(times)):
            allowed = burst + (times[last] - one) / seconds
            assert last - first + 1 <= allowed + 1e-6


@pytest.mark.parametrize("pace", [1e18, 1e300])
def test_a_clock_that_was_wrong_delays_by_one_interval_at_most(pace: float) -> None:
    assert LIMIT.wait(pace, 1000.0) == 60.0
    assert LIMIT.after(pace, 1000.0) == 1000 + 4 * 60
