"""What anybody can observe of a run: the topics, and every version next to a retrained model."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from lethe.consumers.audit.rational_refit import rational_refit
from lethe.consumers.contract import cloudevents, topics
from lethe.consumers.contract.events import RefreshRequested, Version
from lethe.consumers.contract.receipt import Receipt
from lethe.consumers.deletions.dead_letters import DeadLetter, read_letter
from lethe.consumers.demo.retraining import Retrained, retrain
from lethe.consumers.demo.scenario import DemoModel, Request
from lethe.consumers.demo.view import View
from lethe.consumers.log.base import Log, Partition, Record
from lethe.consumers.log.scan import scan
from lethe.consumers.subscriber.model_version import ModelVersion
from lethe.consumers.subscriber.subscriber import ModelSubscriber
from lethe.engine.fit.objective import Array, Rows, ridge_penalty, with_intercept


@dataclass(frozen=True, slots=True)
class Observed:
    """A version next to a model trained from scratch on the same rows."""

    version: ModelVersion  # as a subscriber gets it
    retrained: Retrained
    rows_live: int  # according to the requests, not to the version
    newly_deleted: int  # number of rows that this version has forgotten
    ordered: str | None = None  # why its refresh was scheduled; None if it is not a refresh
    identical: bool | None = None  # to the bits of a rational refit; None unless it is `rounded`

    @property
    def event(self) -> Version:
        """The version as it was published."""
        return self.version.event

    @property
    def theta(self) -> Array:
        """The published parameters, (d + 1,), the intercept last."""
        return np.append(self.version.theta, self.version.intercept)

    @property
    def error(self) -> float | None:
        """The published error, relative; None if it is unknown."""
        return self.event.error.relative

    @property
    def budget(self) -> float:
        """The error budget, relative."""
        return self.event.error.budget

    @property
    def bound(self) -> float | None:
        """The published bound, relative, or None."""
        bound = self.event.error.bound
        return None if bound is None else self._relative(bound)

    @property
    def distance(self) -> float:
        """|theta - retrained theta|."""
        return float(np.linalg.norm(self.theta - self.retrained.theta))

    @property
    def true_error(self) -> float:
        """The distance to retraining, relative to the same norm as the published error."""
        return self._relative(self.distance)

    def _relative(self, distance: float) -> float:
        norm = float(np.linalg.norm(self.theta))
        return distance / norm if norm > 0 else 0.0


@dataclass(slots=True)
class Outcome:
    """Everything that a run has observed; lists are in the order of reading."""

    versions: dict[str, list[Observed]]  # by model, from the first on
    requests: Sequence[Request] = ()  # in sending order
    receipts: list[tuple[Receipt, bytes]] = field(default_factory=list)  # with their bytes
    dead_letters: list[DeadLetter] = field(default_factory=list)
    leftovers: Mapping[str, Sequence[str]] = field(default_factory=dict)
    """Each model's deleted rows whose features are still in the server."""
    register_seconds: dict[str, float] = field(default_factory=dict)
    """Duration of fitting, precomputing, storing and publishing, by model."""
    seconds: float = 0.0


class Observer:
    """Collects an `Outcome` from the log, and retrains at every version; one thread at a time."""

    def __init__(
        self, log: Log, models: Sequence[DemoModel], requests: Sequence[Request], view: View
    ) -> None:
        self.outcome = Outcome({model.model_id: [] for model in models}, requests)
        self.deleted: dict[str, set[str]] = {model.model_id: set() for model in models}
        self._models = models
        # A repeat names the same rows; a conflict is not APPLIED.
        self._rows = {(r.model_id, r.request_id): r.rows for r in requests if r.status == "APPLIED"}
        self._reasons: dict[str, str] = {}
        self._subscriber = ModelSubscriber(log)
        self._reader = log.reader()
        self._positions: dict[Partition, int] = {}
        self._view = view

    def catch_up(self) -> None:
        """Read what was published since the last call, and show it."""
        for record in self._new(topics.DEAD_LETTERS):
            self.outcome.dead_letters.append(read_letter(record))
            self._view.dead_letter(self.outcome.dead_letters[-1])
        for record in self._new(topics.RECEIPTS):
            receipt = Receipt.model_validate(cloudevents.parse(record).data)
            self.outcome.receipts.append((receipt, record.value or b""))
            self._view.receipt(receipt)
        for model in self._models:
            versions = self.outcome.versions[model.model_id]
            new = self._subscriber.follow(model.model_id, from_version=len(versions), timeout=0.0)
            for version in new:
                versions.append(self._compare(model, version))
                self._view.version(versions[-1])
        for record in self._new(topics.REFRESH_JOBS):
            order = RefreshRequested.model_validate(cloudevents.parse(record).data)
            self._reasons[order.job_id] = order.reason
            self._view.ordered(order)

    def close(self) -> None:
        """Release the connections."""
        self._subscriber.close()
        self._reader.close()

    def _new(self, topic: str) -> Iterator[Record]:
        for partition in self._reader.partitions(topic):
            bounds = self._reader.bounds(partition)
            position = self._positions.get(partition, bounds.begin)
            yield from scan(self._reader, partition, position, bounds.end)
            self._positions[partition] = bounds.end

    def _compare(self, model: DemoModel, version: ModelVersion) -> Observed:
        deleted, refresh = self.deleted[model.model_id], version.event.refresh
        before = len(deleted)
        for request_id in version.event.request_ids:
            deleted.update(self._rows[model.model_id, request_id])
        live = np.array([row not in deleted for row in model.data.ids], dtype=np.bool_)
        X, y = model.data.X[live], model.data.y[live, 0]
        identical = None
        if version.event.error.kind == "rounded":
            rows = Rows(with_intercept(X), y[:, np.newaxis], np.ones(len(y)))
            penalty = ridge_penalty(
                model.config.ridge, rows.X.shape[1], intercept=True, penalise_intercept=False
            )
            published = np.append(version.theta, version.intercept)
            identical = rational_refit(rows, penalty).tobytes() == published.tobytes()
        return Observed(
            version,
            retrain(version.kind, X, y, model.config.ridge),
            rows_live=int(live.sum()),
            newly_deleted=len(deleted) - before,
            ordered=None if refresh is None else self._reasons.get(refresh.job_id, "ordered"),
            identical=identical,
        )
