"""The results of deletions, insertions and corrections by the library."""

from __future__ import annotations

from dataclasses import dataclass

from lethe.engine.error.estimate import PublishedError
from lethe.engine.fit.objective import Array


@dataclass(frozen=True, slots=True)
class DeletionResult:
    """What one call of `delete` did.

    Attributes
    ----------
    deleted
        Ids deleted by this call; ids deleted earlier are left out.
    step
        Change of the published theta, (d,) or (d, m), the intercept's change last if there is one.
    error
        The published error after the step.
    bound
        A true bound of it, or None where there is only an estimate.
    """

    deleted: tuple[str, ...]
    step: Array
    error: PublishedError
    bound: float | None


@dataclass(frozen=True, slots=True)
class ChangeResult:
    """What one call of `insert` or `correct` did.

    Attributes
    ----------
    rows
        Ids inserted, or corrected, by this call.
    step
        Change of the published theta, (d,) or (d, m), the intercept's change last if there is one.
    error
        The published error after the step.
    bound
        A true bound of it, or None where there is only an estimate.
    """

    rows: tuple[str, ...]
    step: Array
    error: PublishedError
    bound: float | None
