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
@click.option("--model", metavar="M", help="Whose request; needed where several have this id.")
@click.option("--row", "rows", multiple=True, metavar="ID", help="Is this row among its rows?")
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
    """Tell what became of REQUEST_ID, with everything that shows it.

    When and where it was asked; what was decided, and when; the version it went into, and that
    version's place in the checked chain; signatures; the proof that its receipt is in the log of
    receipts; the salt that opens its commitment to row ids (whoever is given it can check ids, so
    give it to those who may know them); and whether the rows' records are erased by now.

    Exit code 1: nobody knows the request, something does not hold, or a --row is not among its
    rows.

    \b
    Examples:
      lethe receipt erasure-2041
      lethe receipt erasure-2041 --row u17 --json
    """  # noqa: D301 - click looks for the character
    settings, out = prepare(ctx)
    trusted = keys_of_auditor(settings)
    with open_runtime(settings) as runtime, out.progress() as report:
        found = _gather(runtime, request_id, model, rows, trusted, report)
    out.document(_document(found))
    _print(out, found)
    faults = found.faults()
    for fault in faults:
        out.line(f"FAILED: {fault}")
    return 1 if faults or not all(found.members.values()) else 0


class _Gathered:
    """A story with its rows."""

    def __init__(
        self,
        story: RequestReport,
        rows: Rows | None,
        erasure: Erasure | None,
        asked: Sequence[str],
        never: Collection[str] = (),
    ) -> None:
        self.story = story
        self.rows = rows
        self.erasure = erasure
        self.opening: Opening | None = opening_of(story, rows)
        exact = rows is not None and rows.exact
        self.members = {row: row in rows.ids for row in asked} if rows is not None and exact else {}
        self.never = frozenset(never)
        self.unanswered = [row for row in asked if row not in self.members]

    def faults(self) -> list[str]:
        """Return what does not hold."""
        story, found = self.story, []
        if story.chain.result is Result.FAILED:
            found.append(f"chain: {story.chain.detail}")
        signatures: list[tuple[FoundReceipt | None, Signature]] = [
            (t, t.signature) for t in story.told
        ]
        if story.version_signature is not None:
            signatures.append((None, story.version_signature))
        for told, signature in signatures:
            unsigned = signature.key_id is None and story.vouched(told)
            if signature.valid is False and not unsigned:
                where = "the version" if told is None else told.place
                found.append(f"{where}: {signature.detail}")
        if story.inclusion is not None and not story.inclusion.verified:
            found.append("the receipt is not in the receipt log that the version names")
        if self.opening is not None and self.opening.opens is False:
            found.append("the receipt's commitment does not open to the rows of the request")
        number, last = story.last.receipt.version, story.last.receipt
        if last.status == "APPLIED" and story.version is None:
            found.append(f"version {number} is not in the log")
        listed = () if story.version is None else story.version.event.request_ids
        known = story.version is not None
        if last.status == "APPLIED" and known and story.request_id not in listed:
            found.append(f"version {number} does not list this request")
        return found


def _gather(
    runtime: Runtime,
    request_id: str,
    model: str | None,
    named: Sequence[str],
    trusted: TrustedKeys | None,
    report: Any,
) -> _Gathered:
    store, reader = runtime.store(), runtime.log.reader()
    try:
        seals = seals_of_auditor(runtime, store)
        story = story_of(store, reader, request_id, model, trusted, report, seals=seals)
        rows = rows_of(store, story, named)
        erasure = None
        deleted = story.last.receipt.status in ("APPLIED", "ALREADY_APPLIED")
        if rows is not None and story.state is not None and deleted:
            report("looking for row records", 0, 0)
            erasure = erasure_of(store, story.state, rows.ids)
        never = never_members(store.client, story.model_id, named)
        return _Gathered(story, rows, erasure, named, never)
    finally:
        reader.close()


# -- for programs -------------------------------------------------------------------------------


def _document(found: _Gathered) -> dict[str, Any]:
    story, opening, erasure = found.story, found.opening, found.erasure
    version, newest, asked = story.version, story.newest, story.asked
    return {
        "request_id": story.request_id,
        "model_id": story.model_id,
        "status": story.last.receipt.status,
        "ok": not found.faults(),
        "faults": found.faults(),
        "asked": None
        if asked is None
        else {
            "at": _moment(asked.record.timestamp_ms),
            **story.last.receipt.source.model_dump(),
            **(_what(asked.item) if isinstance(asked.item, Valid) else {}),
        },
        "receipts": [_told(told) for told in story.told],
        "conflicts": [_told(told) for told in story.conflicts],
        "commit": _commit(story.decided),
        "version": None
        if version is None
        else {
            **version.event.model_dump(mode="json"),
            "place": version.place,
            "signature": _signature(story.version_signature),
        },
        "chain": {"result": story.chain.result.value, "detail": story.chain.detail},
        "newest": None
        if newest is None
        else {"version": newest.event.version, "digest": newest.event.digest},
        "inclusion": _inclusion(story),
        "commitment": None
        if opening is None
        else {
            "rows_commitment": opening.commitment,
            "salt": opening.salt.hex(),
            "opens": opening.opens,
        },
        "rows": {row: found.members.get(row) for row in (*found.members, *found.unanswered)},
        "rows_never_members": sorted(found.never),
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


def _inclusion(story: RequestReport) -> dict[str, Any] | None:
    proof = story.inclusion
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


def _told(told: FoundReceipt) -> dict[str, Any]:
    return {
        "receipt": told.receipt.model_dump(mode="json"),
        "value": told.value.decode("utf-8", errors="replace"),
        "place": told.place,
        "signature": _signature(told.signature),
    }


def _signature(signature: Signature | None) -> dict[str, Any] | None:
    if signature is None:
        return None
    return {"key_id": signature.key_id, "valid": signature.valid, "detail": signature.detail}


def _what(item: Valid) -> dict[str, Any]:
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


def _print(out: Output, found: _Gathered) -> None:
    story = found.story
    lines = [("request", f"{story.request_id} of model {story.model_id}"), ("asked", _asked(story))]
    lines += [("answered", _answer(told)) for told in story.told]
    lines += [("conflict", _answer(told)) for told in story.conflicts]
    if story.decided is not None:
        lines.append(("commit", _decided(story.decided)))
    if story.version is not None:
        lines += _version(story)
    if story.last.receipt.final:
        lines.append(("receipt log", _log(story)))
    if found.opening is not None:
        lines += _commitment(found.opening)
    lines += [("row", f"{row}: {_member(row, found)}") for row in found.members]
    lines += [
        (
            "row",
            f"{row}: it never was a row of model {found.story.model_id!r}"
            if row in found.never
            else f"{row}: NOT CHECKED: the rows of the request are not known any more",
        )
        for row in found.unanswered
    ]
    lines.append(("erased", _erased(found)))
    for name, value in lines:
        for line in wrapped(value, f"{name:<11}  "):
            out.line(line)


def _asked(story: RequestReport) -> str:
    source = story.last.receipt.source
    place = f"{source.topic}/{source.partition} at offset {source.offset}"
    asked = story.asked
    if asked is None:
        return f"{place}; the request itself has left the log"
    at = _moment(asked.record.timestamp_ms)
    when = "" if at is None else f"{at}, "
    if not isinstance(asked.item, Valid):
        return f"{when}{place}"
    request = asked.item.request
    if request.subject_id is None:
        what = f"{counted(len(request.row_ids or ()), 'row')} by id"
    else:
        what = "all rows of a subject"
    why = f"; reason: {request.reason}" if isinstance(request.reason, str) else ""
    return f"{when}{place}: {what}{why}"


def _answer(told: FoundReceipt) -> str:
    receipt = told.receipt
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
    parts += [told.place or "kept by the state; it has left the log", told.signature.detail]
    return "; ".join(parts)


def _decided(decided: Decided) -> str:
    fact = decided.fact
    said = "it seals this receipt" if decided.commit is not None else "it is not opened here"
    return f"{fact.number} ({fact.digest[:12]}); {fact.place}; {said}"


def _version(story: RequestReport) -> list[tuple[str, str]]:
    version, newest = story.version, story.newest
    if version is None or newest is None:
        return []
    event, signature = version.event, story.version_signature
    signed = "" if signature is None else f"; {signature.detail}"
    place = (
        f"{event.version} of {rfc3339(event.created_at)}, generation {event.generation}; "
        f"{version.place}{signed}"
    )
    stands = (
        "it is the newest"
        if newest.event.version == event.version
        else f"version {newest.event.version} is the newest"
    )
    return [
        ("version", place),
        ("digest", event.digest),
        ("chain", f"{story.chain.result.value}: {story.chain.detail}; {stands}"),
    ]


def _log(story: RequestReport) -> str:
    proof = story.inclusion
    if proof is not None:
        result = "its inclusion proof holds" if proof.verified else "its inclusion proof FAILED"
        return (
            f"receipt {proof.index} of {proof.size} in the log of version {proof.version}: {result}"
        )
    if story.state is None:
        return "NOT CHECKED: the store does not hold this model"
    return (
        "in no version's log: it is newer than the newest version, or older than the log or the "
        "model"
    )


def _commitment(opening: Opening) -> list[tuple[str, str]]:
    opens = {True: "it opens to the rows of the request", False: "it does NOT open to them",
             None: "the rows of the request are not known any more"}[opening.opens]  # fmt: skip
    return [("commitment", f"{opening.commitment}; {opens}"), ("salt", opening.salt.hex())]


def _member(row: str, found: _Gathered) -> str:
    if found.members[row]:
        return "among the rows of the request"
    never = f"; it never was a row of model {found.story.model_id!r}" if row in found.never else ""
    return f"NOT among its rows{never}"


def _erased(found: _Gathered) -> str:
    story, erasure, rows = found.story, found.erasure, found.rows
    if not story.last.receipt.final:
        return "not yet: its rows wait for a rebuild without them"
    if story.last.receipt.status == "REJECTED":
        return "nothing was deleted"
    if erasure is None or rows is None:
        return "NOT CHECKED: which rows it named is not known any more"
    whose = counted(erasure.rows, "row")
    if not rows.exact and rows.known_from == "the ledger":
        whose = f"all {whose} of the version"
    if erasure.done:
        where = counted(erasure.generations, "generation")
        return f"{whose}: no record is left in {where}"
    return (
        f"NOT YET: {counted(erasure.records, 'record')} of {whose} still there, of a job or a "
        "registration that was not finished; they expire, or go with the next registration"
    )
