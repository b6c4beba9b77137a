"""``lethe check``: one line for each dependency and invariant, OK or what to do."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack

import click

from lethe.consumers.audit.health.checks import (
    Check,
    check_letters,
    check_log,
    check_programs,
    check_signing,
    check_store,
)
from lethe.consumers.audit.health.commits import check_commits
from lethe.consumers.audit.health.models import check_model
from lethe.consumers.audit.health.topics import check_topics
from lethe.consumers.audit.health.workers import check_workers
from lethe.consumers.cli.terminal.options import global_options
from lethe.consumers.cli.terminal.output import prepare
from lethe.consumers.service.configuration.settings import Settings
from lethe.consumers.service.connect import Runtime, open_runtime
from lethe.engine.errors import LetheError
from lethe.engine.store.membership import registered_models
from lethe.engine.store.store import ModelStore


@click.command(short_help="Check servers, topics and stored invariants.")
@global_options
@click.pass_context
def check(ctx: click.Context, /) -> int:
    """Check everything that a worker relies on; each line is OK or says what to do.

    Covers programs; the keys that events are signed with; the store, what a crash of it can lose,
    and its memory policy; the log and its topics, and whether they are those that the store knows
    and have what was read of them; whether requests became dead letters in the last 24 hours, and
    whether requests wait that no living worker reads; the keys that seal commits, how far the
    store follows lethe.commits, and which models are halted; and for each model its head, the
    lengths of V and Q, row records against the count of live rows, the identity L L^T w_i = x_i on
    rows drawn at random, published history against stored state, and deferred requests that no
    pending rebuild will resolve. Exit code 1 if anything fails.

    \b
    Example:
      lethe check
    """  # noqa: D301 - click looks for the character
    settings, out = prepare(ctx)
    checks: list[Check] = []
    for one in _checks(settings):
        checks.append(one)
        out.line(f"{'OK  ' if one.ok else 'FAIL'}  {one.subject}: {one.detail}")
    failed = sum(not one.ok for one in checks)
    out.document(
        {
            "ok": failed == 0,
            "checks": [
                {"subject": one.subject, "ok": one.ok, "detail": one.detail} for one in checks
            ],
        }
    )
    out.line(f"{len(checks)} checks, {failed} failed")
    return 1 if failed else 0


def _checks(settings: Settings) -> Iterator[Check]:
    yield from check_programs()
    yield from check_signing(settings)
    with ExitStack() as stack:
        try:
            runtime = stack.enter_context(open_runtime(settings))
        except LetheError as error:
            yield Check("servers", False, str(error))
            return
        store = _store(runtime)
        if isinstance(store, Check):
            yield store
        else:
            yield from check_store(store, runtime)
        log_fine = True
        for one in check_log(runtime, None if isinstance(store, Check) else store):
            log_fine = log_fine and one.ok
            yield one
        if isinstance(store, Check):
            return
        if log_fine:
            yield from check_letters(runtime)
            yield from check_workers(store, runtime)
            for one in check_topics(store, runtime):
                log_fine = log_fine and one.ok
                yield one
        if log_fine:
            yield from check_commits(store, runtime)
        for model in registered_models(store.client):
            yield from check_model(store, runtime.log if log_fine else None, model)


def _store(runtime: Runtime) -> ModelStore | Check:
    """Return the store; opening it proves that it answers and keeps what it acknowledges."""
    try:
        return runtime.store()
    except LetheError as error:
        return Check("store", False, str(error))
