"""An erasure: made of the options of ``lethe erase``, sent; and its combined receipt."""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterable, Sequence
from contextlib import closing
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import chain
from typing import Any

import click
from pydantic import ValidationError

from lethe.consumers.cli.requests.receipts import NoReceipt, check_topics, new_records
from lethe.consumers.cli.terminal.output import Output, counted, prepare
from lethe.consumers.contract import topics
from lethe.consumers.contract.erasure_events import (
    ModelErasure,
    SubjectErasureCompleted,
    SubjectErasureRequested,
)
from lethe.consumers.contract.events import MAX_REQUEST_BYTES, rfc3339
from lethe.consumers.contract.requests import erasure_message
from lethe.consumers.erasures.pending import CONFLICT
from lethe.consumers.log.base import Appended, Record
from lethe.consumers.service.configuration.signing_keys import request_signer
from lethe.consumers.service.connect import Runtime, open_runtime
from lethe.consumers.suppression.marks import DEFAULT_NAMESPACE, subject_commitments
from lethe.engine.errors import InvalidRequest
from lethe.engine.store.layout.reading import first_error


def send(ctx: click.Context, options: dict[str, Any]) -> int:
    """Send the erasure that the options describe, wait if they say so; return the exit code."""
    settings, out = prepare(ctx)
    signer = request_signer(settings)
    request = _request(options)
    with open_runtime(settings) as runtime, closing(runtime.log.reader()) as reader:
        runtime.models()  # fails before anything is sent if the store cannot be reached
        check_topics(reader, topics.ERASURES, topics.ERASURE_RECEIPTS)
        [partition, *_] = reader.partitions(topics.ERASURE_RECEIPTS)
        begin = reader.bounds(partition).end
        with closing(runtime.log.producer()) as producer:
            [place] = producer.append([erasure_message(request, signer)])
        if options["wait"] is None:
            out.document({"erasure_id": request.erasure_id})
            out.line(f"{_what(lift=request.lift)} {request.erasure_id} sent")
            return 0
        deadline = time.monotonic() + options["wait"]
        batches = new_records(reader, partition, begin, deadline, runtime.trusted())
        sent = _Sent(request, place, _commitments(runtime, request))
        return _wait(out, batches, sent, options["wait"])


def _request(options: dict[str, Any]) -> SubjectErasureRequested:
    try:
        request = SubjectErasureRequested(
            erasure_id=options["erasure_id"] or str(uuid.uuid4()),
            subject_id=options["subject"],
            namespace=options["namespace"],
            lift=options["lift"],
            requested_at=rfc3339(datetime.now(UTC)),
            reason=options["reason"],
        )
    except ValidationError as error:
        raise InvalidRequest(f"{first_error(error, 'erasure')}; nothing was sent") from None
    if len(request.value()) > MAX_REQUEST_BYTES:
        raise InvalidRequest("the erasure has more than 1 MiB: shorten its reason")
    return request


# -- the receipt --------------------------------------------------------------------------------


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
        return known and receipt.code != CONFLICT

    def is_source_of(self, receipt: SubjectErasureCompleted) -> bool:
        """Return whether a receipt is of this very record, and not of one that was sent before."""
        source = receipt.source
        return (source.partition, source.offset) == (self.place.partition.index, self.place.offset)


def _commitments(runtime: Runtime, request: SubjectErasureRequested) -> Sequence[str] | None:
    seals = runtime.seals_if_there(runtime.store())
    if seals is None:
        return None
    op = "lift" if request.lift else "erase"
    namespace = request.namespace or DEFAULT_NAMESPACE
    return subject_commitments(seals, request.erasure_id, namespace, request.subject_id, op)


def _wait(out: Output, batches: Iterable[Sequence[Record]], sent: _Sent, seconds: float) -> int:
    """Print the combined receipt once it is final; return the exit code."""
    request = sent.request
    with out.progress() as report:
        report(f"waiting for the receipt of {request.erasure_id}", 0, 0)
        newest = _newest(batches, sent)
    if newest is None or not newest.final:
        raise NoReceipt(
            f"no final receipt of {_what(lift=request.lift)} {request.erasure_id} in "
            f"{seconds:g} s; {_where(newest)}. A request that fails authentication gets none: it "
            f"goes to {topics.DEAD_LETTERS}"
        )
    if sent.commitments is None and not sent.is_source_of(newest):
        click.echo(
            f"lethe: warning: an erasure was sent under {request.erasure_id} before, and this is "
            "its receipt; without the seal key it cannot be told whether it is of this subject",
            err=True,
        )
    out.document(newest.model_dump(mode="json"))
    for line in lines_of(newest):
        out.line(line)
    return 0 if newest.complete else 1


def _newest(batches: Iterable[Sequence[Record]], sent: _Sent) -> SubjectErasureCompleted | None:
    """Return the final receipt as soon as it comes, else the newest."""
    newest = None
    for record in chain.from_iterable(batches):
        newest = _receipt(record.value, sent) or newest
        if newest is not None and newest.final:
            break
    return newest


def _receipt(value: bytes | None, sent: _Sent) -> SubjectErasureCompleted | None:
    """Return a record's receipt if it belongs to this erasure."""
    try:
        receipt = SubjectErasureCompleted.read(value or b"")
    except ValueError:
        return None
    return receipt if sent.is_answered_by(receipt) else None


def _where(newest: SubjectErasureCompleted | None) -> str:
    """Return in words where an erasure is that has no final receipt yet."""
    if newest is None:
        return "it is in the log and will be processed once a worker runs (`lethe work`)"
    if not newest.awaited:
        return (
            "what came before it is not decided and in the store yet, or a model has lost rows "
            "(`lethe check` says which)"
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
