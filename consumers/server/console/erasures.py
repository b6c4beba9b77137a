"""The pages of erasures: all of them with what is late first, one, and what its requester gets."""

from __future__ import annotations

import hashlib
import sqlite3
from typing import Annotated, Any

from fastapi import APIRouter, Query, Request
from fastapi.concurrency import run_in_threadpool
from fastapi.responses import HTMLResponse, Response
from markupsafe import Markup

from lethe.consumers.contract.erasure_events import (
    SUBJECT_ERASURE_COMPLETED,
    SubjectErasureCompleted,
)
from lethe.consumers.contract.signatures import split_signature
from lethe.consumers.server.console.answers import answers_of, headline
from lethe.consumers.server.console.due import late_before
from lethe.consumers.server.console.forms import form_of
from lethe.consumers.server.console.install import (
    PREFIX,
    Console,
    ConsoleOf,
    Refused,
    VisitorOf,
    for_all,
)
from lethe.consumers.server.console.offline import style_and_hash
from lethe.consumers.server.evidence import evidence_file
from lethe.consumers.server.index.erasures import (
    OPEN,
    ErasureFilters,
    erasure_of,
    erasures_page,
    late_and_open,
)
from lethe.consumers.server.index.records import DEAD_LETTER, WAITING
from lethe.consumers.server.paths import attachment
from lethe.consumers.server.problems import Problem
from lethe.engine.errors import InvalidRequest

router = APIRouter(prefix=PREFIX)

LATE = "LATE"
"""In place of a status: open, and asked for longer ago than the limit allows."""

STATUSES = (OPEN, LATE, WAITING, "PENDING", "COMPLETE", "INCOMPLETE", "REJECTED", DEAD_LETTER)
_SENT = "Sent: the log has acknowledged the erasure."

Id = Annotated[str, Query(max_length=128)]


@router.get("/erasures")
def erasures(
    console: ConsoleOf,
    visitor: VisitorOf,
    *,
    id: Id = "",
    status: Id = "",
    days: Annotated[int | None, Query(ge=0, le=36_500)] = None,
    first: Annotated[int, Query(ge=0, lt=1 << 53)] = 0,
) -> HTMLResponse:
    """Show erasures: what is open first, the longest asked for before the others."""
    for_all(visitor)
    status = status if status in STATUSES else ""
    late = late_before(console.erasure_days)
    before = "" if days is None else late_before(days)
    if status == LATE:
        filters = ErasureFilters(id, OPEN, min(late, before or late))
    else:
        filters = ErasureFilters(id, status, before)
    with console.file.read() as connection:
        found = erasures_page(connection, first, filters)
        counts = late_and_open(connection, late)
    query = {"id": id, "status": status, "days": "" if days is None else str(days)}
    return console.page(
        visitor,
        "erasures.html",
        title="Erasures",
        page="erasures",
        live=first == 0,
        found=found,
        counts=counts,
        statuses=STATUSES,
        query={name: value for name, value in query.items() if value},
    )


@router.get("/erasure")
def erasure(console: ConsoleOf, visitor: VisitorOf, id: Id = "", done: Id = "") -> HTMLResponse:
    """Show one erasure: what each model has answered."""
    for_all(visitor)
    row, receipt = _found(console, id)
    return console.page(
        visitor,
        "erasure.html",
        status=200 if row is not None or done else 404,
        title=f"Erasure {id}",
        page="erasures",
        live=True,
        erasure=row,
        erasure_id=id,
        message=_SENT if done == "sent" else None,
        **_shown(receipt),
    )


@router.get("/erasure/answer")
def erasure_answer(
    console: ConsoleOf, visitor: VisitorOf, id: Id = "", save: Id = ""
) -> HTMLResponse:
    """Show what the person who has asked is told: to print, or with ``save`` as a file."""
    for_all(visitor)
    row, receipt = _found(console, id)
    if row is None:
        raise Refused(404, "No such erasure", f"The topics hold no erasure {id}.")
    style, style_hash = style_and_hash()
    page = console.page(
        visitor,
        "erasure_file.html" if save else "erasure_answer.html",
        title=f"Answer to erasure {id}",
        page="erasures",
        erasure=row,
        style=Markup(style),  # noqa: S704 - a file of this package
        style_hash=style_hash,
        **_shown(receipt),
        published=None if row["value"] is None else row["value"].decode(),
        digest=None if row["value"] is None else hashlib.sha256(row["value"]).hexdigest(),
        signature=split_signature(row["signature"]),
        event_type=SUBJECT_ERASURE_COMPLETED,
    )
    if save:
        page.headers.update(attachment(f"erasure-{id}.html"))
    return page


@router.get("/erasure/evidence")
async def evidence(console: ConsoleOf, visitor: VisitorOf, id: Id = "") -> Response:
    """Send the whole evidence of an erasure as a file that names nobody."""
    for_all(visitor)
    return await run_in_threadpool(_evidence, console, id)


@router.post("/erasure/evidence")
async def own_copy(request: Request, console: ConsoleOf, visitor: VisitorOf) -> Response:
    """Send the person's own copy of it, which names them."""
    form = await form_of(request, console, visitor)
    for_all(visitor)
    subject = form.get("subject", "").strip()
    if not subject:
        raise Refused(400, "Whose copy?", "Name the person by their subject id.")
    return await run_in_threadpool(_evidence, console, form.get("id", ""), subject)


def _evidence(console: Console, erasure_id: str, subject_id: str | None = None) -> Response:
    seals = None if subject_id is None else console.seals()
    try:
        return evidence_file(console.services, erasure_id, seals, subject_id)
    except Problem as problem:
        title = "No evidence yet" if problem.status == 404 else "Busy"
        raise Refused(problem.status, title, problem.detail) from None
    except InvalidRequest as error:
        raise Refused(400, "Not this person's erasure", f"{error}.") from None


def _found(
    console: Console, erasure_id: str
) -> tuple[sqlite3.Row | None, SubjectErasureCompleted | None]:
    with console.file.read() as connection:
        return erasure_of(connection, erasure_id) or (None, None)


def _shown(receipt: SubjectErasureCompleted | None) -> dict[str, Any]:
    answers = [] if receipt is None else answers_of(receipt)
    return {
        "receipt": receipt,
        "answers": answers,
        "unsettled": [one for one in answers if not one.settled],
        "headline": headline(receipt),
    }
