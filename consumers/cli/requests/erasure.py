"""An erasure: made of the options of ``lethe erase``, sent; and its combined receipt."""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterable, Sequence
from contextlib import closing
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
from lethe.consumers.log.base import Partition, Reader, Record
from lethe.consumers.service.configuration.signing_keys import request_signer
from lethe.consumers.service.connect import open_runtime
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
            producer.publish([erasure_message(request, signer)])
        if options["wait"] is None:
            out.document({"erasure_id": request.erasure_id})
            out.line(f"{_what(lift=request.lift)} {request.erasure_id} sent")
            return 0
        return _wait(out, reader, partition, begin, request, options["wait"])


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


def _wait(
    out: Output,
    reader: Reader,
    partition: Partition,
    offset: int,
    request: SubjectErasureRequested,
    seconds: float,
) -> int:
    """Print the combined receipt once it is final; return the exit code."""
    with out.progress() as report:
        report(f"waiting for the receipt of {request.erasure_id}", 0, 0)
        batches = new_records(reader, partition, offset, time.monotonic() + seconds)
        newest = _newest(batches, request)
    if newest is None or not newest.final:
        raise NoReceipt(
            f"no final receipt of {_what(lift=request.lift)} {request.erasure_id} in "
            f"{seconds:g} s; {where(newest)}. A request that fails authentication gets none: it "
            f"goes to {topics.DEAD_LETTERS}"
        )
    out.document(newest.model_dump(mode="json"))
    for line in lines_of(newest):
        out.line(line)
    return 0 if newest.complete else 1


def _newest(
    batches: Iterable[Sequence[Record]], request: SubjectErasureRequested
) -> SubjectErasureCompleted | None:
    """Return the final receipt as soon as it comes, else the newest."""
    newest = None
    for record in chain.from_iterable(batches):
        newest = _receipt(record.value, request) or newest
        if newest is not None and newest.final:
            break
    return newest


def _receipt(
    value: bytes | None, request: SubjectErasureRequested
) -> SubjectErasureCompleted | None:
    """Return a record's receipt if it belongs to this erasure."""
    try:
        receipt = SubjectErasureCompleted.read(value or b"")
    except ValueError:
        return None
    return receipt if receipt.erasure_id == request.erasure_id else None


def where(newest: SubjectErasureCompleted | None) -> str:
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
    if receipt.op == "erase" and not receipt.code and not receipt.models:
        return [head, "no model knows this subject: is it spelt as in the training data?"]
    return [head, *(f"  {model.model_id}: {_model(model)}" for model in receipt.models)]


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
