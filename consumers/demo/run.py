"""One run: a private server, the models, the workers of `lethe work`, and wave after wave."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

import numpy as np
import redis

from lethe.consumers.demo.observer import Observer, Outcome
from lethe.consumers.demo.scenario import DemoModel, Request, models, waves
from lethe.consumers.demo.view import View
from lethe.consumers.registration.committing import committing
from lethe.consumers.registration.register import Registrar
from lethe.consumers.service.configuration.settings import Settings
from lethe.consumers.service.connect import Runtime, open_runtime
from lethe.consumers.service.telemetry.progress import no_progress
from lethe.consumers.service.telemetry.steps import Step
from lethe.consumers.workers.drained import Drained
from lethe.consumers.workers.supervisor import Supervisor
from lethe.engine.errors import CorruptState, InvalidData, ModelExists
from lethe.engine.store.server.connection import reachable

_POLL_SECONDS = 0.01


def run(data_dir: Path, view: View, *, pace: float = 0.0) -> Outcome:
    """Run the demo on a data directory; ``pace`` is the minimum time of a wave in seconds.

    Raises
    ------
    InvalidData
        The directory holds a demo already.
    StoreUnavailable
        The embedded Valkey does not start.
    ModelsHalted, RefreshFailed
        The workers do not finish.
    """
    begin = time.perf_counter()
    view.status("loading the data sets")
    demo_models = models()
    script = waves(*demo_models)
    settings = settings_of(data_dir)
    view.status("starting a private Valkey")
    with ExitStack() as stack:
        runtime = stack.enter_context(open_runtime(settings))
        store = runtime.store()
        registering = stack.enter_context(committing(Registrar, runtime, store, no_progress))
        requests = [request for wave in script for request in wave]
        observer = Observer(runtime.log, demo_models, requests, view)
        stack.enter_context(closing(observer))
        outcome = observer.outcome
        for model in demo_models:
            view.status(f"registering {model.model_id}")
            outcome.register_seconds[model.model_id] = _register(registering, model, data_dir)
            observer.catch_up()
        _send(script, runtime, observer, view, pace)
        view.status("searching the server for deleted rows")
        outcome.leftovers = {
            model.model_id: leftovers(store.client, model, observer.deleted[model.model_id])
            for model in demo_models
        }
    outcome.seconds = time.perf_counter() - begin
    return outcome


def settings_of(data_dir: Path) -> Settings:
    """Return the settings of a demo on a data directory.

    Defaults only: the demo must not write to servers that the environment names. Refreshes are not
    spaced out: a minute of waiting would show nothing.
    """
    return Settings.model_construct(
        data_dir=data_dir, embedded_linger=0.0, refresh_min_interval=0.0
    )


def _register(registering: Registrar, model: DemoModel, data_dir: Path) -> float:
    begin = time.perf_counter()
    try:
        registering.register(model.config, model.data)
    except ModelExists:
        raise InvalidData(
            f"{data_dir} holds a demo already; name another directory with --data-dir"
        ) from None
    return time.perf_counter() - begin


def _send(
    script: Sequence[Sequence[Request]],
    runtime: Runtime,
    observer: Observer,
    view: View,
    pace: float,
) -> None:
    """Send each wave, and wait until the workers have done everything that it triggers."""

    def observe(step: str) -> None:
        # Before anything else is published: the compacted topic of parameters keeps the newest.
        if step == Step.ADVANCE:
            observer.catch_up()

    supervisor = Supervisor(["deletions", "refresh"], impatient=True, at_step=observe)
    with (
        supervisor.running(runtime),
        closing(runtime.log.producer()) as producer,
        closing(Drained(runtime.log.reader(), runtime.store())) as drained,
    ):
        for wave in script:
            next_wave = time.perf_counter() + pace
            for request in wave:
                view.sent(request)
            producer.publish([request.message for request in wave])
            supervisor.wait_until_idle(drained, poll_seconds=_POLL_SECONDS)
            time.sleep(max(0.0, next_wave - time.perf_counter()))


def leftovers(client: redis.Redis, model: DemoModel, deleted: Iterable[str]) -> list[str]:
    """Return the deleted rows whose features, as float64, are anywhere in the server.

    The search does not depend on the store's layout: it reads every value of every key.

    Raises
    ------
    CorruptState
        Not even a live row is found, so finding no deleted row would prove nothing.
    """
    with reachable(client):
        everything = b"\n".join(_values(client))
    features = dict(zip(model.data.ids, model.data.X.astype("<f8"), strict=True))
    gone = sorted(deleted)
    live = next(row for row in model.data.ids if row not in set(gone))
    if np.ascontiguousarray(features[live]).tobytes() not in everything:
        raise CorruptState(f"model {model.model_id!r}: the record of a live row was not found")
    return [row for row in gone if np.ascontiguousarray(features[row]).tobytes() in everything]


def _values(server: redis.Redis) -> Iterator[bytes]:
    client: Any = server  # redis-py types answers for decoded and raw clients alike
    values_of: dict[bytes, Callable[[bytes], Iterable[bytes]]] = {
        b"string": lambda key: [client.get(key) or b""],
        b"hash": client.hvals,
        b"list": lambda key: client.lrange(key, 0, -1),
        b"set": client.smembers,
        b"zset": lambda key: client.zrange(key, 0, -1),
        b"stream": lambda key: [v for _, fields in client.xrange(key) for v in fields.values()],
        b"none": lambda _: (),  # it expired in between
    }
    for key in client.scan_iter(count=1000):
        kind = client.type(key)
        if kind not in values_of:
            raise CorruptState(f"key {key!r} is of the unknown type {kind!r}")
        yield from values_of[kind](key)
