"""``lethe status``."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from contextlib import closing
from typing import Any

import click
from pydantic import TypeAdapter

from lethe.consumers.cli.show.dead_letters import facts_of
from lethe.consumers.cli.terminal.options import global_options
from lethe.consumers.cli.terminal.output import (
    Output,
    certificate_line,
    classes_line,
    counted,
    duration,
    error_number,
    number,
    prepare,
)
from lethe.consumers.contract import topics
from lethe.consumers.contract.events import rfc3339
from lethe.consumers.deletions.dead_letters import count_letters
from lethe.consumers.service.connect import open_runtime
from lethe.consumers.versions.certificates import certificate_of
from lethe.consumers.versions.refresh_schedule import is_stuck
from lethe.consumers.workers.drained import PartitionLag, lags, stuck
from lethe.consumers.workers.leases import Lease, find_unattended, read_leases, topics_by_role
from lethe.engine.store.layout.records import Certificate
from lethe.engine.store.layout.state import ModelState
from lethe.engine.store.membership import registered_models

_COLUMNS = (
    "MODEL", "KIND", "METHOD", "VERSION>", "LIVE>", "DELETED>", "ERROR>", "KNOWN AS", "BUDGET>",
    "REFRESH", "STATUS",
)  # fmt: skip


@click.command(short_help="Show models, errors against budgets, and lag.")
@click.argument("model", required=False)
@global_options
@click.pass_context
def status(ctx: click.Context, /, *, model: str | None) -> None:
    """Show every model, or MODEL in full.

    Shows the version, live and deleted rows, the published error (relative distance to retraining,
    and whether it is exact, an estimate or a certificate) against its budget, a pending refresh,
    how many requests wait in each partition, which workers are alive and what they read, and which
    refreshes run and wait there. A worker that was killed still counts as alive for half a minute.

    A model is STUCK if its deferred requests wait for a rebuild that is not even pending.

    \b
    Examples:
      lethe status
      lethe status churn --json
    """  # noqa: D301 - click looks for the character
    settings, out = prepare(ctx)
    with open_runtime(settings) as runtime, closing(runtime.log.reader()) as reader:
        store = runtime.store()
        names = registered_models(store.client) if model is None else [model]
        states = [store.load_model(name) for name in names]
        read = itertools.chain(*topics_by_role().values())
        every = {topic: list(lags(reader, store, topic)) for topic in read}
        waiting = [*every[topics.DELETIONS], *every[topics.ROW_CHANGES]]
        workers = read_leases(store)
        left = find_unattended(itertools.chain(*every.values()), workers)
        letters = count_letters(reader)
        jobs = sum(lag.waiting for lag in every[topics.REFRESH_JOBS])
        models = [_document(state) for state in states]
    total = sum(lag.waiting for lag in waiting)
    facts = {
        "lag": total,
        "partitions": _partitions(waiting),
        "refresh_jobs_waiting": jobs,
        "dead_letters": letters.kept,
        "last_dead_letter": letters.last and facts_of(letters.last),
        "workers": [one.model_dump(mode="json") for one in workers],
        "refreshes": [
            {"host": one.host, "pid": one.pid, **shown.model_dump(mode="json")}
            for one in workers
            for shown in one.refreshes
        ],
        "unattended": left,
    }
    if model is not None:
        out.document({**models[0], **facts})
        _one(out, models[0])
    else:
        out.document({"models": models, **facts})
        _all(out, models)
    _workers(out, workers, left)
    partitions = counted(len(waiting), "partition")
    for stuck_model in (one for one in models if one["stuck"] is not None):
        out.line(f"STUCK: {stuck_model['stuck']}")
    wait = "waits" if jobs == 1 else "wait"
    lag, orders = counted(total, "request"), counted(jobs, "refresh job")
    out.line(f"lag: {lag} in {partitions}; {orders} {wait}")
    if letters.last is not None:
        out.line(f"dead letters: {letters}")


def _document(state: ModelState) -> dict[str, Any]:
    meta, config = state.meta, state.meta.config
    pending, certificate = meta.pending_job, certificate_of(state)
    return {
        "model_id": config.model_id,
        "kind": config.kind.value,
        "method": config.method,
        "ridge": config.ridge,
        "status": meta.status,
        "version": state.version,
        "generation": meta.generation,
        "digest": state.digest,
        "rows_live": meta.rows_live,
        "rows_deleted": meta.rows_deleted,
        "rows_inserted": meta.rows_inserted,
        "rows_corrected": meta.rows_corrected,
        "rows_deleted_in_generation": meta.K,
        "features": len(config.feature_names),
        "targets": list(config.target_names),
        "classes": list(config.class_names),
        "class_counts": meta.class_counts,
        "fit_intercept": config.fit_intercept,
        "error": meta.error.model_dump(mode="json"),
        "certificate": None if certificate is None else certificate.model_dump(mode="json"),
        "pending_refresh": None
        if pending is None
        else {
            "job_id": pending.job_id,
            "reason": pending.reason,
            "ordered_at": rfc3339(pending.ordered_at),
        },
        "requests_deferred": len(state.deferred),
        "stuck": stuck(state) if is_stuck(state) else None,
        "refreshed_at": rfc3339(meta.refreshed_at),
        "refresh_every_seconds": config.refresh_every_seconds,
    }


def _outputs(m: dict[str, Any]) -> dict[str, str]:
    """Return a fact about several targets or named classes, if the model has them."""
    if m["classes"]:
        return {"target": f"{m['targets'][0]}, {classes_line(m['classes'], m['class_counts'])}"}
    return {"targets": ", ".join(m["targets"])} if len(m["targets"]) > 1 else {}


def _partitions(waiting: Sequence[PartitionLag]) -> list[dict[str, Any]]:
    return [
        {
            "topic": lag.partition.topic,
            "partition": lag.partition.index,
            "next_offset": lag.next_offset,
            "lag": lag.waiting,
        }
        for lag in waiting
    ]


def _all(out: Output, models: Sequence[dict[str, Any]]) -> None:
    if not models:
        out.line("no model is registered; `lethe register` adds one")
        return
    out.table(
        _COLUMNS,
        [
            (
                m["model_id"],
                m["kind"] + (f", {len(m['classes'])} classes" if m["classes"] else ""),
                m["method"],
                str(m["version"]),
                str(m["rows_live"]),
                str(m["rows_deleted"]),
                error_number(m["error"]["relative"]),
                m["error"]["kind"],
                number(m["error"]["budget"]),
                _refresh(m),
                m["status"],
            )
            for m in models
        ],
    )


def _workers(out: Output, workers: Sequence[Lease], left: Sequence[str]) -> None:
    for one in workers:
        out.line(
            f"worker: {one.role} on {one.host} (pid {one.pid}, lethe {one.version}) since "
            f"{rfc3339(one.since)} reads {one.reads}"
        )
        for shown in one.refreshes:
            out.line(f"refresh: {shown.model_id} {shown.line} on {one.host} (pid {one.pid})")
    if not workers:
        out.line("workers: none")
    for line in left:
        out.line(f"WAITING: {line}")


def _refresh(m: dict[str, Any]) -> str:
    if m["stuck"] is not None:
        return "STUCK"
    return "-" if m["pending_refresh"] is None else str(m["pending_refresh"]["reason"])


def error_line(error: dict[str, Any]) -> str:
    """Return the published error as a line."""
    budget = number(error["budget"])
    if error["kind"] == "unknown":
        return f"unknown, which counts as over its budget of {budget}; a refresh measures it"
    known = f"absolute {number(error['value'])}, bound {number(error['bound'])}"
    return f"{number(error['relative'])} of a budget of {budget} ({error['kind']}, {known})"


def _certificate(m: dict[str, Any]) -> str:
    certificate: Certificate = TypeAdapter(Certificate).validate_python(m["certificate"])
    return certificate_line(certificate, name=False)


def _one(out: Output, m: dict[str, Any]) -> None:
    pending, every = m["pending_refresh"], m["refresh_every_seconds"]
    out.facts(
        {
            "model": m["model_id"],
            "kind": f"{m['kind']} by {m['method']}, ridge {m['ridge']:g}",
            "status": m["status"],
            "version": f"{m['version']} (generation {m['generation']})",
            "digest": m["digest"],
            "rows": f"{m['rows_live']} live, {m['rows_deleted']} deleted "
            f"({m['rows_deleted_in_generation']} in this generation)",
            "features": f"{m['features']}{' and an intercept' * m['fit_intercept']}",
            **_outputs(m),
            "error": error_line(m["error"]),
            **({} if m["certificate"] is None else {"certificate": _certificate(m)}),
            "refreshed": m["refreshed_at"]
            + ("" if every is None else f", every {duration(every)}"),
            "refresh": "none is pending"
            if pending is None
            else f"pending since {pending['ordered_at']}: {pending['reason']}",
            "deferred": counted(m["requests_deferred"], "request"),
        }
    )
