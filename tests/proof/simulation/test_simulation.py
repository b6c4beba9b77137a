"""Many seeds of the simulation, in processes whose every order is fixed."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.support.servers import ROOT

SEEDS = 1000
"""Of each half; two halves, so that two test processes share them."""

JOBS = 3
"""Processes of each: one alone waits for the server's answers half of the time."""


@pytest.mark.slow
def test_10_seeds_break_no_promise() -> None:
    """The same for as many seeds as `make test` has time for."""
    _simulate("--first=0", "--seeds=10", "--jobs=1")


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("half", [0, 1])
def test_no_seed_breaks_a_promise(half: int) -> None:
    """Given faults of every kind, when a run heals, then every promise holds.

    Every kind of fault and of event (`tests.proof.simulation.tally`) must have happened: none is
    lost in silence.
    """
    _simulate(f"--first={half * SEEDS}", f"--seeds={SEEDS}", f"--jobs={JOBS}", "--every-kind")


def _simulate(*options: str) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "tests.proof.simulation", *options],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
