"""A library model that is told of random changes, beside the table of what is live."""

from __future__ import annotations

from typing import Any

import numpy as np

from lethe import LinearModel, LogisticModel
from tests.support.oracles import retrain_wide


class Table:
    """What is live, by id, and a model that is told of every change."""

    def __init__(self, kind: str, seed: int = 0, n: int = 60, p: int = 6, **options: Any) -> None:
        self.kind, self.p = kind, p
        self.rng = np.random.default_rng(seed)
        self.coefficients = self.rng.standard_normal(p)
        self.live: dict[str, tuple[np.ndarray, float]] = {}
        self.names = 0
        made = LinearModel if kind == "linear" else LogisticModel
        self.model = made(ridge=1.0, **options)
        names, X, y = self.draw(n)
        self.model.fit(X, y, ids=names)
        self.live |= {name: (X[i], y[i]) for i, name in enumerate(names)}

    def draw(self, k: int) -> tuple[list[str], np.ndarray, np.ndarray]:
        X = self.rng.standard_normal((k, self.p))
        u = X @ self.coefficients + self.rng.standard_normal(k)
        y = u if self.kind == "linear" else (u > 0).astype(np.float64)
        self.names += k
        return [f"r{self.names - k + i}" for i in range(k)], X, y

    def some(self, k: int) -> list[str]:
        return [str(name) for name in self.rng.permutation(list(self.live))[:k]]

    def act(self, method: str) -> None:
        what, k = self.rng.integers(3), int(self.rng.integers(1, 4))
        if what == 0:
            names, X, y = self.draw(k)
            assert self.model.insert(X, y, names, method=method).rows == tuple(names)
        elif what == 1:
            names, (_, X, y) = self.some(k), self.draw(k)
            self.model.correct(X[: len(names)], y[: len(names)], names, method=method)
        else:
            names = self.some(k)
            self.model.delete(names, method)
            for name in names:
                del self.live[name]
            return
        self.live |= {name: (X[i], y[i]) for i, name in enumerate(names)}

    def retrained(self) -> np.ndarray:
        X = np.array([x for x, _ in self.live.values()])
        y = np.array([[target] for _, target in self.live.values()])
        design = np.hstack([X, np.ones((len(X), 1))])
        penalty = np.append(np.ones(self.p), 0.0)
        return retrain_wide(self.kind, design, y, np.ones(len(X)), penalty)

    def distance(self) -> float:
        theta = np.append(self.model.theta, self.model.intercept)[:, None]
        return float(np.linalg.norm((theta - self.retrained()).astype(np.float64)))
