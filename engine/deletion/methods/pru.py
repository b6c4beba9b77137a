"""The projective residual update (the paper's Algorithm 1, Theorems 1 and 6), for a stream.

Theorem 1: theta_pru = theta_full + proj_span(x_1..x_k)(theta_LKO - theta_full); for logistic
models the step projected is Newton's. One batch after another, span and anchor are carried on:

    theta_pru = theta_a + Q^T Q (theta_exact - theta_a),

Q an orthonormal basis of the span of all rows deleted since the anchor theta_a. That is the
one-shot PRU of their union, whatever the batches were, and its distance to theta_exact is known
(docs/algebra.md, A stream). The paper's formula repeated with a stale hat matrix diverges.
"""

from __future__ import annotations

from lethe.engine.deletion.methods.method import Published, Step
from lethe.engine.deletion.span import extend_basis, project


class ProjectiveResidualUpdate:
    """Publish the projection of the exact step onto the span of the deleted rows.

    The minimum-norm solution ``scipy.linalg.lstsq(U, U @ delta)`` gives the same step.
    """

    name = "pru"

    def publish(self, step: Step) -> Published:
        """Return the projected answer. Cost O(k r d + k^2 d), r rows in Q."""
        anchor, Q = step.stream.anchor, step.stream.Q.array
        new = extend_basis(Q, step.U)
        moved = step.theta_exact - anchor
        theta = anchor + project(new, moved)
        return Published(theta + project(Q, moved) if len(Q) else theta, new)
