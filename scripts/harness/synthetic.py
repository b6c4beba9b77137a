"""Synthetic training data for what takes as long on any data."""

from __future__ import annotations

import numpy as np

from lethe.engine.fit.objective import Array, Kind, Rows


def matrices(kind: Kind, n: int, d: int, seed: int) -> tuple[Array, Array]:
    """Return n x d features and n x 1 targets of a noisy linear or logistic model."""
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, d))
    margin = X @ rng.standard_normal((d, 1)) / np.sqrt(d)
    if kind is Kind.LINEAR:
        return X, margin + 0.5 * rng.standard_normal((n, 1))
    y: Array = (rng.random((n, 1)) < 1.0 / (1.0 + np.exp(-2.0 * margin))).astype(np.float64)
    return X, y


def noisy_rows(kind: Kind, n: int, d: int, seed: int) -> Rows:
    """Return the same as rows of weight 1."""
    return Rows(*matrices(kind, n, d, seed), np.ones(n))
