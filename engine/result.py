"""The results of what is asked of a library model: changes, conversions, diagnostics."""

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


@dataclass(frozen=True, slots=True)
class LeaveOneOut:
    """What `leave_one_out` returns: k rows, each left out alone.

    Attributes
    ----------
    ids
        The rows.
    predictions
        (k,) or (k, m), what the model without the row predicts for it: a value, or probabilities
        of label 1 or of each class against the rest.
    residuals
        Target less prediction, of the same shape.
    steps
        (k, d) or (k, d, m), theta without the row less theta, the intercept's change last.
    """

    ids: tuple[str, ...]
    predictions: Array
    residuals: Array
    steps: Array


@dataclass(frozen=True, slots=True)
class GroupInfluence:
    """What `influence` returns: a group of rows left out together.

    Attributes
    ----------
    ids
        The rows.
    step
        (d,) or (d, m), theta without the rows less theta, the intercept's change last.
    cooks_distance
        Of the group, or (m,) of each output.
    """

    ids: tuple[str, ...]
    step: Array
    cooks_distance: Array


MOVED = 1e-3
"""Change of a prediction above which an import says what would have kept it small."""


@dataclass(frozen=True, slots=True)
class Conversion:
    """The estimator that a model was made from, and how far it was from its own optimum.

    Attributes
    ----------
    estimator
        Name of its class.
    distance
        |theta_given - theta*| over coefficients and intercepts; theta* is the model's.
    relative
        The distance over |theta*|.
    largest, mean
        How far predictions of the rows are from the model's: probabilities of a classifier, else in
        standard deviations of the estimator's predictions.
    advice
        What would have brought it closer; empty where nothing would have.
    """

    estimator: str
    distance: float
    relative: float
    largest: float
    mean: float
    advice: str = ""

    def __str__(self) -> str:
        return (
            f"this {self.estimator} was {self.distance:.3g} from its own optimum "
            f"({self.relative:.3g} relative); predictions moved by {self.largest:.2g} at most, "
            f"{self.mean:.2g} on average"
        )

    @property
    def warning(self) -> str | None:
        """What to say if predictions moved by more than `MOVED`; None if not."""
        if self.largest <= MOVED:
            return None
        return f"{self}{self.advice and f'; {self.advice}'}"
