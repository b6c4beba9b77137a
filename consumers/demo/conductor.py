"""The run: start the workers, register the models, send the requests, observe the results."""

from __future__ import annotations

import queue
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from lethe.consumers.contract import topics, version_chain
from lethe.consumers.contract.events import Parameters, Version
from lethe.consumers.demo import data
from lethe.consumers.demo.crew import Crew, at_work
from lethe.consumers.demo.data import DemoModel
from lethe.consumers.demo.live import View
from lethe.consumers.demo.outcome import Observed, Outcome
from lethe.consumers.demo.remains import remains
from lethe.consumers.demo.retraining import retrain
from lethe.consumers.demo.scenario import Request, Wave, waves
from lethe.consumers.demo.subscriber import Seen, SeenDeadLetter, SeenOrder, SeenReceipt, Subscriber
from lethe.consumers.log.base import Log, Producer
from lethe.consumers.registration.register import Registrar
from lethe.consumers.service.connect import Runtime, open_runtime
from lethe.consumers.service.settings import Settings
from lethe.engine.errors import InvalidData, LetheError, ModelExists
from lethe.engine.store.store import ModelStore

_PATIENCE = 60.0
_PAUSE = 0.002


class Stuck(LetheError):
    """The workers did not finish in time."""

    code = "STUCK"
    exit_code = 1


class Watcher:
    """Builds an `Outcome` from what the subscriber reads, retraining at every version."""

    def __init__(self, models: Sequence[DemoModel], requests: Sequence[Request], view: View):
        self.outcome = Outcome({model.model_id: [] for model in models}, requests)
        self._models = {model.model_id: model for model in models}
        self._requested: dict[tuple[str, str | None], frozenset[str]] = {}
        for request in requests:  # a repeat names the same rows, a conflict is not APPLIED
            if request.status == "APPLIED":
                self._requested[request.model_id, request.request_id] = frozenset(request.rows)
        self.gone: dict[str, set[str]] = {model.model_id: set() for model in models}
        self._orders: dict[str, str] = {}
        self._view = view

    def take(self, seen: Seen) -> None:
        """Record one event that was read."""
        if isinstance(seen, SeenOrder):
            self._orders[seen.order.job_id] = seen.order.reason
            self._view.ordered(seen.order)
        elif isinstance(seen, SeenReceipt):
            self.outcome.receipts.append(seen)
            self._view.receipt(seen.receipt)
        elif isinstance(seen, SeenDeadLetter):
            self.outcome.dead_letters.append(seen)
            self._view.dead_letter(seen)
        else:
            observed = self._observe(seen.version, seen.parameters)
            self.outcome.versions[seen.version.model_id].append(observed)
            self._view.version(observed)

    def _observe(self, version: Version, parameters: Parameters) -> Observed:
        model = self._models[version.model_id]
        gone = self.gone[version.model_id]
        before = len(gone)
        for request_id in version.request_ids:
            gone |= self._requested[version.model_id, request_id]
        live = np.array([row not in gone for row in model.data.ids], dtype=np.bool_)
        retrained = retrain(
            version.kind, model.data.X[live], model.data.y[live, 0], model.config.ridge
        )
        theta = np.ravel(version_chain.theta_of(parameters))
        refresh = version.refresh
        return Observed(
            version=version,
            parameters=parameters,
            theta=theta,
            distance=float(np.linalg.norm(theta - retrained.theta)),
            rounding=retrained.rounding,
            rows_live=int(live.sum()),
            newly_deleted=len(gone) - before,
            retrain_seconds=retrained.seconds,
            ordered=None if refresh is None else self._orders.get(refresh.job_id, "ordered"),
        )


class _Stage:
    """Everything that runs while requests are sent."""

    def __init__(
        self, runtime: Runtime, store: ModelStore, subscriber: Subscriber, crew: Crew, view: View
    ) -> None:
        self._log: Log = runtime.log
        self._reader = runtime.log.reader()
        self._store = store
        self._subscriber = subscriber
        self._crew = crew
        self._view = view

    def play(self, wave: Wave, producer: Producer, watcher: Watcher) -> None:
        """Send a wave's requests and watch until everything that they trigger is done."""
        for request in wave.requests:
            self._view.sent(request)
        producer.publish([request.message for request in wave.requests])
        deadline = time.monotonic() + _PATIENCE
        while not self._settled(list(watcher.outcome.versions)):
            self._crew.check()
            self.watch(watcher)
            if time.monotonic() > deadline:
                raise Stuck(f"the workers did not finish within {_PATIENCE:.0f} s; this is a bug")
            time.sleep(_PAUSE)
        self._subscriber.keep_up()
        self.watch(watcher)

    def watch(self, watcher: Watcher) -> None:
        """Record what the subscriber has read by now."""
        while True:
            try:
                seen = self._subscriber.seen.get_nowait()
            except queue.Empty:
                return
            watcher.take(seen)

    def close(self) -> None:
        """Release the connection."""
        self._reader.close()

    def _settled(self, model_ids: Sequence[str]) -> bool:
        """Return whether all records are processed and no refresh is pending, in this order."""
        for partition in self._reader.partitions(topics.DELETIONS):
            end = self._reader.bounds(partition).end
            if (self._store.cursors.watermark(str(partition)) or 0) < end:
                return False
        return all(self._store.load_model(m).meta.pending_job is None for m in model_ids)


def run(data_dir: Path, view: View, *, pace: float = 0.0) -> Outcome:
    """Run the demo on a data directory; ``pace`` is the minimum time of a wave in seconds.

    Raises
    ------
    InvalidData
        The directory holds a demo already.
    StoreUnavailable
        The embedded Valkey does not start.
    Stuck
        The workers do not finish.
    """
    begin = time.perf_counter()
    view.status("loading the data sets")
    models = data.models()
    script = waves(models)
    watcher = Watcher(models, [r for wave in script for r in wave.requests], view)
    # Defaults only: the demo must not write to servers that the environment names.
    settings = Settings.model_construct(data_dir=data_dir, embedded_linger=0.0)
    view.status("starting a private Valkey")
    with open_runtime(settings) as runtime:
        runtime.ensure_topics()
        store = runtime.store()
        producer, reader = runtime.log.producer(), runtime.log.reader()
        registrar = Registrar(
            store, producer, reader, runtime.seals(store), signer=runtime.signer()
        )
        subscriber = Subscriber(runtime.log)
        with at_work(runtime, subscriber.keep_up) as crew:
            crew.start("subscriber", subscriber.run)
            stage = _Stage(runtime, store, subscriber, crew, view)
            for model in models:
                seconds = _register(registrar, model, data_dir, view)
                watcher.outcome.register_seconds[model.model_id] = seconds
                subscriber.keep_up()
                stage.watch(watcher)
            for wave in script:
                next_wave = time.perf_counter() + pace
                stage.play(wave, producer, watcher)
                time.sleep(max(0.0, next_wave - time.perf_counter()))
            view.status("searching the server for deleted rows")
            watcher.outcome.leftovers = {
                model.model_id: remains(store.client, model, watcher.gone[model.model_id])
                for model in models
            }
            stage.close()
        producer.close()
        reader.close()
    watcher.outcome.seconds = time.perf_counter() - begin
    return watcher.outcome


def _register(registrar: Registrar, model: DemoModel, data_dir: Path, view: View) -> float:
    begin = time.perf_counter()
    view.status(f"registering {model.model_id}")
    try:
        registrar.register(model.config, model.data)
    except ModelExists:
        raise InvalidData(
            f"{data_dir} holds a demo already; name another directory with --data-dir"
        ) from None
    return time.perf_counter() - begin
