"""Tables whose rows come and go: ordinary ones, and those that were made to be hard."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

from lethe.engine.fit.objective import Array

Draw: TypeAlias = Callable[[np.random.Generator, int, int], tuple[Array, Array]]


@dataclass(frozen=True, slots=True)
class Family:
    """Tables of one kind.

    Attributes
    ----------
    draw
        Returns k x d features and (k,) targets.
    ordinary
        Whether nothing about them was made to need rational arithmetic.
    weighted
        Whether rows have weights, 1e-8 to 1e8: few rows then outweigh all others.
    most
        Features at most.
    few
        Whether there are fewer rows than features.
    """

    draw: Draw
    ordinary: bool = True
    weighted: bool = False
    most: int = 12
    few: bool = False


def _normal(rng: np.random.Generator, k: int, d: int) -> tuple[Array, Array]:
    X = rng.normal(size=(k, d))
    y = (X * np.linspace(-1.0, 2.0, d)).sum(axis=1)  # not by BLAS: tables are the same anywhere
    return X, y + rng.normal(size=k)


def _whole(rng: np.random.Generator, k: int, d: int) -> tuple[Array, Array]:
    X = rng.integers(0, 100, size=(k, d)).astype(np.float64)
    return X, X.sum(axis=1) + rng.integers(-9, 10, size=k)


def _float32(rng: np.random.Generator, k: int, d: int) -> tuple[Array, Array]:
    X, y = _normal(rng, k, d)
    return X.astype(np.float32).astype(np.float64), y.astype(np.float32).astype(np.float64)


def _scaled(rng: np.random.Generator, k: int, d: int) -> tuple[Array, Array]:
    X, y = _normal(rng, k, d)
    return X * 10.0 ** np.linspace(-6.0, 6.0, d), y


def _one_hot(rng: np.random.Generator, k: int, d: int) -> tuple[Array, Array]:
    X = np.eye(d)[rng.integers(0, d, size=k)]
    return X, np.round(rng.normal(size=k) * 100.0, 2)


def _long_tailed(rng: np.random.Generator, k: int, d: int) -> tuple[Array, Array]:
    X = np.exp(3.0 * rng.normal(size=(k, d)))
    return X, np.exp(2.0 * rng.normal(size=k))


def _duplicates(rng: np.random.Generator, k: int, d: int) -> tuple[Array, Array]:
    of = np.random.default_rng(0).integers(-2, 3, size=(6, d)).astype(np.float64)
    X = of[rng.integers(0, len(of), size=k)]
    return X, X[:, 0] + rng.integers(0, 3, size=k)


def _collinear(rng: np.random.Generator, k: int, d: int) -> tuple[Array, Array]:
    X = rng.normal(size=(k, 1)) + 1e-7 * rng.normal(size=(k, d))
    return X, X[:, 0] + rng.normal(size=k)


def _constant(rng: np.random.Generator, k: int, d: int) -> tuple[Array, Array]:
    return rng.normal(size=(k, d)), np.full(k, 0.3)


def _signs(rng: np.random.Generator, k: int, d: int) -> tuple[Array, Array]:
    X = rng.choice([-1.0, 0.0, 1.0], size=(k, d), p=[0.1, 0.8, 0.1])
    return X, rng.choice([0.0, 1.0], size=k)


FAMILIES = {
    "normal": Family(_normal),
    "weighted": Family(_normal, weighted=True, ordinary=False),
    "whole numbers": Family(_whole),
    "float32": Family(_float32),
    "scales 1e-6 to 1e6": Family(_scaled),
    "scales and weights": Family(_scaled, weighted=True, ordinary=False),
    "long tails": Family(_long_tailed),
    "fewer rows than features": Family(_normal, few=True),
    "one-hot": Family(_one_hot, ordinary=False),
    "duplicates": Family(_duplicates, ordinary=False),
    "collinear, 1e14": Family(_collinear, ordinary=False),
    "constant target": Family(_constant, ordinary=False),
    "signs": Family(_signs, ordinary=False),
    "40 features": Family(_normal, most=40),
}
