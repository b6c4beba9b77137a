"""The exact leave-k-out answer from dual rows, at the PRU's cost (docs/algebra.md)."""

from __future__ import annotations

from lethe.engine.deletion.methods.method import Published, Step


class Exact:
    """Publish theta_exact: retraining for a linear model, the Newton step for a logistic one.

    Equivalent to ``scipy.linalg.solve(A_live, X_live.T @ y_live)`` for a linear model, at
    O(k^2 d + k^3) in place of O(n d^2).
    """

    name = "exact"

    def publish(self, step: Step) -> Published:
        """Return theta_exact. Cost O(1)."""
        return Published(step.theta_exact, step.stream.Q.array[:0])
