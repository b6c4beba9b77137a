"""From a person, or a row, to what concerns them: models, erasures, requests and their receipts.

What is looked up is sent in the body of a form: it is in no address and in no log.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping, Sequence
from typing import Any

from fastapi import APIRouter, Request
from fastapi.concurrency import run_in_threadpool
from fastapi.responses import HTMLResponse

from lethe.consumers.server.console import lookup
from lethe.consumers.server.console.belongs import erasures_by_commitment, requests_by_content
from lethe.consumers.server.console.forms import Form, form_of
from lethe.consumers.server.console.install import PREFIX, Console, ConsoleOf, VisitorOf
from lethe.consumers.server.console.visitors import Visitor
from lethe.consumers.server.index.erasures import erasures_page
from lethe.consumers.server.index.requests import NumberedPage, requests_of_subject
from lethe.engine.store.membership import every_model

router = APIRouter(prefix=PREFIX)

_EMPTY: Mapping[str, Any] = {
    "found": None, "erasures": None, "requests": None, "searched": 0, "left": 0, "error": None,
    "by": "subject", "named": "", "title": "Look up", "page": "lookup",
}  # fmt: skip


@router.get("/lookup")
def lookup_page(console: ConsoleOf, visitor: VisitorOf) -> HTMLResponse:
    """Show the form for looking up."""
    return console.page(visitor, "lookup.html", **_EMPTY)


@router.post("/lookup")
async def look_up(request: Request, console: ConsoleOf, visitor: VisitorOf) -> HTMLResponse:
    """Look up a row or a subject."""
    form = await form_of(request, console, visitor)
    by, named = form.get("by", "subject"), form.get("named", "").strip()
    values = {**_EMPTY, "by": by, "named": named}
    if not 1 <= len(named) <= 128:
        values |= {"error": "An id has 1 to 128 characters."}
        return console.page(visitor, "lookup.html", status=400, **values)
    values |= await run_in_threadpool(_found, console, visitor, form, by, named)
    return console.page(visitor, "lookup.html", **values)


def _found(console: Console, visitor: Visitor, form: Form, by: str, named: str) -> dict[str, Any]:
    """Return the models that know a row or a person, and what was asked for the person."""
    store = console.services.store
    seen = [name for name in every_model(store.client) if visitor.sees(name)]
    if by == "row":
        return {"found": lookup.find_row(store, seen, named), "searched": len(seen)}
    found, visible = lookup.find_subject(store, seen, named), console.visible(visitor)
    values: dict[str, Any] = {"found": found, "searched": len(seen)}
    with console.file.read() as connection:
        page = requests_of_subject(connection, named, visible, _first(form, "requests"))
        others = requests_by_content(connection, store, found, named)
        values["requests"] = _with(page, others)
        if visitor.sees_all:
            page = erasures_page(connection, _first(form, "erasures"), subject_id=named)
            values |= {"erasures": page, "left": 0}
            if (seals := console.seals()) is not None:
                every = form.get("every") == "yes"
                others, values["left"] = erasures_by_commitment(
                    connection, seals, named, every=every
                )
                values["erasures"] = _with(page, others)
    return values


def _with(page: NumberedPage, others: Sequence[sqlite3.Row]) -> NumberedPage:
    """Return a page with what was found by other means, on the first of its kind."""
    rows = [*others, *page.rows] if page.first == 0 else page.rows
    return NumberedPage(rows, page.total + len(others), page.first)


def _first(form: Form, name: str) -> int:
    """Return the number of the first row that a form asks for, from 0."""
    number = form.get(name, "")
    return int(number) if number.isascii() and number.isdecimal() and len(number) < 12 else 0
