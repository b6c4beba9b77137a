"""The patterns of `tests.support.tiers` name tests that exist."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.support import tiers
from tests.support.servers import ROOT


@pytest.fixture(scope="module")
def collected() -> list[str]:
    """Every test's id, as pytest names it."""
    command = [sys.executable, "-m", "pytest", "--collect-only", "-q", "-n", "0", "tests"]
    run = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=300, check=True)
    return [line for line in run.stdout.splitlines() if "::" in line]


def test_every_pattern_matches_a_test(collected: list[str]) -> None:
    patterns = {
        *tiers.THOROUGH,
        *(tiers.INTEGRATION + path for path in tiers.ON_KAFKA),
        *(tiers.ACCEPTANCE + path for path in tiers.MAIN_JOB),
    }
    stale = {p for p in patterns if not any(name.startswith(p) for name in collected)}
    assert not stale
    properties = [name for name in collected if name.startswith(tiers.PROPERTIES)]
    assert not {part for part in tiers.BATTERY if not any(part in name for name in properties)}


def test_each_tier_has_tests_of_every_kind(collected: list[str]) -> None:
    for kafka in (False, True):
        thorough = [name for name in collected if tiers.is_thorough(name, kafka=kafka)]
        assert 0 < len(thorough) < len(collected)
