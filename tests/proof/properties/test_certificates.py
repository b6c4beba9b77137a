"""A certificate is never below the true error: 10,000 random states against extended precision.

How tight it is, and how often it does not apply: ``python scripts/study.py certificates``.
"""

from __future__ import annotations

import logging
from collections import Counter

import numpy as np
import pytest

from tests.support.certified import DRAWN, POISSON, State, many, many_poisson
from tests.support.families import families

LOG = logging.getLogger(__name__)


@pytest.fixture(scope="module")
def certified() -> list[State]:
    return list(many(seed=1, drawn=100, named=5, points=9))


def test_in_ten_thousand_states_no_certificate_is_below_the_true_error(
    certified: list[State],
) -> None:
    assert [s for s in certified if s.below] == []
    assert len(certified) >= 10_000
    # It has been tried where it could fail: every family, way and argument, often.
    assert {s.family for s in certified} >= {*DRAWN, *families("logistic")}
    hows = Counter(s.how for s in certified)
    assert min(hows[how] for how in ("fresh", "stale", "audited", "polished")) >= 400
    arguments = Counter(s.certificate.argument for s in certified)
    LOG.info("%d states: %s, %s", len(certified), hows, arguments)
    for argument in ("self-concordant", "stale-factor", "solved", "strong-convexity", "none"):
        assert arguments[argument] >= 100, argument
    assert sum(s.free_intercept for s in certified) > 3000


def test_in_five_thousand_states_of_counts_no_certificate_is_below_the_true_error() -> None:
    """A Poisson model's curvature changes by exactly as much as the proof allows: s' = s."""
    states = list(many_poisson(seed=2, drawn=60, points=9))
    assert [s for s in states if s.below] == []
    assert len(states) >= 5_000
    assert {s.family for s in states} == {*POISSON}
    arguments = Counter(s.certificate.argument for s in states)
    LOG.info("%d states: %s, %s", len(states), Counter(s.how for s in states), arguments)
    for argument in ("self-concordant", "stale-factor", "solved", "strong-convexity", "none"):
        assert arguments[argument] >= 50, argument


def test_polished_states_are_certified_tightly_and_within_their_passes(
    certified: list[State],
) -> None:
    polished = [s for s in certified if s.how == "polished"]
    bounded = [s for s in polished if s.certificate.bound is not None]
    ratios = [(s.certificate.bound or 0.0) / s.true for s in bounded if s.above_rounding]
    LOG.info("bound over error, %d polished states: %s", len(ratios), _spread(ratios))
    assert len(bounded) > 0.9 * len(polished)
    assert len(ratios) > 500
    assert np.median(ratios) <= 1.2
    reached = [s.passes for s in polished if s.certificate.left <= 1e-6 * s.size]
    LOG.info("passes to 1e-6 or better: %s", _spread([float(p) for p in reached]))


def _spread(values: list[float]) -> str:
    return " ".join(f"{mark:.2f}" for mark in np.percentile(values, [0, 50, 90, 99, 100]))
