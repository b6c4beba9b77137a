"""The oracle of `lethe verify`: how far it says that it may be off is how far it is at most."""

from __future__ import annotations

import numpy as np
import pytest

from lethe.consumers.audit import oracle as oracle_module
from lethe.consumers.audit.oracle import refit
from lethe.engine.errors import NotConverged
from lethe.engine.fit.fit import fit
from lethe.engine.fit.objective import Array, Kind, Objective, Rows, norm
from tests.support.families import extremes, families, make_any
from tests.support.oracles import retrain, retrain_linear_wide, retrain_logistic
from tests.support.row_files import InBlocks


def rows(kind: Kind, *, scales: Array, n: int, m: int = 1, seed: int = 3) -> tuple[Rows, Array]:
    """Return weighted rows with an intercept column, and a penalty that leaves it free."""
    draw = np.random.default_rng(seed)
    X = np.hstack([draw.standard_normal((n, len(scales))) * scales, np.ones((n, 1))])
    y = X @ (draw.standard_normal((X.shape[1], m)) / np.append(scales, 1.0)[:, None])
    y = y + draw.standard_normal(y.shape)
    if kind is Kind.LOGISTIC:
        y = (y > np.median(y)).astype(np.float64)  # one class alone would have no minimiser
    penalty = np.append(np.full(len(scales), 0.5), 0.0)
    return Rows(X, y, draw.uniform(0.5, 2.0, n)), penalty


SCALES = {"benign": np.ones(6), "badly scaled": np.logspace(-2, 2, 6)}


@pytest.mark.parametrize("scales", SCALES.values(), ids=SCALES.keys())
@pytest.mark.parametrize("m", [1, 3])
def test_a_linear_refit_is_within_its_residual(scales: Array, m: int) -> None:
    given, penalty = rows(Kind.LINEAR, scales=scales, n=200, m=m)

    oracle = refit(Kind.LINEAR, penalty, given)

    truth = retrain_linear_wide(given.X, given.y, given.weight, penalty)
    distance = float(np.linalg.norm(oracle.theta - truth))
    assert distance <= oracle.residual
    assert oracle.residual <= 1e-10 * norm(oracle.theta)


@pytest.mark.parametrize("family", [*families("linear"), *extremes("linear")])
@pytest.mark.parametrize("size", [1, 7, 1000])
def test_a_linear_refit_by_blocks_is_that_of_all_rows_in_three_passes(
    family: str, size: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(oracle_module, "_STACKED", 8)  # of families of some 100 rows
    data = make_any(family, "linear")
    given = InBlocks(Rows(data.design, data.y.reshape(len(data.y), -1), data.weight), size)

    oracle = refit(Kind.LINEAR, data.penalty, given)

    truth = retrain_linear_wide(data.design, given.rows.y, data.weight, data.penalty)
    assert float(np.linalg.norm(oracle.theta - truth)) <= oracle.residual
    assert oracle.residual <= 1e-15 * norm(oracle.theta)
    assert given.passes <= 3


@pytest.mark.parametrize("scales", SCALES.values(), ids=SCALES.keys())
@pytest.mark.parametrize("n", [200, 4])
def test_a_logistic_refit_is_that_of_other_code(scales: Array, n: int) -> None:
    given, penalty = rows(Kind.LOGISTIC, scales=scales, n=n)

    oracle = refit(Kind.LOGISTIC, penalty, given)

    truth = retrain_logistic(given.X, given.y, given.weight, penalty)
    assert norm(oracle.theta - truth.reshape(oracle.theta.shape)) <= 1e-9 * norm(oracle.theta)
    assert oracle.residual <= 1e-9 * norm(oracle.theta)


def test_classes_are_refitted_one_by_one() -> None:
    given, penalty = rows(Kind.LOGISTIC, scales=np.ones(4), n=200)
    labels = np.random.default_rng(8).integers(0, 3, 200)
    several = Rows(given.X, np.eye(3)[labels], given.weight)

    oracle = refit(Kind.LOGISTIC, penalty, several)

    truth = retrain("logistic", several.X, several.y, several.weight, penalty)
    assert norm(oracle.theta - truth) <= oracle.residual + 1e-12 * norm(truth)
    assert oracle.residual <= 1e-9 * norm(oracle.theta)


def test_the_krylov_method_serves_wide_models() -> None:
    given, penalty = rows(Kind.LOGISTIC, scales=np.ones(450), n=60)

    oracle = refit(Kind.LOGISTIC, penalty, given)

    assert oracle.method == "scipy.optimize trust-krylov"
    fitted = fit(Objective(Kind.LOGISTIC, penalty), given)
    assert norm(oracle.theta - fitted.theta) <= 1e-9 * norm(fitted.theta)


def test_a_refit_that_does_not_converge_is_no_oracle() -> None:
    given, penalty = rows(Kind.LOGISTIC, scales=np.ones(3), n=20)
    one_class = Rows(given.X, np.ones_like(given.y), given.weight)

    with pytest.raises(NotConverged, match="has not converged"):
        refit(Kind.LOGISTIC, penalty, one_class)
