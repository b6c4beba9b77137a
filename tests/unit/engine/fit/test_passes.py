"""Rows that are read in blocks are fitted and certified as those in memory are."""

from __future__ import annotations

import numpy as np
import pytest

from lethe.engine.errors import InvalidData
from lethe.engine.fit import fit as fit_module
from lethe.engine.fit.fit import fit
from lethe.engine.fit.objective import Array, Kind, Objective, Rows, norm
from lethe.engine.fit.precompute import certify_afresh
from lethe.engine.fit.total import TotalLoss
from lethe.engine.refresh.blockwise import precompute_blocks
from tests.support.families import extremes, families, make_any
from tests.support.oracles import retrain_wide
from tests.support.row_files import InBlocks

CASES = [
    *[("linear", family) for family in (*families("linear"), *extremes("linear"))],
    *[("logistic", family) for family in (*families("logistic"), *extremes("logistic"))],
]


def given(kind: str, family: str) -> tuple[Objective, Rows]:
    data = make_any(family, kind)
    rows = Rows(data.design, data.y.reshape(len(data.y), -1), data.weight)
    return Objective(Kind(kind), data.penalty), rows


@pytest.mark.parametrize(("kind", "family"), CASES)
@pytest.mark.parametrize("size", [1, 7, 1000])
def test_a_precomputation_in_passes_is_that_of_rows_in_memory(
    kind: str, family: str, size: int
) -> None:
    objective, rows = given(kind, family)
    try:
        whole = precompute_blocks(objective, rows)
    except Exception as error:
        with pytest.raises(type(error)):
            precompute_blocks(objective, InBlocks(rows, size))
        return

    made = precompute_blocks(objective, InBlocks(rows, size))

    assert whole.certificate.bound is not None
    assert made.certificate.bound is not None
    assert norm(made.theta - whole.theta) <= made.certificate.bound + whole.certificate.bound
    assert made.certificate.bound <= 2 * whole.certificate.bound
    assert whole.certificate.bound <= 2 * made.certificate.bound
    assert made.dual_error == pytest.approx(whole.dual_error, rel=1.0)
    assert made.dual_rows.shape == (0, whole.dual_rows.shape[1])
    np.testing.assert_allclose(made.factor.L, whole.factor.L, rtol=1e-6, atol=1e-9)


@pytest.mark.parametrize(("kind", "family"), CASES)
def test_the_bound_of_a_fit_in_passes_holds(kind: str, family: str) -> None:
    data = make_any(family, kind)
    objective, rows = given(kind, family)
    try:
        made = precompute_blocks(objective, InBlocks(rows, 16))
    except InvalidData:
        return
    truth = retrain_wide(kind, data.design, data.y, data.weight, data.penalty)
    assert made.certificate.bound is not None
    assert float(np.linalg.norm(made.theta - truth)) <= made.certificate.bound


def test_a_step_of_newtons_method_is_a_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    """With one that checks the rows, and one more if the last step is not kept."""
    objective, rows = given("logistic", "benign")
    blocks, steps, step = InBlocks(rows, 64), list[float](), fit_module._newton_step

    def counted(loss: TotalLoss, theta: Array) -> tuple[Array, Array]:
        steps.append(1.0)
        return step(loss, theta)

    monkeypatch.setattr(fit_module, "_newton_step", counted)
    fit(objective, blocks)
    assert len(steps) > 2
    assert len(steps) < blocks.passes <= len(steps) + 2


@pytest.mark.parametrize("moved", [0.0, 1e-3])
def test_any_point_is_certified_in_passes(moved: float) -> None:
    objective, rows = given("logistic", "benign")
    theta: Array = fit(objective, rows).theta + moved
    whole = certify_afresh(objective, rows, theta)
    made = certify_afresh(objective, InBlocks(rows, 16), theta)
    assert made.argument == whole.argument
    assert made.left == pytest.approx(whole.left, rel=1e-6, abs=1e-14)


def test_a_number_that_is_not_finite_is_refused_in_whichever_block() -> None:
    objective, rows = given("logistic", "benign")
    rows.X[37, 1] = np.nan
    with pytest.raises(InvalidData, match="is not a finite number"):
        fit(objective, InBlocks(rows, 16))
