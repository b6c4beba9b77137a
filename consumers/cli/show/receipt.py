"""``lethe receipt``."""

from __future__ import annotations

from contextlib import closing
from dataclasses import asdict
from pathlib import Path
from typing import Any

import click

from lethe.consumers.audit.commits import RequestCommit, seals_of_auditor
from lethe.consumers.audit.request.proof import proof_of
from lethe.consumers.audit.request.report import (
    FoundReceipt,
    RequestReport,
    UnknownRequest,
    report_of,
)
from lethe.consumers.audit.request.rows import Opening, RowsReport, rows_report
from lethe.consumers.cli.send.receipts import what_changed
from lethe.consumers.cli.show.erasures import show
from lethe.consumers.cli.terminal.options import cosigned_option, global_options, trust_option
from lethe.consumers.cli.terminal.output import (
    Output,
    counted,
    error_number,
    number,
    prepare,
    wrapped,
)
from lethe.consumers.contract.events import RowsChanged, rfc3339
from lethe.consumers.contract.signatures import TrustedKeys
from lethe.consumers.contract.tlog import read_notes
from lethe.consumers.deletions.validate import Valid
from lethe.consumers.erasures.known import KnownErasures
from lethe.consumers.service.configuration.signing_keys import keys_of_auditor, signer_of
from lethe.consumers.service.connect import open_runtime


@click.command(short_help="Show what became of one request or erasure.")
@click.argument("request_id")
@click.option("--model", metavar="M", help="The model; needed if several have this request id.")
@click.option(
    "--row", "asked", multiple=True, metavar="ID", help="Check that the request names this row."
)
@click.option(
    "--format", "form", type=click.Choice(["text", "tlog-proof"]), default="text",
    show_default=True, help="tlog-proof: the receipt and its inclusion proof as C2SP defines them.",
)  # fmt: skip
@cosigned_option
@trust_option
@global_options
@click.pass_context
def receipt(
    ctx: click.Context,
    /,
    *,
    request_id: str,
    model: str | None,
    asked: tuple[str, ...],
    form: str,
    cosigned: tuple[Path, ...],
) -> int:
    """Show what became of REQUEST_ID, with the evidence; of an erasure, what `erasures` shows.

    When and where it was sent; its outcome, and when; the version that it is part of, and that
    version's place in the checked chain; signatures; the proof that its receipt is in the receipt
    log; the salt that opens its commitment to row ids (whoever has the salt can check ids, so give
    it only to those who may know them); and whether the records of its rows are erased.

    Exit code 1: the request is unknown, a check failed, or a --row is not among its rows.

    With --format tlog-proof: the receipt with its place in the receipt log, signed by the key that
    signs here. `lethe key show --log MODEL` prints the key that its readers need. With --cosigned,
    the checkpoint in it is the one in FILE, with the cosignatures of witnesses.

    \b
    Examples:
      lethe receipt erasure-2041
      lethe receipt erasure-2041 --row u17 --json
      lethe receipt erasure-2041 --format tlog-proof > erasure-2041.tlog-proof
    """  # noqa: D301 - click looks for the character
    settings, out = prepare(ctx)
    if cosigned and form != "tlog-proof":
        raise click.UsageError("--cosigned requires --format tlog-proof")
    trusted = keys_of_auditor(settings)
    signer = signer_of(settings) if form == "tlog-proof" else None
    if signer is not None and trusted is None:
        trusted = TrustedKeys.of([signer.public])
    with (
        open_runtime(settings) as runtime,
        closing(runtime.log.reader()) as reader,
        out.progress() as progress,
    ):
        store = runtime.store()
        seals = seals_of_auditor(runtime, store)
        try:
            report = report_of(store, reader, request_id, model, trusted, progress, seals=seals)
        except UnknownRequest:
            erasure = KnownErasures(store.client, reader, trusted).find(request_id)
            if erasure is None:
                raise
            if model is not None or asked or signer is not None:
                raise click.UsageError(
                    f"{request_id!r} is an erasure, which names a person and no rows; the "
                    "requests that it sent to models name rows: `lethe erasures` shows them"
                ) from None
            show(out, erasure)
            return 0
        if signer is not None:
            proof = proof_of(store, report, signer, read_notes(cosigned))
            out.document({"tlog_proof": proof})
            out.line(proof.removesuffix("\n"))
            return 0
        rows = rows_report(store, report, asked, progress)
    faults = [*report.faults(), *rows.faults()]
    out.document(_document(report, rows, faults))
    _print(out, report, rows)
    for fault in faults:
        out.line(f"FAILED: {fault}")
    return 1 if faults or False in rows.members.values() else 0


# -- for programs -------------------------------------------------------------------------------


def _document(report: RequestReport, rows: RowsReport, faults: list[str]) -> dict[str, Any]:
    version, tip, commit = report.version, report.history.tip, report.commit
    chain, erasure = report.chain, rows.erasure
    return {
        "request_id": report.request_id,
        "model_id": report.model_id,
        "status": report.last.receipt.status,
        "ok": not faults,
        "faults": faults,
        "asked": _asked(report),
        "receipts": [_receipt(receipt) for receipt in report.receipts],
        "conflicts": [_receipt(receipt) for receipt in report.conflicts],
        "unsigned": [_receipt(receipt) for receipt in report.unsigned],
        "commit": commit
        and {
            "commit": commit.record.number,
            "digest": commit.record.digest,
            "prev": commit.record.open.prev,
            "offset": commit.record.offset,
            "place": commit.record.place,
            "opened": commit.commit is not None,
        },
        "version": version
        and {
            **version.event.model_dump(mode="json"),
            "place": version.place,
            "signature": asdict(version.signature),
        },
        "chain": {"result": chain.result.value, "detail": chain.detail},
        "newest": tip and {"version": tip.event.version, "digest": tip.event.digest},
        "inclusion": report.inclusion and asdict(report.inclusion),
        "commitment": rows.opening and asdict(rows.opening),
        "rows": rows.members,
        "rows_never_members": sorted(rows.never),
        "erased": erasure and {"done": erasure.done, **asdict(erasure)},
    }


def _asked(report: RequestReport) -> dict[str, Any] | None:
    if report.request is None:
        return None
    item = report.request.item
    place = {"at": report.request.sent_at, **report.last.receipt.source.model_dump()}
    if not isinstance(item, Valid):
        return place
    request = item.request
    if isinstance(request, RowsChanged):
        return place | {"rows": len(request.rows), "op": request.op}
    return place | {
        "rows": None if request.row_ids is None else len(request.row_ids),
        "subject": request.subject_id is not None,
        "requested_at": request.requested_at if isinstance(request.requested_at, str) else None,
        "reason": request.reason if isinstance(request.reason, str) else None,
    }


def _receipt(entry: FoundReceipt) -> dict[str, Any]:
    return {
        "receipt": entry.receipt.model_dump(mode="json"),
        "value": entry.value.decode("utf-8", errors="replace"),
        "place": entry.place,
        "signature": asdict(entry.signature),
    }


# -- for people ---------------------------------------------------------------------------------


def _print(out: Output, report: RequestReport, rows: RowsReport) -> None:
    lines = [("request", f"{report.request_id} of model {report.model_id}")]
    lines.append(("sent", _sent(report)))
    lines += [("answered", _answer(receipt)) for receipt in report.receipts]
    lines += [("conflict", _answer(receipt)) for receipt in report.conflicts]
    lines += [("no answer", _answer(receipt)) for receipt in report.unsigned]
    if report.commit is not None:
        lines.append(("commit", _commit(report.commit)))
    lines += _version(report)
    if report.last.receipt.final:
        lines.append(("receipt log", _log(report)))
    if rows.opening is not None:
        lines += _commitment(rows.opening)
    lines += [("row", f"{row}: {_member(row, report, rows)}") for row in rows.members]
    lines.append(("erased", _erased(report, rows)))
    for name, value in lines:
        for line in wrapped(value, f"{name:<11}  "):
            out.line(line)


def _sent(report: RequestReport) -> str:
    source = report.last.receipt.source
    place = f"{source.topic}/{source.partition} at offset {source.offset}"
    sent = report.request
    if sent is None:
        return f"{place}; the request itself has expired from the log"
    when = "" if sent.sent_at is None else f"{sent.sent_at}, "
    if not isinstance(sent.item, Valid):
        return f"{when}{place}"
    request = sent.item.request
    if isinstance(request, RowsChanged):
        return f"{when}{place}: {counted(len(request.rows), 'row')} to {request.op}"
    if request.subject_id is None:
        what = f"{counted(len(request.row_ids or ()), 'row')} by id"
    else:
        what = "all rows of a subject"
    why = f"; reason: {request.reason}" if isinstance(request.reason, str) else ""
    return f"{when}{place}: {what}{why}"


def _answer(entry: FoundReceipt) -> str:
    receipt = entry.receipt
    parts = [f"{rfc3339(receipt.completed_at)}: {receipt.status}"]
    if receipt.code:
        parts.append(f"{receipt.code}: {receipt.detail}" if receipt.detail else receipt.code)
    if receipt.final and receipt.status != "REJECTED":
        parts.append(what_changed(receipt))
        parts.append(f"version {receipt.version}")
    if receipt.rows_unknown:
        parts.append(f"{receipt.rows_unknown} unknown")
    if receipt.error is not None:
        error = receipt.error
        parts.append(f"error {error_number(error.relative)} of a budget of {number(error.budget)}")
    parts += [entry.place or "kept by the state; it has expired from the log"]
    parts.append(entry.signature.detail)
    return "; ".join(parts)


def _commit(decided: RequestCommit) -> str:
    record, opened = decided.record, decided.commit is not None
    content = "it seals this receipt" if opened else "it cannot be opened here"
    return f"{record.number} ({record.digest[:12]}); {record.place}; {content}"


def _version(report: RequestReport) -> list[tuple[str, str]]:
    version, newest = report.version, report.history.tip
    if version is None or newest is None:
        return []
    event = version.event
    place = (
        f"{event.version} of {rfc3339(event.created_at)}, generation {event.generation}; "
        f"{version.place}; {version.signature.detail}"
    )
    same = newest.event.version == event.version
    newest_is = f"{'it' if same else f'version {newest.event.version}'} is the newest"
    return [
        ("version", place),
        ("digest", event.digest),
        ("chain", f"{report.chain.result.value}: {report.chain.detail}; {newest_is}"),
    ]


def _log(report: RequestReport) -> str:
    proof = report.inclusion
    if proof is not None:
        result = "its inclusion proof holds" if proof.verified else "its inclusion proof FAILED"
        return (
            f"receipt {proof.index} of {proof.size} in the log of version {proof.version}: {result}"
        )
    if report.state is None:
        return "NOT CHECKED: the store does not hold this model"
    return (
        "in no version's log: it is newer than the newest version, or from before the receipt log "
        "or the model existed"
    )


def _commitment(opening: Opening) -> list[tuple[str, str]]:
    result = "the rows of the request are no longer known"
    if opening.opens is not None:
        verb = "opens to the rows of the request" if opening.opens else "does NOT open to them"
        result = f"it {verb}"
    return [("commitment", f"{opening.rows_commitment}; {result}"), ("salt", opening.salt)]


def _member(row: str, report: RequestReport, rows: RowsReport) -> str:
    known, stranger = rows.members[row], f"it was never a row of model {report.model_id!r}"
    if known:
        return "among the rows of the request"
    if known is None and row not in rows.never:
        return "NOT CHECKED: the rows of the request are no longer known"
    if known is None:
        return stranger
    return f"NOT among its rows; {stranger}" if row in rows.never else "NOT among its rows"


def _erased(report: RequestReport, rows: RowsReport) -> str:
    named, erasure = rows.named, rows.erasure
    if not report.last.receipt.final:
        return "not yet: its rows wait for a rebuild without them"
    if report.last.receipt.status == "REJECTED":
        return "nothing was deleted"
    if erasure is None or named is None:
        return "NOT CHECKED: the rows that it named are no longer known"
    whose = counted(erasure.rows, "row")
    if not named.exact and named.known_from == "the ledger":
        whose = f"all {whose} of the version"
    if erasure.done:
        where = counted(erasure.generations, "generation")
        return f"{whose}: no record is left in {where}"
    return (
        f"NOT YET: {counted(erasure.records, 'record')} of {whose} left, from a job or a "
        "registration that did not finish; they expire, or the next registration removes them"
    )
