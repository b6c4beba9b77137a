"""The interface of a deletion method: what it publishes after a leave-k-out step."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, Protocol

from lethe.engine.deletion.generation import Stream
from lethe.engine.fit.objective import Array


class Step(NamedTuple):
    """One block of deletions or of insertions, after the exact step.

    Attributes
    ----------
    U
        k x d, the rows that were deleted, or inserted.
    W_base
        k x (h d), their dual rows relative to the generation's A_b in each of h blocks.
    error_at_reference
        Returns their errors at the reference point theta_r, k x m; of inserted rows, times -1.
        Cost O(k d m): only a method that needs them calls it.
    theta_exact
        d x m, the running answer with the rows left out.
    stream
        The state before: with the anchor, what is published, and the basis Q.
    """

    U: Array
    W_base: Array
    error_at_reference: Callable[[], Array]
    theta_exact: Array
    stream: Stream


class Published(NamedTuple):
    """What a method publishes.

    Attributes
    ----------
    theta
        d x m, the published parameters.
    basis_rows
        r x d orthonormal rows to append to Q, the basis of the deleted span (r may be 0).
    """

    theta: Array
    basis_rows: Array


class DeletionMethod(Protocol):
    """A rule for what to publish. Pure: no state of its own."""

    @property
    def name(self) -> str:
        """The name used at registration and in versions."""
        ...

    def publish(self, step: Step) -> Published:
        """Return what to publish after ``step``."""
        ...
