"""What a run of the demo has observed: plain values for `checks`, `report` and `plot`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from lethe.consumers.contract.events import Parameters, Version
from lethe.consumers.demo.scenario import Request
from lethe.consumers.demo.subscriber import SeenDeadLetter, SeenReceipt
from lethe.engine.fit.objective import Array


@dataclass(frozen=True, slots=True)
class Observed:
    """A version next to a model trained from scratch on the same rows.

    Attributes
    ----------
    version, parameters, theta
        As published; theta is (d + 1,), the intercept last.
    distance
        |theta - retrained theta|.
    rounding
        How far the retrained theta itself may be from the optimum.
    rows_live
        Number of live rows according to the requests, not to the version.
    newly_deleted
        Number of rows that this version has forgotten.
    retrain_seconds
        Duration of retraining.
    ordered
        Why its refresh was scheduled; None if it is not a refresh.
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
        """The published error, relative; None if it is unknown."""
        return self.version.error.relative

    @property
    def budget(self) -> float:
        """The error budget, relative."""
        return self.version.error.budget

    @property
    def true_error(self) -> float:
        """The distance to retraining, relative to the same norm as the published error."""
        return self._relative(self.distance)

    @property
    def bound(self) -> float | None:
        """The published bound, relative, or None."""
        bound = self.version.error.bound
        return None if bound is None else self._relative(bound)

    def _relative(self, distance: float) -> float:
        norm = float((self.theta @ self.theta) ** 0.5)
        return distance / norm if norm > 0 else 0.0


@dataclass(slots=True)
class Outcome:
    """Everything that a run has observed.

    Attributes
    ----------
    versions
        Each model's versions, in order.
    requests
        All requests, in sending order.
    receipts, dead_letters
        As read from their topics, in order.
    leftovers
        Each model's deleted rows whose features are still in the server.
    register_seconds
        Duration of fitting, precomputing, storing and publishing, by model.
    seconds
        Duration of the whole run.
    """

    versions: dict[str, list[Observed]]
    requests: Sequence[Request] = ()
    receipts: list[SeenReceipt] = field(default_factory=list)
    dead_letters: list[SeenDeadLetter] = field(default_factory=list)
    leftovers: Mapping[str, Sequence[str]] = field(default_factory=dict)
    register_seconds: dict[str, float] = field(default_factory=dict)
    seconds: float = 0.0

    def refreshes(self, model_id: str) -> list[Observed]:
        """Return the versions of a model that a refresh created."""
        return [seen for seen in self.versions[model_id] if seen.version.refresh is not None]
