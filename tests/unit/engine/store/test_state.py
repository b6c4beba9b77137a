"""What a model's stored configuration refuses."""

from __future__ import annotations

import pytest
from pydantic import ValidationError

from lethe.engine.fit.objective import Kind
from lethe.engine.store.layout.config import ModelConfig


@pytest.mark.parametrize("kind", [Kind.POISSON, Kind.SOFTMAX])
def test_the_service_refuses_the_kinds_that_the_library_alone_has(kind: Kind) -> None:
    with pytest.raises(ValidationError, match=f"{kind} models are in the library only"):
        ModelConfig(
            model_id="m",
            kind=kind,
            method="exact",
            ridge=1.0,
            fit_intercept=True,
            feature_names=("a",),
            target_names=("y",),
            error_budget=0.01,
        )
