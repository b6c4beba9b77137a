"""The pages that only show something, from the index; which refreshes run, from the store."""

from __future__ import annotations

import re
from typing import Annotated, Any

from fastapi import APIRouter, Query, Request
from fastapi.responses import HTMLResponse, RedirectResponse, Response

from lethe.consumers.contract.events import rfc3339
from lethe.consumers.server.api.events import EVENT_STREAM, stream
from lethe.consumers.server.console.install import PREFIX, Console, ConsoleOf, Refused, VisitorOf
from lethe.consumers.server.console.live import changes
from lethe.consumers.server.index import models, requests
from lethe.consumers.server.index.records import DEAD_LETTER, WAITING
from lethe.consumers.server.index.requests import Filters
from lethe.consumers.workers.leases import read_leases
from lethe.engine.errors import LetheError

router = APIRouter(prefix=PREFIX)

STATUSES = (WAITING, "DEFERRED", "APPLIED", "ALREADY_APPLIED", "REJECTED", DEAD_LETTER)
_DAY = re.compile(r"\d{4}-\d{2}-\d{2}")
_MESSAGES = {
    "sent": "Sent: the log has acknowledged the request.",
    "again": "Sent again, with the same id.",
}

Text = Annotated[str, Query(max_length=128)]
Number = Annotated[int, Query(ge=0, lt=1 << 53)]


@router.get("")
@router.get("/")
async def begin() -> RedirectResponse:
    """Lead to the requests."""
    return RedirectResponse(f"{PREFIX}/requests", 303)


@router.get("/requests")
def requests_page(
    console: ConsoleOf,
    visitor: VisitorOf,
    *,
    model: Text = "",
    id: Text = "",
    status: Text = "",
    code: Text = "",
    version: Annotated[int | None, Query(ge=0, lt=1 << 53)] = None,
    since: Annotated[str, Query(alias="from", max_length=32)] = "",
    until: Annotated[str, Query(alias="to", max_length=32)] = "",
    before: Text = "",
    after: Text = "",
) -> HTMLResponse:
    """Show requests, the newest first, with filters in the address."""
    since, until = (text if _DAY.match(text) else "" for text in (since, until))
    filters = Filters(model, id, status if status in STATUSES else "", code, version, since, until)
    query = {
        "model": model, "id": id, "status": filters.status, "code": code, "from": since,
        "to": until, "version": "" if version is None else str(version),
    }  # fmt: skip
    visible = console.visible(visitor)
    with console.file.read() as connection:
        return console.page(
            visitor,
            "requests.html",
            title="Requests",
            page="requests",
            live=not before and not after,
            filters=filters,
            query={name: value for name, value in query.items() if value},
            found=requests.page_of(connection, filters, visible, before=before, after=after),
            counts=requests.counts_by_status(connection, visible),
            codes=requests.codes(connection),
            model_ids=models.model_ids(connection, visible),
            statuses=STATUSES,
        )


@router.get("/request")
def request_page(
    console: ConsoleOf,
    visitor: VisitorOf,
    *,
    model: Text = "",
    id: Text = "",
    done: Text = "",
) -> HTMLResponse:
    """Show what happened to one request."""
    with console.file.read() as connection:
        history = requests.request_history(connection, model, id) if visitor.sees(model) else None
    return console.page(
        visitor,
        "request.html",
        status=200 if history or done else 404,
        title=f"Request {id}",
        page="requests",
        live=True,
        history=history,
        model_id=model,
        request_id=id,
        message=_MESSAGES.get(done),
    )


@router.get("/models")
def models_page(
    console: ConsoleOf, visitor: VisitorOf, begins: Text = "", order: Text = "", first: Number = 0
) -> HTMLResponse:
    """Show models with their errors against their budgets."""
    by_error = order == "error"
    visible = console.visible(visitor)
    with console.file.read() as connection:
        found = models.models_page(
            connection, visible, begins=begins, by_error=by_error, first=first
        )
    return console.page(
        visitor,
        "models.html",
        title="Models",
        page="models",
        live=True,
        found=found,
        begins=begins,
        by_error=by_error,
        query={"begins": begins, "order": "error" if by_error else ""},
    )


@router.get("/model")
def model_page(
    console: ConsoleOf,
    visitor: VisitorOf,
    id: Text = "",
    below: Annotated[int | None, Query(ge=0, lt=1 << 53)] = None,
) -> HTMLResponse:
    """Show one model: its state, and the timeline of its versions and refreshes."""
    with console.file.read() as connection:
        model = models.model_of(connection, id) if visitor.sees(id) else None
        versions = models.versions_of(connection, id, below) if model is not None else []
    return console.page(
        visitor,
        "model.html",
        status=404 if model is None else 200,
        title=f"Model {id}",
        page="models",
        live=below is None,
        model=model,
        model_id=id,
        versions=versions,
        below=below,
    )


@router.get("/waiting")
def waiting_page(console: ConsoleOf, visitor: VisitorOf) -> HTMLResponse:
    """Show what has no final answer, and what a person must look at."""
    visible = console.visible(visitor)
    titles = (
        (WAITING, "Not processed yet", "No request waits for a worker."),
        ("DEFERRED", "Deferred until a rebuild", "No request waits for a rebuild."),
    )
    with console.file.read() as connection:
        waits = [
            (status, title, requests.waiting(connection, visible, status), nothing)
            for status, title, nothing in titles
        ]
        troubles = models.troubles(connection, visible)
        letters = requests.dead_letters(connection, visible)
    return console.page(
        visitor,
        "waiting.html",
        title="Waiting",
        page="waiting",
        live=True,
        waits=waits,
        troubles=troubles,
        refreshes=_refreshes(console, visible),
        letters=letters,
    )


def _refreshes(console: Console, visible: frozenset[str] | None) -> list[tuple[Any, ...]] | None:
    """Return the refreshes that workers have, with since when; None if the store is away."""
    try:
        workers = read_leases(console.services.store)
    except LetheError:
        return None
    return [
        (worker, shown, rfc3339(shown.since))
        for worker in workers
        for shown in worker.refreshes
        if visible is None or shown.model_id in visible
    ]


@router.get("/audit")
def audit_page(console: ConsoleOf, visitor: VisitorOf) -> HTMLResponse:
    """Check an exported file in the browser."""
    return console.page(visitor, "audit.html", title="Audit", page="audit")


@router.get("/live")
async def live(request: Request, console: ConsoleOf, visitor: VisitorOf) -> Response:
    """Say when something has changed."""
    if EVENT_STREAM not in request.headers.get("accept", ""):
        raise Refused(406, "Only for scripts", "This address sends events; open a page instead.")
    stop = console.services.stop
    events = changes(lambda: console.follower.progress, stop.is_set, request.is_disconnected)
    return stream(console.services.bell, visitor.caller, events)
