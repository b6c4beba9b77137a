"""The mini-batch gradient descent that HF-OCU and PrIU both update: logistic loss with a ridge."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from evaluation.data import Array, Index, Table

Schedule = tuple[Index, ...]
"""The rows of each step's batch."""


@dataclass(frozen=True, slots=True)
class Descent:
    """Steps theta <- theta - rate (mean gradient of the batch + ridge / n theta).

    Attributes
    ----------
    rate
        Step size; below 2 / L, L the largest eigenvalue of a batch's Hessian.
    ridge
        Of the mean loss: the table's over its number of rows.
    schedule
        Batches. A deleted row leaves its batches, and each batch's mean keeps its divisor.
    batch
        That divisor.
    """

    rate: float
    ridge: float
    schedule: Schedule
    batch: int

    @classmethod
    def of(cls, table: Table, rows: Index, epochs: int, batch: int, seed: int) -> Descent:
        """Return a schedule of whole epochs, each in its own order, with a safe rate."""
        rng = np.random.default_rng([seed, 5])
        orders = (rng.permutation(rows) for _ in range(epochs))
        schedule = tuple(
            order[i : i + batch]
            for order in orders
            for i in range(0, len(order) - batch + 1, batch)
        )
        X = table.X[rows]
        stiffest = float(np.linalg.eigvalsh(X.T @ X)[-1]) / len(rows) / 4
        return cls(1.0 / (stiffest + 1.0), table.ridge / len(rows), schedule, batch)

    def train(self, table: Table, without: Index | None = None) -> Array:
        """Return theta, shape (d,), after all steps; ``without`` leaves rows out of the batches."""
        out = np.zeros(len(table.y), dtype=bool)
        if without is not None:
            out[without] = True
        theta = np.zeros(table.X.shape[1])
        for rows in self.schedule:
            kept = rows[~out[rows]]
            theta = theta - self.rate * (self.gradient(table, kept, theta) + self.ridge * theta)
        return theta

    def gradient(self, table: Table, rows: Index, theta: Array) -> Array:
        """Return the sum of the rows' gradients over the batch size."""
        X = table.X[rows]
        mean = 1 / (1 + np.exp(-(X @ theta)))
        slope: Array = X.T @ (mean - table.y[rows]) / self.batch
        return slope
