"""A deletion request: made of the options of ``lethe delete``, checked, sent; and its receipt."""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from typing import Any

import click
from pydantic import ValidationError

from lethe.consumers.cli.send.lines import read_lines
from lethe.consumers.cli.send.receipts import receipts_of, sentence
from lethe.consumers.cli.terminal.output import Output, prepare
from lethe.consumers.contract import topics
from lethe.consumers.contract.events import MAX_ROWS, DeletionRequest, rfc3339
from lethe.consumers.contract.receipt import Receipt
from lethe.consumers.contract.requests import check_own_id, check_size, request_value
from lethe.consumers.log.base import Record
from lethe.consumers.service.client import Client, NoReceipt, newest_answers
from lethe.consumers.service.configuration.signing_keys import request_signer
from lethe.consumers.service.connect import Runtime, open_runtime
from lethe.engine.errors import CorruptState, InvalidRequest, Unavailable
from lethe.engine.store.layout.reading import first_error

_SHOWN = 10  # unknown rows that are named


def send(ctx: click.Context, options: dict[str, Any]) -> int:
    """Send the request that the options describe, wait if they say so; return the exit code."""
    settings, out = prepare(ctx)
    signer = request_signer(settings)
    request = _request(options)
    model = request.model_id
    with (
        open_runtime(settings) as runtime,
        Client(runtime.log, signer, runtime.trusted()) as client,
    ):
        models = runtime.models()  # fails before anything is sent if the store cannot be reached
        if model in models:
            _check_rows(runtime, request, options)
        answers = client.answers(topics.DELETIONS, topics.RECEIPTS, model)
        client.send([request])
        if options["wait"] is None:
            if model not in models:
                click.echo(
                    f"lethe: warning: model {model!r} is not registered in this store: "
                    "the request will be rejected; `lethe status` lists the models",
                    err=True,
                )
            out.document({"request_id": request.request_id, "model_id": model})
            out.line(f"request {request.request_id} sent")
            return 0
        batches = answers.until(time.monotonic() + options["wait"])
        return _wait(out, batches, request, options["wait"])


# -- the request --------------------------------------------------------------------------------


def _request(options: dict[str, Any]) -> DeletionRequest:
    rows: tuple[str, ...] | None = options["rows"] or None
    if options["rows_file"] is not None:
        rows = read_lines(options["rows_file"], MAX_ROWS, "row id")
    if rows is not None and len(rows) > MAX_ROWS:
        raise InvalidRequest(
            f"{len(rows)} rows; a request names at most {MAX_ROWS}: send several requests"
        )
    try:
        request = DeletionRequest(
            request_id=options["request_id"] or str(uuid.uuid4()),
            model_id=options["model"],
            row_ids=rows,
            subject_id=options["subject"],
            strict=options["strict"],
            requested_at=rfc3339(datetime.now(UTC)),
            reason=options["reason"],
        )
    except ValidationError as error:
        raise InvalidRequest(f"{first_error(error, 'request')}; nothing was sent") from None
    check_own_id(request.request_id)
    check_size(request_value(request))
    return request


def _check_rows(runtime: Runtime, request: DeletionRequest, options: dict[str, Any]) -> None:
    """Warn of rows that never belonged to the model; with --strict, refuse them.

    A receipt only counts them: its readers need not know which rows there are.
    """
    rows, strict = request.row_ids or (), bool(options["strict"])
    try:
        unknown = runtime.never_members(request.model_id, rows)
    except (Unavailable, CorruptState):
        if strict:
            raise
        return  # this user may not read the membership of rows, or has no keys of their files
    if not unknown:
        return
    shown = ", ".join(repr(row) for row in unknown[:_SHOWN])
    more = f" and {len(unknown) - _SHOWN} more" if len(unknown) > _SHOWN else ""
    message = f"model {request.model_id!r} never had these rows: {shown}{more}"
    if options["rows_file"] is not None and unknown == [rows[0]] and len(rows) > 1:
        message += "; is the first line of the file a header?"
    if strict:
        raise InvalidRequest(f"{message}; nothing was sent (--strict)")
    click.echo(f"lethe: warning: {message}; the request is sent anyway", err=True)


# -- the receipt --------------------------------------------------------------------------------


def _wait(
    out: Output,
    batches: Iterable[Sequence[Record]],
    request: DeletionRequest,
    seconds: float,
) -> int:
    """Print the receipts of a request up to the final one; return the exit code."""
    with out.progress() as report:
        report(f"waiting for the receipt of {request.request_id}", 0, 0)
        read, name = receipts_of(request.model_id), request.request_id
        receipt = newest_answers(batches, read, [name], _say).get(name)
    if receipt is None or not receipt.final:
        place = "in the log" if receipt is None else "is deferred, waits for a refresh"
        raise NoReceipt(
            f"no final receipt of request {request.request_id} in {seconds:g} s; it {place} and "
            "will be processed once a worker runs (`lethe work`). To see it later: `lethe receipt "
            f"{request.request_id}`. A request that fails authentication gets none: it goes to "
            f"{topics.DEAD_LETTERS}"
        )
    out.document(receipt.model_dump(mode="json"))
    out.line(sentence(receipt))
    return 1 if receipt.status == "REJECTED" else 0


def _say(receipt: Receipt) -> None:
    click.echo(f"lethe: {sentence(receipt)}", err=True)
