"""``lethe work``: runs workers in one process until SIGTERM, or until nothing is left to do."""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial
from typing import TypeVar

import click
import stamina

from lethe.consumers.cli.options import Flags, global_options
from lethe.consumers.cli.output import prepare
from lethe.consumers.cli.stopping import stopped_by
from lethe.consumers.contract import topics
from lethe.consumers.deletions.authenticate import RequestKeys, read_request_keys
from lethe.consumers.deletions.batching import Batching
from lethe.consumers.refresh.queue import RefreshLimit
from lethe.consumers.service.connect import Runtime, open_runtime
from lethe.consumers.service.health import Health
from lethe.consumers.service.http import serve
from lethe.consumers.service.logs import Logger, logger
from lethe.consumers.service.loop import collect_rarely
from lethe.consumers.service.metrics import Metrics
from lethe.consumers.service.settings import Settings
from lethe.consumers.workers.deletion_worker import BatchLimits, DeletionWorker
from lethe.consumers.workers.drained import Drained
from lethe.consumers.workers.refresh_worker import RefreshWorker
from lethe.engine.errors import CorruptState, RefreshFailed, Unavailable

_POLL_SECONDS = 0.1  # between checks of the workers and, with --until-idle, of what is left
_PATIENCE_SECONDS = 10.0  # before giving up on ever being idle, as with a halted model
_FIRST_PAUSE = 0.1
_LONGEST_PAUSE = 5.0

Worker = DeletionWorker | RefreshWorker
T = TypeVar("T")


@click.command(short_help="Run the workers until SIGTERM.")
@click.argument(
    "which", default="all", type=click.Choice(["deletions", "refresh", "all"]), required=False
)
@click.option(
    "--until-idle",
    is_flag=True,
    help="Return when every topic is drained and no refresh is needed; exit code 1 if a refresh is "
    "needed that no worker will do, because it failed.",
)
@click.option(
    "--http-port",
    type=click.IntRange(0, 65535),
    metavar="PORT",
    help="Port of /healthz, /readyz and /metrics on loopback; 0 for none. Default: "
    "LETHE_HTTP_PORT, or 9464, or a free one if another worker has that.",
)
@click.option(
    "--min-batch",
    type=click.IntRange(1, 10_000),
    metavar="N",
    help="Hold a model's requests back until they delete N rows together, so that no version "
    "differs from the one before by fewer. Default: LETHE_MIN_BATCH, or 1.",
)
@click.option(
    "--max-wait",
    metavar="DURATION",
    help="With --min-batch: process a request anyway once it has waited this long (30s, 15m; at "
    "most 1h). Default: LETHE_MAX_WAIT, or 60s.",
)
@global_options
@click.pass_context
def work(
    ctx: click.Context,
    /,
    *,
    which: str,
    until_idle: bool,
    http_port: int | None,
    min_batch: int | None,
    max_wait: str | None,
) -> int | None:
    """Run workers: those for deletions, those for refreshes, or both (the default).

    On SIGTERM or SIGINT it finishes the commit under way and exits cleanly; a refresh under way is
    left to the next worker. While a server is down it waits, with one log line per try; nothing is
    lost meanwhile. Any number of processes may run: they share the partitions.

    \b
    Examples:
      lethe work                       both workers, one process
      lethe work refresh               only refreshes, LETHE_REBUILD_THREADS BLAS threads
      lethe work --until-idle          do what is waiting, then return
      lethe work --min-batch 5 --max-wait 15m
    """  # noqa: D301 - click looks for the character
    ctx.ensure_object(Flags).settings |= {"min_batch": min_batch, "max_wait": max_wait}
    settings, out = prepare(ctx)
    port = settings.http_port if http_port is None else http_port
    stamina.instrumentation.set_on_retry_hooks([])  # the workers log themselves what they wait for
    names = ["deletions", "refresh"] if which == "all" else [which]
    crew = _Crew({name: Health() for name in names}, impatient=until_idle)
    with stopped_by(crew.stop, signal.SIGTERM, signal.SIGINT), ExitStack() as stack:
        if port:
            explicit = http_port is not None or "http_port" in settings.model_fields_set
            port = stack.enter_context(
                serve(settings.http_host, port, crew.health, crew.metrics, or_another=not explicit)
            )
        threads = settings.rebuild_threads if which == "refresh" else 1
        runtime = stack.enter_context(open_runtime(settings, blas_threads=threads))
        crew.log.info("working", action="start", workers=which, on=runtime.log.name, http_port=port)
        collect_rarely()
        idle = _run(runtime, crew, until_idle=until_idle)
    how = "idle" if idle else "stopped"
    requests = crew.totals("lethe_requests", "status")
    refreshes = crew.totals("lethe_refreshes", "size")
    out.document({"state": how, "workers": names, "requests": requests, "refreshes": refreshes})
    out.line(f"{how}; requests: {_counts(requests)}; refreshes: {_counts(refreshes)}")
    if any(thread.name.startswith("refresh_") for thread in threading.enumerate()):
        # Python would wait for the abandoned job, perhaps for an hour. Its staged keys expire.
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(0)
    return 0


@dataclass(slots=True)
class _Crew:
    """The worker threads of this process, and what they share."""

    health: Mapping[str, Health]
    impatient: bool
    stop: threading.Event = field(default_factory=threading.Event)
    metrics: Metrics = field(default_factory=Metrics)
    log: Logger = field(default_factory=lambda: logger("work"))
    failures: list[BaseException] = field(default_factory=list)

    def halted(self) -> int:
        """Return how many models are halted and wait for an operator."""
        return int(self.metrics.registry.get_sample_value("lethe_halted_models") or 0)

    def totals(self, family: str, label: str) -> dict[str, int]:
        """Return a counter's values by the given label."""
        return {
            sample.labels[label]: int(sample.value)
            for metric in self.metrics.registry.collect()
            for sample in metric.samples
            if sample.name == f"{family}_total"
        }

    def pause(self, attempt: int) -> None:
        """Wait before another try; a signal ends the wait."""
        self.stop.wait(min(_FIRST_PAUSE * 2 ** min(attempt, 10), _LONGEST_PAUSE))


def _counts(totals: Mapping[str, int]) -> str:
    return ", ".join(f"{count} {name}" for name, count in totals.items()) or "none"


def _run(runtime: Runtime, crew: _Crew, *, until_idle: bool) -> bool:
    """Run the threads until they are stopped; return whether they ran out of work."""
    _reach(crew, runtime.ensure_topics)
    threads = [
        threading.Thread(target=_thread, args=(runtime, crew, name), name=f"lethe-{name}")
        for name in crew.health
    ]
    for thread in threads:
        thread.start()
    idle = False
    try:
        if until_idle:
            idle = _wait_until_idle(runtime, crew)
        while not idle and not crew.stop.wait(_POLL_SECONDS):
            pass
    finally:
        crew.stop.set()
        for thread in threads:
            thread.join()
    if crew.failures:
        raise crew.failures[0]
    return idle


def _thread(runtime: Runtime, crew: _Crew, name: str) -> None:
    """Create a worker and run it; a failure of the worker ends the process."""
    try:
        worker = _reach(crew, partial(_make, runtime, crew, name))
        if worker is None:
            return
        try:
            worker.run(crew.stop)
        finally:
            worker.close()
    except BaseException as error:  # raised again in the main thread
        crew.failures.append(error)
    finally:
        crew.stop.set()


def _make(runtime: Runtime, crew: _Crew, name: str) -> Worker:
    store, settings = runtime.store(), runtime.settings
    if name == "deletions":
        return DeletionWorker(
            runtime.log,
            store,
            runtime.seals(store),
            signer=runtime.signer(),
            metrics=crew.metrics,
            health=crew.health[name],
            limits=_batch_limits(settings),
            batching=Batching(settings.min_batch, settings.max_wait),
            request_keys=_request_keys(settings, crew),
            trusted=runtime.trusted(),
        )
    return RefreshWorker(
        runtime.log,
        store,
        metrics=crew.metrics,
        health=crew.health[name],
        limit=RefreshLimit(settings.refresh_min_interval),
    )


def _request_keys(settings: Settings, crew: _Crew) -> RequestKeys | None:
    if settings.request_keys is None:
        return None
    keys = read_request_keys(settings.request_keys)
    crew.log.info("requests must be signed", action="request_keys", keys=len(keys))
    return keys


def _batch_limits(settings: Settings) -> BatchLimits:
    return BatchLimits(records=settings.batch_records, rows=settings.batch_rows)


def _reach(crew: _Crew, act: Callable[[], T]) -> T | None:
    """Retry an action until the servers that it needs are up; None if stopped before."""
    attempt = 0
    while not crew.stop.is_set():
        try:
            return act()
        except Unavailable as error:
            if crew.impatient:
                raise
            for health in crew.health.values():
                health.trouble(str(error))
            crew.log.warning("waiting", action="retry", reason=str(error))
            crew.pause(attempt)
            attempt += 1
    return None


def _wait_until_idle(runtime: Runtime, crew: _Crew) -> bool:
    """Return True once nothing is left to do, False if stopped before.

    Raises
    ------
    CorruptState
        A halted model keeps the topics from ever being drained.
    RefreshFailed
        A refresh is needed that no worker will do; an operator has to act.
    """
    topic_of = {"deletions": topics.DELETIONS, "refresh": topics.REFRESH_JOBS}
    # Jobs are checked first: what they cause is in the deletions topic before they are done.
    names = [topic_of[name] for name in ("refresh", "deletions") if name in crew.health]
    drained = Drained(runtime.log.reader(), runtime.store())
    waited, undone = 0.0, 0.0
    try:
        while not crew.stop.wait(_POLL_SECONDS):
            needed = ""
            try:
                if drained.topics(names):
                    needed = "" if len(names) == 1 else drained.refreshes()
                    if not needed:
                        return True
            except Unavailable as error:
                crew.log.warning("waiting", action="retry", reason=str(error))
                crew.pause(5)
            undone = undone + _POLL_SECONDS if needed else 0.0
            if undone > _PATIENCE_SECONDS:
                raise RefreshFailed(needed)
            waited = waited + _POLL_SECONDS if crew.halted() else 0.0
            if waited > _PATIENCE_SECONDS:
                raise CorruptState(
                    f"{crew.halted()} models are halted and their requests "
                    "wait; the log lines with action=halt say why, `lethe check` says what to do"
                )
    finally:
        drained.close()
    return False
