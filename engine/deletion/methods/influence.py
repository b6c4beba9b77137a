"""The influence method, the paper's equation (2), from dual rows."""

from __future__ import annotations

from lethe.engine.deletion.methods.method import Published, Step
from lethe.engine.fit import blocks


class Influence:
    """Publish theta - [grad^2 L_full]^-1 grad L_minus_k = theta + W^T e.

    The sum over a stream is that of the union: errors are taken at the reference point and the
    Hessian stays that of the precomputation. As published the method costs O(d^2) (A^-1 times a
    gradient); with stored dual rows it is O(k d).
    """

    name = "influence"

    def publish(self, step: Step) -> Published:
        """Return the published theta moved by W^T e. Cost O(k d m)."""
        published = step.stream.published
        moved = blocks.weighted_sum(step.W_base, step.error_at_reference(), len(published))
        return Published(published + moved, step.stream.Q.array[:0])
