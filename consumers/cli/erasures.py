"""``lethe erasures``."""

from __future__ import annotations

from contextlib import closing
from typing import Any

import click

from lethe.consumers.cli.requests.erasure import lines_of, where
from lethe.consumers.cli.terminal.options import global_options
from lethe.consumers.cli.terminal.output import Output, prepare
from lethe.consumers.contract import topics
from lethe.consumers.contract.events import rfc3339
from lethe.consumers.erasures.known import KnownErasure, KnownErasures
from lethe.consumers.service.connect import open_runtime
from lethe.engine.errors import LetheError

_COLUMNS = ("ERASURE", "WHAT", "STATUS", "SENT OR FINISHED", "MODELS>", "ROWS>", "AWAITED")
_AWAITED_SHOWN = 3


class UnknownErasure(LetheError):
    """Neither the request nor a receipt of the erasure is in the log."""

    code = "UNKNOWN_ERASURE"
    exit_code = 1


@click.command(short_help="Show erasures of persons, finished or not.")
@click.argument("erasure_id", required=False)
@click.option(
    "--limit", type=click.IntRange(1, 100_000), default=20, show_default=True,
    help="How many to list.",
)  # fmt: skip
@global_options
@click.pass_context
def erasures(ctx: click.Context, /, *, erasure_id: str | None, limit: int) -> None:
    """List erasures, or show what became of ERASURE_ID in each model.

    Those that are not finished come first, the oldest of them at the top; then the others, the
    newest first. WAITING: no worker has taken it yet. PENDING: models are asked. Receipts do not
    name the person. Exit code 1: nothing is known of ERASURE_ID.

    \b
    Examples:
      lethe erasures
      lethe erasures ticket-2041
    """  # noqa: D301 - click looks for the character
    settings, out = prepare(ctx)
    with open_runtime(settings) as runtime, closing(runtime.log.reader()) as reader:
        known = KnownErasures(runtime.client(), reader, runtime.trusted())
        if erasure_id is None:
            _list(out, known.list_recent(limit))
        elif (one := known.find(erasure_id)) is not None:
            show(out, one)
        else:
            raise UnknownErasure(
                f"no erasure {erasure_id!r}: it was never sent, could not be read (`lethe "
                f"dead-letters list`), or {topics.ERASURE_RECEIPTS} no longer keeps its receipt"
            )


def _list(out: Output, known: list[KnownErasure]) -> None:
    out.document({"erasures": [_facts(one) for one in known]})
    if not known:
        out.line("no erasure; `lethe erase` sends one")
        return
    out.table(_COLUMNS, [_row(one) for one in known])


def _facts(one: KnownErasure) -> dict[str, Any]:
    done = one.receipt is not None and one.receipt.final
    return {
        "erasure_id": one.erasure_id,
        "op": one.op,
        "namespace": one.namespace,
        "status": one.status,
        "finished_at" if done else "sent_at": rfc3339(one.at),
        "rows_deleted": 0 if one.receipt is None else one.receipt.rows_deleted,
        "awaited": [] if one.receipt is None else list(one.receipt.awaited),
    }


def _row(one: KnownErasure) -> tuple[str, ...]:
    models = () if one.receipt is None else one.receipt.models
    awaited = () if one.receipt is None else one.receipt.awaited
    more = len(awaited) - _AWAITED_SHOWN
    shown = ", ".join(awaited[:_AWAITED_SHOWN]) + (f" and {more} more" if more > 0 else "")
    rows = 0 if one.receipt is None else one.receipt.rows_deleted
    return (
        one.erasure_id, one.op, one.status, rfc3339(one.at), str(len(models)), str(rows), shown,
    )  # fmt: skip


def show(out: Output, one: KnownErasure) -> None:
    """Print one erasure: what was sent, the newest receipt, and where its evidence is."""
    event = None if one.request is None else one.request.event
    sent = None if one.request is None else one.request.record
    reason = event.reason if event is not None and isinstance(event.reason, str) else None
    receipt = one.receipt
    out.document(
        {
            **_facts(one),
            "reason": reason,
            "place": None if sent is None else sent.place,
            "receipt": None if receipt is None else receipt.model_dump(mode="json"),
        }
    )
    if receipt is None:
        out.line(f"{one.op} {one.erasure_id}: {one.status}: {where(None)}")
    else:
        for line in lines_of(receipt):
            out.line(line)
    if receipt is None or not receipt.final:
        out.line(f"since {rfc3339(one.at)}" + ("" if receipt is None else f"; {where(receipt)}"))
    else:
        out.line(f"finished {rfc3339(one.at)}")
    gone = "the request itself has expired from the log"
    why = "" if reason is None else f"; reason: {reason}"
    namespace = "" if one.namespace is None else f"; namespace {one.namespace}"
    out.line(f"request: {gone if sent is None else sent.place}{namespace}{why}")
    for model in () if receipt is None else receipt.models:
        for request in model.request_ids:
            out.line(f"evidence: lethe receipt {request} --model {model.model_id}")
