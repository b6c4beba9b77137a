"""What a worker asks of its servers, counted in its own process: round trips, flushes, commits."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterable
from typing import Any

from lethe.consumers.log.base import Flush, Message, Producer
from lethe.consumers.service.telemetry.metrics import Metrics
from lethe.consumers.service.telemetry.steps import Step
from lethe.consumers.workers.deletion_worker import DeletionWorker
from lethe.engine.store.store import ModelStore


class Calls:
    """Counts, for each poll that had records, the store's round trips and the flushes.

    A poll lasts from one first step to the next: what the publisher notes of the poll before is in
    it. What a worker looks at by the clock (lag, ends and cursors, every 2 s) is counted as well,
    so the median over polls says what a poll costs.
    """

    def __init__(self) -> None:
        self._trips = self._flushes = 0
        self._applied = False
        self._polls: list[tuple[int, int]] = []

    def before(self, at_step: Callable[[str], None]) -> Callable[[str], None]:
        """Return ``at_step``, which also sees where a poll ends."""

        def stepping(name: str) -> None:
            if name == Step.POLL:
                if self._applied:
                    self._polls.append((self._trips, self._flushes))
                self._trips = self._flushes = 0
                self._applied = False
            self._applied |= name == Step.APPLY
            at_step(name)

        return stepping

    def clear(self) -> None:
        """Begin anew: what came before was no poll of the bench."""
        self._polls.clear()
        self._applied = False

    def watch(self, store: ModelStore, worker: DeletionWorker) -> None:
        """Count from now on."""
        pool = store.client.connection_pool
        send: Callable[..., Any] = pool.connection_class.send_packed_command
        calls = self

        class Counting(pool.connection_class):  # type: ignore[misc, name-defined]
            def send_packed_command(self, *arguments: Any, **options: Any) -> Any:
                calls._trips += 1
                return send(self, *arguments, **options)

        pool.connection_class = Counting
        pool.reset()  # connections made before do not count
        begin = worker._producer.begin

        def counting(messages: Iterable[Message]) -> Flush:
            batch = list(messages)
            self._flushes += bool(batch)
            return begin(batch)

        producer: Producer = worker._producer
        producer.begin = counting  # type: ignore[method-assign]

    def counted(self, metrics: Metrics) -> dict[str, float]:
        """Return what was counted, by name."""
        won = metrics.commits.labels("won")._value.get()
        contested = metrics.commits.labels("contested")._value.get()
        found = {"won": won, "contested": contested, "polls": float(len(self._polls))}
        if self._polls:
            trips, flushes = zip(*self._polls, strict=True)
            found |= {
                "round trips": statistics.median(trips),
                "most round trips": max(trips),
                "mean round trips": statistics.fmean(trips),
                "flushes": statistics.median(flushes),
                "most flushes": max(flushes),
            }
        return found
