"""The drift audit: what holds passes, and what is damaged anywhere does not."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from lethe.engine import RefreshSize
from lethe.engine.deletion.correction import Correction
from lethe.engine.error.drift import RESIDUAL, Drift, audit
from lethe.engine.fit.objective import Rows
from tests.support.battery import Model, RawStream
from tests.support.families import Array, extremes, families

TOLERATED = 0.25 * 0.01
"""Of |theta|: what a worker tolerates of a logistic model with the default budget."""


class Audited(RawStream):
    """A stream that can be audited as it is, or with something damaged."""

    def left(self) -> tuple[Rows, Array]:
        return self._left()

    def audit(self) -> Drift:
        rows, W = self.left()
        size = float(np.linalg.norm(self.stream.published))
        return audit(self.generation, self.stream, self.factor, rows, W, tolerated=TOLERATED * size)


def halfway(kind: str, family: str = "benign") -> Audited:
    started = Model(kind, kind).started(family)
    run = Audited(started)
    run.delete(started.data.deleted[: len(started.data.deleted) // 2], "pru")
    return run


@pytest.mark.parametrize("kind", ["linear", "logistic"])
def test_a_sound_stream_passes_in_every_family_after_every_size_of_refresh(kind: str) -> None:
    worst = 0.0
    for family in families(kind) + extremes(kind):
        for size in (None, *RefreshSize):
            run = halfway(kind, family)
            if size is not None:
                run.refresh(size)
            deleted = Model(kind, kind).started(family).data.deleted
            run.delete(deleted[len(deleted) // 2 :], "pru")
            drift = run.audit()
            assert drift.fault is None, (family, size)
            worst = max(worst, drift.inverse, drift.dual_rows)
    assert worst <= 1e-3 * RESIDUAL  # so that the limit is not near what is sound


def damaged_v(run: Audited) -> None:
    V = run.stream.V.array.copy()
    V[3] *= 1 + 1e-4
    run.stream = run.stream._replace(V=Correction.of(V))


def missing_v(run: Audited) -> None:
    run.stream = run.stream._replace(V=Correction.of(run.stream.V.array[:-1]))


def damaged_factor(run: Audited) -> None:
    L = run.factor.L.copy()
    L[2, 2] *= 1 + 1e-6
    run.factor = replace(run.factor, L=L)


def not_a_number(run: Audited) -> None:
    run.stream = run.stream._replace(theta_exact=run.stream.theta_exact * np.nan)


def damaged_answer(run: Audited) -> None:
    theta = run.stream.theta_exact.copy()
    theta[1] *= 1.2
    run.stream = run.stream._replace(theta_exact=theta)


@pytest.mark.parametrize("kind", ["linear", "logistic"])
@pytest.mark.parametrize(
    ("damage", "told"),
    [
        (damaged_v, "V does not match the live rows"),
        (missing_v, "V does not match the live rows"),
        (damaged_factor, "the factor or dual rows are damaged"),
        (damaged_answer, "the exact answer is off by"),
        (not_a_number, "the exact answer is off by nan"),
    ],
)
def test_damage_is_found_and_named(kind: str, damage: Callable[[Audited], None], told: str) -> None:
    run = halfway(kind)
    assert run.audit().fault is None
    damage(run)
    assert told in str(run.audit().fault)


@pytest.mark.parametrize("kind", ["linear", "logistic"])
def test_a_live_row_that_changed_is_found(kind: str) -> None:
    run = halfway(kind)
    rows, W = run.left()
    rows.X[5, 2] += 1e-3
    drift = audit(run.generation, run.stream, run.factor, rows, W, tolerated=TOLERATED)
    assert drift.fault is not None
    assert drift.inverse > 100 * RESIDUAL  # seen whether or not the row is among the probes


def test_a_linear_answer_is_held_to_its_bound_and_a_logistic_one_to_its_estimate() -> None:
    for kind, tolerated in (("linear", False), ("logistic", True)):
        run = halfway(kind)
        theta = run.stream.theta_exact.copy()
        theta[1] += 1e-4 * np.linalg.norm(theta)
        run.stream = run.stream._replace(theta_exact=theta)
        assert (run.audit().fault is None) is tolerated
