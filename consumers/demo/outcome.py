"""What a run of the demo has seen: plain values, which `checks`, `report` and `plot` read."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from lethe.consumers.contract.events import Parameters, Version
from lethe.consumers.demo.scenario import Request
from lethe.consumers.demo.subscriber import SeenDeadLetter, SeenReceipt
from lethe.engine.fit.objective import Array


@dataclass(frozen=True, slots=True)
class Observed:
    """A version next to a model that was trained from scratch on the same rows.

    Attributes
    ----------
    version, parameters, theta
        As published; theta is (d + 1,), the intercept last.
    distance
        |theta - retrained theta|.
    rounding
        How far the retrained theta itself may be from the optimum.
    rows_live
        Live rows as the requests say, not as the version does.
    newly_deleted
        Rows that this version has forgotten.
    retrain_seconds
        What retraining took.
    ordered
        Why its refresh was ordered; None: it is no refresh.
    """

    version: Version
    parameters: Parameters
    theta: Array
    distance: float
    rounding: float
    rows_live: int
    newly_deleted: int
    retrain_seconds: float
    ordered: str | None = None

    @property
    def error(self) -> float | None:
        """The published error, relative; None where it is unknown."""
        return self.version.error.relative

    @property
    def budget(self) -> float:
        """The error budget, relative."""
        return self.version.error.budget

    @property
    def true_error(self) -> float:
        """The distance to retraining, relative to the same size as the published error."""
        return self._relative(self.distance)

    @property
    def bound(self) -> float | None:
        """The published bound, relative, or None."""
        bound = self.version.error.bound
        return None if bound is None else self._relative(bound)

    def _relative(self, distance: float) -> float:
        size = float((self.theta @ self.theta) ** 0.5)
        return distance / size if size > 0 else 0.0


@dataclass(slots=True)
class Outcome:
    """Everything that a run has seen.

    Attributes
    ----------
    versions
        Each model's versions, in order.
    requests
        All requests, in the order of sending.
    receipts, dead_letters
        As read from their topics, in order.
    leftovers
        Each model's deleted rows whose features still lie somewhere in the server.
    register_seconds
        Fitting, precomputing, storing and publishing, by model.
    seconds
        The whole run.
    """

    versions: dict[str, list[Observed]]
    requests: Sequence[Request] = ()
    receipts: list[SeenReceipt] = field(default_factory=list)
    dead_letters: list[SeenDeadLetter] = field(default_factory=list)
    leftovers: Mapping[str, Sequence[str]] = field(default_factory=dict)
    register_seconds: dict[str, float] = field(default_factory=dict)
    seconds: float = 0.0

    def refreshes(self, model_id: str) -> list[Observed]:
        """Return the versions of a model that a refresh made."""
        return [seen for seen in self.versions[model_id] if seen.version.refresh is not None]
