"""``lethe receipt``."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from datetime import UTC, datetime
from typing import Any

import click

from lethe.consumers.audit.finding import Result
from lethe.consumers.audit.request_commit import Decided
from lethe.consumers.audit.request_report import FoundReceipt, RequestReport, Signature, story_of
from lethe.consumers.audit.request_rows import (
    Erasure,
    Opening,
    Rows,
    erasure_of,
    opening_of,
    rows_of,
)
from lethe.consumers.cli.options import global_options, trust_option
from lethe.consumers.cli.output import Output, counted, error_number, number, prepare, wrapped
from lethe.consumers.cli.seals import seals_of_auditor
from lethe.consumers.contract.events import rfc3339
from lethe.consumers.contract.signatures import TrustedKeys
from lethe.consumers.deletions.validate import Valid
from lethe.consumers.service.connect import Runtime, open_runtime
from lethe.consumers.service.signing_keys import keys_of_auditor
from lethe.engine.store.membership import never_members


@click.command(short_help="Show what became of one request.")
@click.argument("request_id")
@click.option("--model", metavar="M", help="The model; needed if several have this request id.")
@click.option(
    "--row", "rows", multiple=True, metavar="ID", help="Check that the request names this row."
)
@trust_option
@global_options
@click.pass_context
def receipt(
    ctx: click.Context,
    /,
    *,
    request_id: str,
    model: str | None,
    rows: tuple[str, ...],
) -> int:
    """Show what became of REQUEST_ID, with the evidence.

    When and where it was sent; its outcome, and when; the version that it is part of, and that
    version's place in the checked chain; signatures; the proof that its receipt is in the receipt
    log; the salt that opens its commitment to row ids (whoever has the salt can check ids, so give
    it only to those who may know them); and whether the records of its rows are erased.

    Exit code 1: the request is unknown, a check failed, or a --row is not among its rows.

    \b
    Examples:
      lethe receipt erasure-2041
      lethe receipt erasure-2041 --row u17 --json
    """  # noqa: D301 - click looks for the character
    settings, out = prepare(ctx)
    trusted = keys_of_auditor(settings)
    with open_runtime(settings) as runtime, out.progress() as progress:
        gathered = _gather(runtime, request_id, model, rows, trusted, progress)
    out.document(_document(gathered))
    _print(out, gathered)
    faults = gathered.faults()
    for fault in faults:
        out.line(f"FAILED: {fault}")
    return 1 if faults or not all(gathered.members.values()) else 0


class _Gathered:
    """A report on a request, with its rows."""

    def __init__(
        self,
        report: RequestReport,
        rows: Rows | None,
        erasure: Erasure | None,
        queried: Sequence[str],
        never: Collection[str] = (),
    ) -> None:
        self.report = report
        self.rows = rows
        self.erasure = erasure
        self.opening: Opening | None = opening_of(report, rows)
        exact = rows is not None and rows.exact
        known = rows.ids if rows is not None and exact else None
        self.members = {} if known is None else {row: row in known for row in queried}
        self.never = frozenset(never)
        self.unanswered = [row for row in queried if row not in self.members]

    def faults(self) -> list[str]:
        """Return the checks that failed."""
        report, faults = self.report, []
        if report.chain.result is Result.FAILED:
            faults.append(f"chain: {report.chain.detail}")
        signatures: list[tuple[FoundReceipt | None, Signature]] = [
            (receipt, receipt.signature) for receipt in report.receipts
        ]
        if report.version_signature is not None:
            signatures.append((None, report.version_signature))
        for receipt, signature in signatures:
            unsigned = signature.key_id is None and report.vouched(receipt)
            if signature.valid is False and not unsigned:
                where = "the version" if receipt is None else receipt.place
                faults.append(f"{where}: {signature.detail}")
        if report.inclusion is not None and not report.inclusion.verified:
            faults.append("the receipt is not in the receipt log that the version names")
        if self.opening is not None and self.opening.opens is False:
            faults.append("the receipt's commitment does not open to the rows of the request")
        number, last = report.last.receipt.version, report.last.receipt
        if last.status == "APPLIED" and report.version is None:
            faults.append(f"version {number} is not in the log")
        listed = () if report.version is None else report.version.event.request_ids
        known = report.version is not None
        if last.status == "APPLIED" and known and report.request_id not in listed:
            faults.append(f"version {number} does not list this request")
        return faults


def _gather(
    runtime: Runtime,
    request_id: str,
    model: str | None,
    named: Sequence[str],
    trusted: TrustedKeys | None,
    progress: Any,
) -> _Gathered:
    store, reader = runtime.store(), runtime.log.reader()
    try:
        seals = seals_of_auditor(runtime, store)
        report = story_of(store, reader, request_id, model, trusted, progress, seals=seals)
        rows = rows_of(store, report, named)
        erasure = None
        deleted = report.last.receipt.status in ("APPLIED", "ALREADY_APPLIED")
        if rows is not None and report.state is not None and deleted:
            progress("looking for row records", 0, 0)
            erasure = erasure_of(store, report.state, rows.ids)
        never = never_members(store.client, report.model_id, named)
        return _Gathered(report, rows, erasure, named, never)
    finally:
        reader.close()


# -- for programs -------------------------------------------------------------------------------


def _document(gathered: _Gathered) -> dict[str, Any]:
    report, opening, erasure = gathered.report, gathered.opening, gathered.erasure
    version, newest, request = report.version, report.newest, report.request
    return {
        "request_id": report.request_id,
        "model_id": report.model_id,
        "status": report.last.receipt.status,
        "ok": not gathered.faults(),
        "faults": gathered.faults(),
        "asked": None
        if request is None
        else {
            "at": _moment(request.record.timestamp_ms),
            **report.last.receipt.source.model_dump(),
            **(_request(request.item) if isinstance(request.item, Valid) else {}),
        },
        "receipts": [_receipt(receipt) for receipt in report.receipts],
        "conflicts": [_receipt(receipt) for receipt in report.conflicts],
        "commit": _commit(report.decided),
        "version": None
        if version is None
        else {
            **version.event.model_dump(mode="json"),
            "place": version.place,
            "signature": _signature(report.version_signature),
        },
        "chain": {"result": report.chain.result.value, "detail": report.chain.detail},
        "newest": None
        if newest is None
        else {"version": newest.event.version, "digest": newest.event.digest},
        "inclusion": _inclusion(report),
        "commitment": None
        if opening is None
        else {
            "rows_commitment": opening.commitment,
            "salt": opening.salt.hex(),
            "opens": opening.opens,
        },
        "rows": {**gathered.members, **dict.fromkeys(gathered.unanswered)},
        "rows_never_members": sorted(gathered.never),
        "erased": None
        if erasure is None
        else {
            "done": erasure.done,
            "rows": erasure.rows,
            "records": erasure.records,
            "generations": erasure.generations,
        },
    }


def _commit(decided: Decided | None) -> dict[str, Any] | None:
    if decided is None:
        return None
    fact = decided.fact
    return {
        "commit": fact.number,
        "digest": fact.digest,
        "prev": fact.open.prev,
        "offset": fact.offset,
        "place": fact.place,
        "opened": decided.commit is not None,
    }


def _inclusion(report: RequestReport) -> dict[str, Any] | None:
    proof = report.inclusion
    if proof is None:
        return None
    return {
        "version": proof.version,
        "index": proof.index,
        "size": proof.size,
        "root": proof.root.hex(),
        "leaf": proof.leaf.hex(),
        "proof": [node.hex() for node in proof.proof],
        "verified": proof.verified,
    }


def _receipt(entry: FoundReceipt) -> dict[str, Any]:
    return {
        "receipt": entry.receipt.model_dump(mode="json"),
        "value": entry.value.decode("utf-8", errors="replace"),
        "place": entry.place,
        "signature": _signature(entry.signature),
    }


def _signature(signature: Signature | None) -> dict[str, Any] | None:
    if signature is None:
        return None
    return {"key_id": signature.key_id, "valid": signature.valid, "detail": signature.detail}


def _request(item: Valid) -> dict[str, Any]:
    request = item.request
    return {
        "rows": None if request.row_ids is None else len(request.row_ids),
        "subject": request.subject_id is not None,
        "requested_at": request.requested_at if isinstance(request.requested_at, str) else None,
        "reason": request.reason if isinstance(request.reason, str) else None,
    }


def _moment(milliseconds: int) -> str | None:
    return rfc3339(datetime.fromtimestamp(milliseconds / 1000, UTC)) if milliseconds > 0 else None


# -- for people ---------------------------------------------------------------------------------


def _print(out: Output, gathered: _Gathered) -> None:
    report = gathered.report
    request = f"{report.request_id} of model {report.model_id}"
    lines = [("request", request), ("sent", _sent(report))]
    lines += [("answered", _answer(receipt)) for receipt in report.receipts]
    lines += [("conflict", _answer(receipt)) for receipt in report.conflicts]
    if report.decided is not None:
        lines.append(("commit", _decided(report.decided)))
    if report.version is not None:
        lines += _version(report)
    if report.last.receipt.final:
        lines.append(("receipt log", _log(report)))
    if gathered.opening is not None:
        lines += _commitment(gathered.opening)
    lines += [("row", f"{row}: {_member(row, gathered)}") for row in gathered.members]
    lines += [
        (
            "row",
            f"{row}: it was never a row of model {gathered.report.model_id!r}"
            if row in gathered.never
            else f"{row}: NOT CHECKED: the rows of the request are no longer known",
        )
        for row in gathered.unanswered
    ]
    lines.append(("erased", _erased(gathered)))
    for name, value in lines:
        for line in wrapped(value, f"{name:<11}  "):
            out.line(line)


def _sent(report: RequestReport) -> str:
    source = report.last.receipt.source
    place = f"{source.topic}/{source.partition} at offset {source.offset}"
    sent = report.request
    if sent is None:
        return f"{place}; the request itself has expired from the log"
    at = _moment(sent.record.timestamp_ms)
    when = "" if at is None else f"{at}, "
    if not isinstance(sent.item, Valid):
        return f"{when}{place}"
    request = sent.item.request
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
        parts.append(f"{counted(receipt.rows_deleted, 'row')} deleted")
        parts.append(f"version {receipt.version}")
    if receipt.rows_unknown:
        parts.append(f"{receipt.rows_unknown} unknown")
    if receipt.error is not None:
        error = receipt.error
        parts.append(f"error {error_number(error.relative)} of a budget of {number(error.budget)}")
    parts += [entry.place or "kept by the state; it has expired from the log"]
    parts.append(entry.signature.detail)
    return "; ".join(parts)


def _decided(decided: Decided) -> str:
    fact = decided.fact
    content = "it seals this receipt" if decided.commit is not None else "it cannot be opened here"
    return f"{fact.number} ({fact.digest[:12]}); {fact.place}; {content}"


def _version(report: RequestReport) -> list[tuple[str, str]]:
    version, newest = report.version, report.newest
    if version is None or newest is None:
        return []
    event, signature = version.event, report.version_signature
    signed = "" if signature is None else f"; {signature.detail}"
    place = (
        f"{event.version} of {rfc3339(event.created_at)}, generation {event.generation}; "
        f"{version.place}{signed}"
    )
    newest_is = (
        "it is the newest"
        if newest.event.version == event.version
        else f"version {newest.event.version} is the newest"
    )
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
        "in no version's log: it is newer than the newest version, or older than the log or the "
        "model"
    )


def _commitment(opening: Opening) -> list[tuple[str, str]]:
    opens = {True: "it opens to the rows of the request", False: "it does NOT open to them",
             None: "the rows of the request are no longer known"}[opening.opens]  # fmt: skip
    return [("commitment", f"{opening.commitment}; {opens}"), ("salt", opening.salt.hex())]


def _member(row: str, gathered: _Gathered) -> str:
    if gathered.members[row]:
        return "among the rows of the request"
    if row in gathered.never:
        return f"NOT among its rows; it was never a row of model {gathered.report.model_id!r}"
    return "NOT among its rows"


def _erased(gathered: _Gathered) -> str:
    report, erasure, rows = gathered.report, gathered.erasure, gathered.rows
    if not report.last.receipt.final:
        return "not yet: its rows wait for a rebuild without them"
    if report.last.receipt.status == "REJECTED":
        return "nothing was deleted"
    if erasure is None or rows is None:
        return "NOT CHECKED: the rows that it named are no longer known"
    whose = counted(erasure.rows, "row")
    if not rows.exact and rows.known_from == "the ledger":
        whose = f"all {whose} of the version"
    if erasure.done:
        where = counted(erasure.generations, "generation")
        return f"{whose}: no record is left in {where}"
    return (
        f"NOT YET: {counted(erasure.records, 'record')} of {whose} still there, from a job or a "
        "registration that did not finish; they expire, or the next registration removes them"
    )
