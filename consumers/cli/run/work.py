"""``lethe work``: runs workers in one process until SIGTERM, or until nothing is left to do."""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from typing import NoReturn

import click
import stamina

from lethe.consumers.cdc.mapping import load_mapping
from lethe.consumers.cli.main import explain
from lethe.consumers.cli.terminal.options import Flags, global_options, pass_options
from lethe.consumers.cli.terminal.output import Output, prepare
from lethe.consumers.cli.terminal.stopping import stopped_by
from lethe.consumers.service.configuration.settings import MOST_REQUESTS
from lethe.consumers.service.connect import Runtime, open_runtime
from lethe.consumers.service.loop import collect_rarely
from lethe.consumers.service.telemetry.http import serve
from lethe.consumers.service.telemetry.logs import logger
from lethe.consumers.service.telemetry.metrics import Metrics
from lethe.consumers.workers.drained import Drained
from lethe.consumers.workers.supervisor import POLL_SECONDS, WORKERS, Supervisor
from lethe.engine.errors import InvalidData


@click.command(short_help="Run the workers until SIGTERM.")
@click.argument(
    "which",
    default="all",
    type=click.Choice([*WORKERS, "intake", "all"]),
    required=False,
)
@click.option(
    "--cdc",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Also read changes of a database from Debezium's topics, as this mapping says (TOML; "
    "docs/cdc.md). Needs Kafka.",
)
@click.option(
    "--until-idle",
    is_flag=True,
    help="Return when every topic is drained and no refresh is needed; exit code 1 if a model is "
    "halted, or if a refresh is needed that no worker will do, because it failed.",
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
    type=click.IntRange(1, MOST_REQUESTS),
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
@pass_options
@global_options
@click.pass_context
def work(
    ctx: click.Context,
    /,
    *,
    which: str,
    cdc: Path | None,
    until_idle: bool,
    http_port: int | None,
    min_batch: int | None,
    max_wait: str | None,
) -> int | None:
    """Run workers: those for deletions, refreshes or erasures, or all of them (the default).

    With --cdc, they also include the one that turns changes of a database into requests; `intake`
    runs it alone.

    On SIGTERM or SIGINT it finishes the commit under way and exits cleanly; a refresh under way is
    left to the next worker. While a server is down it waits, with one log line per try; nothing is
    lost meanwhile. Any number of processes may run: they share the partitions.

    \b
    Examples:
      lethe work                       all workers, one process
      lethe work refresh               refreshes alone
      lethe work --until-idle          do what is waiting, then return
      lethe work --cdc tables.toml     deletions from a database, too
      lethe work --min-batch 5 --max-wait 15m
    """  # noqa: D301 - click looks for the character
    ctx.ensure_object(Flags).settings |= {"min_batch": min_batch, "max_wait": max_wait}
    settings, out = prepare(ctx)
    port = settings.http_port if http_port is None else http_port
    stamina.instrumentation.set_on_retry_hooks([])  # the workers log themselves what they wait for
    if which == "intake" and cdc is None:
        raise click.UsageError("intake needs a mapping: --cdc FILE")
    mapping = None if cdc is None else load_mapping(cdc)
    if mapping is not None and settings.kafka_bootstrap_servers is None:
        raise InvalidData("--cdc reads the topics that Debezium writes to Kafka: give --kafka")
    names = list(WORKERS) if which == "all" else [which]
    if mapping is not None and "intake" not in names:
        names.append("intake")
    supervisor = Supervisor(names, impatient=until_idle, mapping=mapping)
    with (
        _leaving_jobs(out),
        stopped_by(supervisor.stop, signal.SIGTERM, signal.SIGINT),
        ExitStack() as stack,
    ):
        if port:
            explicit = http_port is not None or "http_port" in settings.model_fields_set
            health, registry = supervisor.health, supervisor.metrics.registry
            port = stack.enter_context(
                serve(settings.http_host, port, health, registry, or_another=not explicit)
            )
        threads = settings.rebuild_threads if which == "refresh" else 1
        runtime = stack.enter_context(open_runtime(settings, blas_threads=threads))
        logger("work").info(
            "working", action="start", workers=which, on=runtime.log.name, http_port=port
        )
        collect_rarely()
        idle = _run(runtime, supervisor, until_idle=until_idle)
    how = "idle" if idle else "stopped"
    requests = _totals(supervisor.metrics, "lethe_requests", "status")
    refreshes = _totals(supervisor.metrics, "lethe_refreshes", "size")
    out.document({"state": how, "workers": names, "requests": requests, "refreshes": refreshes})
    out.line(f"{how}; requests: {_counts(requests)}; refreshes: {_counts(refreshes)}")
    if _has_abandoned_job():
        _exit_now(0)
    return 0


@contextmanager
def _leaving_jobs(out: Output) -> Iterator[None]:
    """Exit at once on an error, too, if there is a refresh job that nobody waits for."""
    try:
        yield
    except Exception as error:
        if _has_abandoned_job():
            _exit_now(explain(error, as_json=out.as_json))
        raise


def _has_abandoned_job() -> bool:
    return any(thread.name.startswith("refresh_") for thread in threading.enumerate())


def _exit_now(code: int) -> NoReturn:
    """Exit: Python would wait for an abandoned job, perhaps for an hour. Its staged keys expire."""
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


def _run(runtime: Runtime, supervisor: Supervisor, *, until_idle: bool) -> bool:
    """Run the workers until they are stopped; return whether they ran out of work."""
    with supervisor.running(runtime):
        if until_idle:
            reader, store = runtime.log.reader(), runtime.store()
            with closing(Drained(reader, store, supervisor.mapping)) as drained:
                return supervisor.wait_until_idle(drained)
        while not supervisor.stop.wait(POLL_SECONDS):
            pass
    return False


def _totals(metrics: Metrics, family: str, label: str) -> dict[str, int]:
    """Return a counter's values by the given label."""
    return {
        sample.labels[label]: int(sample.value)
        for metric in metrics.registry.collect()
        for sample in metric.samples
        if sample.name == f"{family}_total"
    }


def _counts(totals: Mapping[str, int]) -> str:
    return ", ".join(f"{count} {name}" for name, count in totals.items()) or "none"
