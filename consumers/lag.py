"""How far a deletion worker is behind, for its metrics and its health."""

from __future__ import annotations

import time
from collections.abc import Mapping

from consumers.batching import HeldRequests
from consumers.health import Health
from consumers.log.base import Consumer, Partition
from consumers.metrics import Metrics
from engine.store.keys import ModelKeys
from engine.store.outbox import Outbox
from engine.store.store import ModelStore

_PERIOD_SECONDS = 2.0


class Lag:
    """Measures it now and then; ``last`` is the newest figure, in records."""

    def __init__(
        self, store: ModelStore, consumer: Consumer, metrics: Metrics, health: Health
    ) -> None:
        self.last = 0
        self._store = store
        self._outbox = Outbox(store.client)
        self._consumer = consumer
        self._metrics = metrics
        self._health = health
        self._due = 0.0

    def hurry(self) -> None:
        """Measure at the next look."""
        self._due = 0.0

    def waiting(self, positions: Mapping[Partition, int]) -> int:
        """Return how many records of the assigned partitions were not read yet."""
        waiting = 0
        for partition in self._consumer.assignment():
            end = self._consumer.bounds(partition).end
            behind = max(0, end - positions.get(partition, 0))
            self._metrics.lag.labels(f"{partition.topic}/{partition.index}").set(behind)
            waiting += behind
        return waiting

    def look(self, positions: Mapping[Partition, int], held: HeldRequests) -> None:
        """Measure if it is time, and tell metrics and health."""
        now = time.monotonic()
        if now < self._due:
            self._health.beat()
            return
        self._due = now + _PERIOD_SECONDS
        self.last = self.waiting(positions)
        models = (ModelKeys.of_model(model) for model in self._store.model_ids())
        self._metrics.outbox_depth.set(self._outbox.depth(models))
        self._metrics.held.set(len(held))
        # Records that wait for company, and those that wait for room among them, are no stall.
        if self._consumer.assignment() and (self.last == 0 or held.room() == 0):
            self._health.progress(self.last)
        else:
            self._health.waiting(self.last)
