"""The gauges of models: those whose requests a worker processes, from its takeover on."""

from __future__ import annotations

import math
from collections.abc import Collection

from lethe.consumers.service.telemetry.metrics import Metrics
from lethe.engine.store.layout.keys import PartitionKeys, commit_partition
from lethe.engine.store.layout.meta import Meta
from lethe.engine.store.layout.state import ModelState
from lethe.engine.store.lookup import read_summaries
from lethe.engine.store.membership import models_in
from lethe.engine.store.store import ModelStore


class ModelGauges:
    """Error, budget, version, live rows and waiting requests of each model of one worker.

    A model has one worker at a time, and so one value: what the former worker showed would grow
    stale, and an alert on it would never end.
    """

    def __init__(self, metrics: Metrics, store: ModelStore) -> None:
        self._metrics = metrics
        self._store = store
        self._shown: set[str] = set()

    def take_over(self, partitions: Collection[int]) -> None:
        """Show the models of these commits partitions as the store has them, and no others."""
        self.keep(partitions)
        for index in partitions:
            models = models_in(self._store.client, PartitionKeys(index))
            for summary in read_summaries(self._store.client, models):
                self._show(summary.model_id, summary.version, summary.meta, summary.deferred)

    def keep(self, partitions: Collection[int]) -> None:
        """Show no model of other commits partitions any more."""
        for model in [each for each in self._shown if commit_partition(each) not in partitions]:
            self._hide(model)

    def show(self, state: ModelState) -> None:
        """Show a model's state after a commit."""
        if state.registered:
            self._show(state.model_id, state.version, state.meta, len(state.deferred))
        else:
            self._hide(state.model_id)

    def _show(self, model: str, version: int, meta: Meta, deferred: int) -> None:
        relative = meta.error.relative
        # +Inf and not NaN, so that an alert on "above the budget" fires.
        self._metrics.error.labels(model).set(math.inf if relative is None else relative)
        self._metrics.budget.labels(model).set(meta.error.budget)
        self._metrics.version.labels(model).set(version)
        self._metrics.rows_live.labels(model).set(meta.rows_live)
        self._metrics.deferred.labels(model).set(deferred)
        self._shown.add(model)

    def _hide(self, model: str) -> None:
        if model in self._shown:
            self._shown.discard(model)
            for gauge in self._metrics.of_models:
                gauge.remove(model)
