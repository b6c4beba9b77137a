"""Guards that have no module of their own (docs/guards.md has the table)."""

from __future__ import annotations

import numpy as np
import pytest
from threadpoolctl import threadpool_limits

from lethe.engine import LinearModel, LogisticModel
from lethe.engine.errors import IllConditioned
from tests.support.battery import Model, RawStream
from tests.support.families import make
from tests.support.oracles import relative, retrain


@pytest.mark.parametrize("method", ["pru", "exact", "influence"])
def test_a_step_that_overflows_is_refused_and_the_state_before_stands(method: str) -> None:
    """Leverages are finite and the errors are not: no NaN may reach what is published."""
    started = Model("linear", "linear").started("benign")
    run = RawStream(started)
    far = np.full_like(run.stream.theta_exact, 1e308)
    run.stream = before = run.stream._replace(theta_exact=far)
    with np.errstate(all="ignore"), pytest.raises(IllConditioned, match="not a finite number"):
        run.delete(started.data.deleted[:3], method)
    assert run.stream is before
    np.testing.assert_array_equal(before.theta_exact, far)


def test_single_precision_data_are_computed_with_in_double() -> None:
    data = make("benign", "linear")
    X, y = data.X.astype(np.float32), data.y[:, 0].astype(np.float32)
    ids = [str(i) for i in range(len(X))]
    model = LinearModel().fit(X, y, ids=ids)
    for row in data.deleted:
        model.delete([str(row)], method="exact")
    live = data.live(len(data.deleted))
    design = np.hstack([X.astype(np.float64), np.ones((len(X), 1))])[live]
    wide = y.astype(np.float64)[live, None]
    truth = retrain("linear", design, wide, np.ones(len(wide)), data.penalty)
    assert model.theta.dtype == np.float64
    assert relative(np.append(model.theta, model.intercept)[:, None], truth) <= 1e-12


@pytest.mark.parametrize("model", [LinearModel, LogisticModel])
def test_blas_threads_change_the_last_bits_at_most(
    model: type[LinearModel] | type[LogisticModel],
) -> None:
    data = make("benign", "linear" if model is LinearModel else "logistic")
    thetas = []
    for threads in (1, 2):
        with threadpool_limits(threads):
            fitted = model().fit(data.X, data.y[:, 0])
            fitted.delete([str(row) for row in data.deleted])
            thetas.append(fitted.theta)
    assert relative(thetas[0], thetas[1]) <= 1e-12
