"""Synthetic training data and models, the same for every run of a seed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

import lethe.consumers.registration.candidate
from lethe.consumers.registration.register import Registrar, TrainingData
from lethe.engine.fit.objective import Array, Kind
from lethe.engine.store.state import ModelConfig

RIDGE = 1.0
NO_BUDGET = 1e6
"""An error budget that nothing exceeds: no refresh is ordered while a step is measured."""


def matrices(kind: Kind, n: int, d: int, seed: int) -> tuple[Array, Array]:
    """Return n x d features and n x 1 targets of a noisy linear or logistic model."""
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, d))
    margin = X @ rng.standard_normal((d, 1)) / np.sqrt(d)
    if kind is Kind.LINEAR:
        return X, margin + 0.5 * rng.standard_normal((n, 1))
    y: Array = (rng.random((n, 1)) < 1.0 / (1.0 + np.exp(-2.0 * margin))).astype(np.float64)
    return X, y


def row_id(index: int) -> str:
    """Return the id of a row."""
    return f"row-{index:07d}"


def request_id(index: int) -> str:
    """Return the id of a request."""
    return f"request-{index:07d}"


def model_id(index: int) -> str:
    """Return the id of a model."""
    return f"model-{index}"


def register_model(
    registrar: Registrar, name: str, kind: Kind, n: int, d: int, seed: int, method: str = "pru"
) -> None:
    """Register a synthetic model of d columns (no intercept)."""
    X, y = matrices(kind, n, d, seed)
    features = tuple(f"feature_{column}" for column in range(d))
    config = ModelConfig(
        model_id=name,
        kind=kind,
        method=method,
        ridge=RIDGE,
        fit_intercept=False,
        feature_names=features,
        target_names=("target",),
        error_budget=NO_BUDGET,
    )
    ids = tuple(row_id(index) for index in range(n))
    registrar.register(config, TrainingData(ids, X, y, features, ("target",), {}))


def share_precomputation() -> None:
    """Precompute once for models of the same data: this process's registrations share the result.

    Dozens of models are registered so that each round has fresh ones; what is measured comes later.
    """
    precompute: Callable[..., Any] = lethe.consumers.registration.candidate._precompute
    found: dict[str, Any] = {}

    def once(config: ModelConfig, data: TrainingData) -> Any:
        key = config.model_copy(update={"model_id": "any"}).model_dump_json()
        if key not in found:
            found[key] = precompute(config, data)
        return found[key]

    lethe.consumers.registration.candidate._precompute = once
