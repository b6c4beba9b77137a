"""How far a deletion worker is behind, for its metrics and its health."""

from __future__ import annotations

import time
from collections.abc import Mapping

from lethe.consumers.deletions.batching import BatchWindow
from lethe.consumers.log.base import Consumer, Partition
from lethe.consumers.service.telemetry.health import Health
from lethe.consumers.service.telemetry.metrics import Metrics

_PERIOD_SECONDS = 2.0


class LagGauge:
    """Measures the lag now and then; ``last`` is the newest figure, in records."""

    def __init__(self, consumer: Consumer, metrics: Metrics, health: Health) -> None:
        self.last = 0
        self._consumer = consumer
        self._metrics = metrics
        self._health = health
        self._due = 0.0
        self._shown: set[str] = set()

    def measure_next(self) -> None:
        """Measure at the next call of `measure_if_due`, even if it is not due yet."""
        self._due = 0.0

    def waiting(self, positions: Mapping[Partition, int]) -> int:
        """Return how many records of the assigned partitions are not read yet."""
        behind: dict[str, int] = {}
        for partition in self._consumer.assignment():
            end = self._consumer.bounds(partition).end
            name = f"{partition.topic}/{partition.index}"
            behind[name] = max(0, end - positions.get(partition, 0))
            self._metrics.lag.labels(name).set(behind[name])
        for name in self._shown - behind.keys():
            self._metrics.lag.remove(name)  # another worker has it, and shows it
        self._shown = set(behind)
        return sum(behind.values())

    def measure_if_due(self, positions: Mapping[Partition, int], window: BatchWindow) -> bool:
        """Measure if it is time, and report to metrics and health; return whether it was time."""
        now = time.monotonic()
        if now < self._due:
            self._health.beat()
            return False
        self._due = now + _PERIOD_SECONDS
        self.last = self.waiting(positions)
        self._metrics.held.set(len(window))
        # Records that wait to be batched, or are not read because too many wait, are no stall.
        if self._consumer.assignment() and (self.last == 0 or window.room() == 0):
            self._health.progress(self.last)
        else:
            self._health.waiting(self.last)
        return True
