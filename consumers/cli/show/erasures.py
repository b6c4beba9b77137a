"""``lethe erasures``."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path
from typing import Any

import click

from lethe.consumers.cli.send.erasure import lines_of, where
from lethe.consumers.cli.terminal.options import cosigned_option, global_options, trust_option
from lethe.consumers.cli.terminal.output import Output, counted, prepare
from lethe.consumers.contract import topics
from lethe.consumers.contract.events import rfc3339
from lethe.consumers.contract.tlog import read_notes
from lethe.consumers.erasures.known import KnownErasure, KnownErasures, UnknownErasure
from lethe.consumers.service.configuration.settings import Settings
from lethe.consumers.service.configuration.signing_keys import keys_of_auditor
from lethe.consumers.service.connect import open_runtime

_COLUMNS = ("ERASURE", "WHAT", "STATUS", "SENT OR FINISHED", "MODELS>", "ROWS>", "AWAITED")
_AWAITED_SHOWN = 3


@click.command(short_help="Show erasures of persons, finished or not.")
@click.argument("erasure_id", required=False)
@click.option(
    "--limit", type=click.IntRange(1, 100_000), default=20, show_default=True,
    help="How many to list.",
)  # fmt: skip
@click.option(
    "--bundle", type=click.Path(dir_okay=False, path_type=Path), metavar="FILE",
    help="Write the whole evidence of ERASURE_ID to a file, which names nobody.",
)  # fmt: skip
@click.option(
    "--own-copy", "subject", metavar="SUBJECT",
    help="With --bundle: the person's own copy, which names them and opens the commitment to them.",
)  # fmt: skip
@cosigned_option
@trust_option
@global_options
@click.pass_context
def erasures(
    ctx: click.Context,
    /,
    *,
    erasure_id: str | None,
    limit: int,
    bundle: Path | None,
    subject: str | None,
    cosigned: tuple[Path, ...],
) -> None:
    """List erasures, or show what became of ERASURE_ID in each model.

    Those that are not finished come first, the oldest of them at the top; then the others, the
    newest first. WAITING: no worker has taken it yet. PENDING: models are asked. Receipts do not
    name the person. Exit code 1: nothing is known of ERASURE_ID.

    With --bundle, one file has the combined receipt, what each model answered, and the proofs that
    these answers are in the models' receipt logs. `lethe audit --bundle` checks it, and so does the
    page of `lethe audit --page`.

    \b
    Examples:
      lethe erasures
      lethe erasures ticket-2041
      lethe erasures ticket-2041 --bundle ticket-2041.bundle
      lethe erasures ticket-2041 --bundle for-them.bundle --own-copy h7
      lethe audit --bundle ticket-2041.bundle
    """  # noqa: D301 - click looks for the character
    settings, out = prepare(ctx)
    if bundle is not None:
        _write(out, settings, erasure_id, bundle, subject, cosigned)
        return
    if subject is not None or cosigned:
        raise click.UsageError("--own-copy and --cosigned require --bundle FILE")
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


def _write(
    out: Output,
    settings: Settings,
    erasure_id: str | None,
    path: Path,
    subject: str | None,
    cosigned: tuple[Path, ...],
) -> None:
    """Write the evidence of an erasure to a file."""
    # The list of erasures need not wait for these: they import NumPy.
    from lethe.consumers.audit.commits import seals_of_auditor  # noqa: PLC0415
    from lethe.consumers.audit.erasure import evidence_of  # noqa: PLC0415
    from lethe.consumers.audit.published.bundle import write_bundle  # noqa: PLC0415

    if erasure_id is None:
        raise click.UsageError("--bundle writes the evidence of one erasure: give its ERASURE_ID")
    with (
        open_runtime(settings) as runtime,
        closing(runtime.log.reader()) as reader,
        out.progress() as progress,
    ):
        store = runtime.store()
        evidence = evidence_of(
            store,
            reader,
            erasure_id,
            trusted=keys_of_auditor(settings),
            seals=None if subject is None else seals_of_auditor(runtime, store),
            subject_id=subject,
            cosigned=read_notes(cosigned),
            progress=progress,
        )
    records = write_bundle(path, evidence.header, evidence.items)
    status = evidence.receipt.status
    names = "nobody" if subject is None else "the person"
    out.document(
        {"erasure_id": erasure_id, "status": status, "bundle": str(path), "records": records,
         "names_the_person": subject is not None}
    )  # fmt: skip
    out.line(f"{path}: erasure {erasure_id}, {status}; {counted(records, 'record')}")
    out.line(f"it names {names}; check it with `lethe audit --bundle {path}`")


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
    if receipt is not None:
        out.line(f"all of it: lethe erasures {one.erasure_id} --bundle FILE")
