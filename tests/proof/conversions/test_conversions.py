"""Each setting of scikit-learn's estimators is converted rightly, or refused by name."""

from __future__ import annotations

import pytest

from tests.proof.conversions.judge import judge
from tests.proof.conversions.settings import settings

EVERY = 8
"""One in so many is judged by `make test`; all are, by `make test-all`."""


@pytest.mark.parametrize(
    "part", [0, *(pytest.param(part, marks=pytest.mark.thorough) for part in range(1, EVERY))]
)
def test_a_setting_is_converted_rightly_or_refused_by_name(part: int) -> None:
    verdicts = {one.name: judge(one) for one in settings()[part::EVERY]}
    assert {name: v.fault for name, v in verdicts.items() if v is not None and v.fault} == {}
    assert sum(v is not None and v.refused is None for v in verdicts.values()) >= 15
    assert sum(v is not None and v.refused is not None for v in verdicts.values()) >= 8


def test_at_least_three_hundred_settings_are_judged() -> None:
    assert len(settings()) >= 320
