"""`make exact`, small: after any changes, the bytes are those of a fresh fit."""

from __future__ import annotations

import textwrap

import numpy as np
import pytest

from lethe import LinearModel
from tests.proof.exact.families import FAMILIES
from tests.proof.exact.machines import MACHINES, digest_elsewhere
from tests.proof.exact.pipelines import PIPELINES
from tests.proof.exact.stream import run_all
from tests.support.servers import ROOT


@pytest.mark.parametrize("name", [*FAMILIES, PIPELINES])
def test_mixed_changes_leave_the_bytes_of_a_fresh_fit(name: str) -> None:
    found = run_all(name, range(50_000, 50_002), 60)
    assert not found.wrong
    assert found.same == found.streams == 2
    assert found.equal == found.in_fractions
    assert found.false == found.refused == 0
    assert found.changes + found.slips >= 60


def test_threads_and_kinds_of_cpu_leave_the_same_bytes() -> None:
    found = [digest_elsewhere(environment, range(1)) for environment in MACHINES.values()]
    assert len({machine.rounded for machine in found}) == 1
    assert len({machine.not_rounded for machine in found}) > 1


def test_the_lines_that_check_it_are_right() -> None:
    page = (ROOT / "docs/exact.md").read_text(encoding="utf-8")
    lines = page.split("must have been published:\n")[1].split("\n`float` of")[0]
    rng = np.random.default_rng(0)
    given = {
        "LinearModel": LinearModel,
        "X": rng.normal(size=(60, 4)),
        "y": rng.normal(size=60),
        "ids": [f"u{i}" for i in range(60)],
    }
    exec(textwrap.dedent(lines), given)  # noqa: S102 (the docs' own)
    assert "minimiser" in given
