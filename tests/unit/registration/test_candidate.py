"""What registration makes of its data before anything is stored."""

from __future__ import annotations

import numpy as np
import pytest

from lethe.consumers.registration.candidate import _precompute
from lethe.consumers.registration.error_budget import check_error_budget
from lethe.consumers.registration.training_data import TrainingData
from lethe.engine.errors import InvalidData
from lethe.engine.fit.objective import Kind
from lethe.engine.store.layout.config import ModelConfig
from tests.support.states import started


@pytest.mark.parametrize("kind", [Kind.LINEAR, Kind.LOGISTIC])
def test_the_worker_is_told_the_same_when_it_registers(kind: Kind) -> None:
    config = ModelConfig(
        model_id="m",
        kind=kind,
        method="pru",
        ridge=1e-300,
        fit_intercept=False,
        feature_names=("a", "b", "c"),
        target_names=("y",),
        error_budget=0.01,
    )
    rng = np.random.default_rng(0)
    X, y = rng.standard_normal((40, 3)), rng.integers(0, 2, (40, 1)).astype(np.float64)
    ids = tuple(str(i) for i in range(len(X)))
    for scale, message in ((1e-150, "too small"), (1e160, "too large")):
        data = TrainingData(ids, X * scale, y, config.feature_names, ("y",), {})
        with pytest.raises(InvalidData, match=f"{message} to compute with: .*; rescale"):
            _precompute(config, data)


def test_a_fit_of_unknown_error_is_over_its_budget() -> None:
    state = started("benign", "linear")
    config = ModelConfig(
        model_id="m",
        kind=Kind.LINEAR,
        method="pru",
        ridge=1.0,
        fit_intercept=True,
        feature_names=("a",),
        target_names=("y",),
        error_budget=0.01,
    )
    check_error_budget(config, state.generation, state.stream)
    with pytest.raises(InvalidData, match="more than the error budget"):
        check_error_budget(config, state.generation, state.stream._replace(residual=np.nan))
