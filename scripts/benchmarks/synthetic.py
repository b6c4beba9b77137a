"""Synthetic training data and models, the same for every run of a seed."""

from __future__ import annotations

import numpy as np

from consumers.log.base import Producer, Reader
from consumers.registration import TrainingData, register
from engine.objective import Array, Kind
from engine.store.head import ModelConfig
from engine.store.store import ModelStore

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


def model_id(index: int) -> str:
    """Return the id of a model."""
    return f"model-{index}"


def register_model(
    store: ModelStore,
    producer: Producer,
    reader: Reader,
    name: str,
    kind: Kind,
    n: int,
    d: int,
    seed: int,
) -> None:
    """Register a synthetic model: d columns (no intercept), method pru."""
    X, y = matrices(kind, n, d, seed)
    features = tuple(f"feature_{column}" for column in range(d))
    config = ModelConfig(
        model_id=name,
        kind=kind,
        method="pru",
        ridge=RIDGE,
        fit_intercept=False,
        feature_names=features,
        target_names=("target",),
        error_budget=NO_BUDGET,
    )
    ids = tuple(row_id(index) for index in range(n))
    register(store, producer, reader, config, TrainingData(ids, X, y, features, ("target",), {}))
