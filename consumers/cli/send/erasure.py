"""Erasures: made of the options of ``lethe erase``, sent; and their combined receipts."""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import click
from pydantic import ValidationError

from lethe.consumers.cli.send.lines import read_lines
from lethe.consumers.cli.terminal.output import Output, counted, prepare
from lethe.consumers.contract import topics
from lethe.consumers.contract.codes import REQUEST_ID_CONFLICT
from lethe.consumers.contract.erasure_events import (
    ModelErasure,
    SubjectErasureCompleted,
    SubjectErasureRequested,
)
from lethe.consumers.contract.events import rfc3339
from lethe.consumers.contract.requests import check_size
from lethe.consumers.log.base import Appended, Record
from lethe.consumers.service.client import Client, NoReceipt, newest_answers
from lethe.consumers.service.configuration.signing_keys import request_signer
from lethe.consumers.service.connect import Runtime, open_runtime
from lethe.consumers.suppression.marks import DEFAULT_NAMESPACE, subject_commitments
from lethe.engine.errors import InvalidRequest
from lethe.engine.store.layout.reading import first_error

MAX_LINES = 100_000
"""Subjects of one file: 100 MB at most as it is read, and minutes of a worker's time."""


def send(ctx: click.Context, options: dict[str, Any]) -> int:
    """Send the erasures that the options describe, wait if they say so; return the exit code."""
    settings, out = prepare(ctx)
    signer = request_signer(settings)
    requests = _requests(options)
    with (
        open_runtime(settings) as runtime,
        Client(runtime.log, signer, runtime.trusted()) as client,
    ):
        runtime.models()  # fails before anything is sent if the store cannot be reached
        answers = client.answers(topics.ERASURES, topics.ERASURE_RECEIPTS, "")
        with out.progress() as report:
            places = client.send(requests, report)
        if options["wait"] is None:
            _say_sent(out, requests, by_file=options["file"] is not None)
            return 0
        batches = answers.until(time.monotonic() + options["wait"])
        sent = [
            _Sent(request, place, _commitments(runtime, request))
            for request, place in zip(requests, places, strict=True)
        ]
        return _wait(out, batches, sent, options)


def _say_sent(out: Output, requests: Sequence[SubjectErasureRequested], *, by_file: bool) -> None:
    ids = [request.erasure_id for request in requests]
    out.document({"erasure_ids": ids} if by_file else {"erasure_id": ids[0]})
    for request in requests:
        whose = f": {request.subject_id}" if by_file else ""
        out.line(f"{_what(lift=request.lift)} {request.erasure_id} sent{whose}")


def _requests(options: dict[str, Any]) -> list[SubjectErasureRequested]:
    """Return what the options ask for: an erasure, or one for each line of a file.

    Without ids in it, a person who is named twice is erased once.
    """
    given = options["erasure_id"]
    if options["file"] is None:
        return [_request(options, options["subject"], given)]
    lines = read_lines(options["file"], MAX_LINES, "subject", ids=2)
    if len(lines) > MAX_LINES:
        raise InvalidRequest(f"{len(lines)} subjects; a file names at most {MAX_LINES}")
    requests = []
    for number, line in enumerate(dict.fromkeys(lines), 1):
        subject, _, own = (part.strip() for part in line.partition("\t"))
        erasure_id = own or (None if given is None else f"{given}-{number}")
        try:
            requests.append(_request(options, subject, erasure_id))
        except InvalidRequest as error:
            raise InvalidRequest(f"{options['file']}, subject {number}: {error}") from None
    return requests


def _request(
    options: dict[str, Any], subject: str, erasure_id: str | None
) -> SubjectErasureRequested:
    try:
        request = SubjectErasureRequested(
            erasure_id=erasure_id or str(uuid.uuid4()),
            subject_id=subject,
            namespace=options["namespace"],
            lift=options["lift"],
            requested_at=rfc3339(datetime.now(UTC)),
            reason=options["reason"],
        )
    except ValidationError as error:
        raise InvalidRequest(f"{first_error(error, 'erasure')}; nothing was sent") from None
    check_size(request.value())
    return request


# -- the receipts -------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Sent:
    """An erasure that was sent, and where it is in the log.

    ``commitments`` bind its receipts to its subject; None: this process cannot tell.
    """

    request: SubjectErasureRequested
    place: Appended
    commitments: Sequence[str] | None

    def is_answered_by(self, receipt: SubjectErasureCompleted) -> bool:
        """Return whether a receipt belongs to it: the id may have been used for something else."""
        if receipt.erasure_id != self.request.erasure_id:
            return False
        if self.is_source_of(receipt):
            return True
        known = self.commitments is None or receipt.subject_commitment in self.commitments
        return known and receipt.code != REQUEST_ID_CONFLICT

    def is_source_of(self, receipt: SubjectErasureCompleted) -> bool:
        """Return whether a receipt is of this very record, and not of one that was sent before."""
        source = receipt.source
        return (source.partition, source.offset) == (self.place.partition.index, self.place.offset)


def _commitments(runtime: Runtime, request: SubjectErasureRequested) -> Sequence[str] | None:
    seals = runtime.seals_if_there(runtime.store())
    if seals is None:
        return None
    namespace = request.namespace or DEFAULT_NAMESPACE
    return subject_commitments(seals, request.erasure_id, namespace, request.subject_id, request.op)


def _wait(
    out: Output,
    batches: Iterable[Sequence[Record]],
    sent: Sequence[_Sent],
    options: dict[str, Any],
) -> int:
    """Print the combined receipts once all are final; return the exit code."""
    seconds, names = options["wait"], [one.request.erasure_id for one in sent]
    with out.progress() as report:
        what = f"the receipt of {names[0]}" if len(names) == 1 else f"{len(names)} receipts"
        report(f"waiting for {what}", 0, 0)
        newest = _newest(batches, {one.request.erasure_id: one for one in sent})
    missing = [name for name in names if name not in newest or not newest[name].final]
    if missing:
        lost = newest.get(missing[0])
        others = f" and {len(missing) - 1} others" if len(missing) > 1 else ""
        raise NoReceipt(
            f"no final receipt of {_what(lift=options['lift'])} {missing[0]}{others} in "
            f"{seconds:g} s; {where(lost)}. A request that fails authentication gets none: it "
            f"goes to {topics.DEAD_LETTERS}"
        )
    found = [newest[name] for name in names]
    for one in sent:
        if one.commitments is None and not one.is_source_of(newest[one.request.erasure_id]):
            click.echo(
                f"lethe: warning: an erasure with the id {one.request.erasure_id} was sent "
                "before, and this is its receipt; without the seal key this command cannot tell "
                "whether it concerns this subject",
                err=True,
            )
    if options["file"] is None:
        out.document(found[0].model_dump(mode="json"))
    else:
        out.document([one.model_dump(mode="json") for one in found])
    for receipt in found:
        for line in lines_of(receipt):
            out.line(line)
    return 0 if all(receipt.complete for receipt in found) else 1


def _newest(
    batches: Iterable[Sequence[Record]], sent: Mapping[str, _Sent]
) -> dict[str, SubjectErasureCompleted]:
    """Return the final receipts of erasures as soon as all have come, else the newest of each."""

    def read(record: Record) -> tuple[str, SubjectErasureCompleted] | None:
        try:
            receipt = SubjectErasureCompleted.read(record.value or b"")
        except ValueError:
            return None
        one = sent.get(receipt.erasure_id)
        return (
            None
            if one is None or not one.is_answered_by(receipt)
            else (receipt.erasure_id, receipt)
        )

    return newest_answers(batches, read, sent)


def where(newest: SubjectErasureCompleted | None) -> str:
    """Return in words where an erasure is that has no final receipt yet."""
    if newest is None:
        return "it is in the log and will be processed once a worker runs (`lethe work`)"
    if not newest.awaited:
        return (
            "earlier row changes and commits are not all decided and in the store yet, or a model "
            "has lost rows (`lethe check` says which)"
        )
    shown = ", ".join(repr(model) for model in newest.awaited[:10])
    more = f" and {len(newest.awaited) - 10} more" if len(newest.awaited) > 10 else ""
    return f"awaited: {shown}{more}"


def lines_of(receipt: SubjectErasureCompleted) -> list[str]:
    """Return a combined receipt as lines: the whole, then each model."""
    head = f"{_what(lift=receipt.op == 'lift')} {receipt.erasure_id}: {receipt.status}"
    if receipt.code:
        head += f"; {receipt.code}: {receipt.detail}"
    elif receipt.op == "lift":
        head += "; the subject's rows may be registered and inserted again"
    else:
        rows = counted(receipt.rows_deleted, "row")
        asked = sum(bool(model.request_ids) for model in receipt.models)
        head += f"; {rows} deleted from {counted(asked, 'model')}"
    lines = [head, *(f"  {model.model_id}: {_model(model)}" for model in receipt.models)]
    if receipt.unknown:
        lines.append("no model knows this subject: is it spelt as in the training data?")
        lines += [f"  {model} knows another spelling of it" for model in receipt.similar]
    return lines


def _model(model: ModelErasure) -> str:
    if model.status == "NOT_COVERED":
        return "NOT_COVERED; registered without --subject, so it cannot be told whose rows it has"
    parts: list[str] = [model.status]
    if model.code:
        parts.append(f"{model.code}: {model.detail}" if model.detail else model.code)
    if model.status == "APPLIED":
        parts.append(f"{counted(model.rows_deleted, 'row')} deleted, version {model.version}")
    return "; ".join(parts)


def _what(*, lift: bool) -> str:
    return "lift" if lift else "erasure"
