"""The pages and forms of erasures: a person, and every model."""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from typing import Annotated, Any

from fastapi import APIRouter, Query, Request
from fastapi.concurrency import run_in_threadpool
from fastapi.responses import HTMLResponse, RedirectResponse, Response
from pydantic import ValidationError

from lethe.consumers.contract.erasure_events import SubjectErasureRequested
from lethe.consumers.contract.requests import erasure_message
from lethe.consumers.erasures.models import read_models
from lethe.consumers.erasures.spelling import known_spellings
from lethe.consumers.server.api.erasures import check_id
from lethe.consumers.server.console import lookup
from lethe.consumers.server.console.forms import Form, append, form_of
from lethe.consumers.server.console.install import PREFIX, Console, ConsoleOf, Refused, VisitorOf
from lethe.consumers.server.console.rendering import query_of
from lethe.consumers.server.console.visitors import Visitor
from lethe.consumers.server.index.erasures import erasure_of, erasures_page
from lethe.consumers.server.problems import Problem
from lethe.consumers.suppression.marks import DEFAULT_NAMESPACE
from lethe.engine.store.layout.reading import first_error

router = APIRouter(prefix=PREFIX)

_FIELDS = ("subject", "namespace", "id", "reason")
_TAKEN = "This id was used for another erasure: choose another one."
_SENT = "Sent: the log has acknowledged the erasure."


def _for_all(visitor: Visitor) -> None:
    """Refuse a key that is for some models only: an erasure is of all of them."""
    if not visitor.sees_all:
        raise Refused(
            403, "Not with this key", "Erasures are of every model, and your key is for some only."
        )


@router.get("/erasures")
def erasures(
    console: ConsoleOf, visitor: VisitorOf, first: Annotated[int, Query(ge=0, lt=1 << 53)] = 0
) -> HTMLResponse:
    """Show erasures, the newest first."""
    _for_all(visitor)
    with console.file.read() as connection:
        found = erasures_page(connection, first)
    return console.page(
        visitor,
        "erasures.html",
        title="Erasures",
        page="erasures",
        live=first == 0,
        found=found,
    )


@router.get("/erasure")
def erasure(
    console: ConsoleOf,
    visitor: VisitorOf,
    id: Annotated[str, Query(max_length=128)] = "",
    done: Annotated[str, Query(max_length=16)] = "",
) -> HTMLResponse:
    """Show one erasure: what each model has answered."""
    _for_all(visitor)
    with console.file.read() as connection:
        found = erasure_of(connection, id)
    row, receipt = (None, None) if found is None else found
    return console.page(
        visitor,
        "erasure.html",
        status=200 if row is not None or done else 404,
        title=f"Erasure {id}",
        page="erasures",
        live=True,
        erasure=row,
        receipt=receipt,
        erasure_id=id,
        message=_SENT if done == "sent" else None,
    )


def _erase_page(
    console: Console, visitor: Visitor, form: Form, error: str | None = None
) -> HTMLResponse:
    return console.page(
        visitor,
        "erase.html",
        status=200 if error is None else 400,
        title="Erase a person",
        page="erasures",
        form={name: form.get(name, "") for name in _FIELDS},
        error=error,
    )


@router.get("/erase")
def erase_page(console: ConsoleOf, visitor: VisitorOf) -> HTMLResponse:
    """Show the form of an erasure."""
    _for_all(visitor)
    return _erase_page(console, visitor, {})


@router.post("/erase")
async def erase(request: Request, console: ConsoleOf, visitor: VisitorOf) -> Response:
    """Show which models know the person, and ask."""
    form = await form_of(request, console, visitor)
    _for_all(visitor)
    try:
        asked = _request_of(form)
    except ValueError as error:
        return _erase_page(console, visitor, form, str(error))
    store, namespace = console.services.store, asked.namespace or DEFAULT_NAMESPACE

    def look() -> tuple[list[lookup.Found], int, Mapping[str, Sequence[str]]]:
        every = read_models(store).registered
        models = [one.model_id for one in every if one.knows(namespace)]
        found = lookup.find_subject(store.client, models, asked.subject_id)
        similar = {} if found else known_spellings(store, every, namespace, asked.subject_id)
        return found, len(models), similar

    found, searched, similar = await run_in_threadpool(look)
    return console.page(
        visitor,
        "erase_confirm.html",
        title="Erase this person?",
        page="erasures",
        found=found,
        searched=searched,
        similar=similar,
        form={name: form.get(name, "") for name in _FIELDS} | {"id": asked.erasure_id},
    )


@router.post("/erase/confirmed")
async def erase_confirmed(request: Request, console: ConsoleOf, visitor: VisitorOf) -> Response:
    """Send an erasure that was confirmed."""
    form = await form_of(request, console, visitor)
    _for_all(visitor)
    try:
        asked = _request_of(form)
    except ValueError as error:
        return _erase_page(console, visitor, form, str(error))
    try:
        await run_in_threadpool(check_id, console.services, asked)
    except Problem:
        return _erase_page(console, visitor, form, _TAKEN)
    await append(console, erasure_message(asked, console.services.signer))
    query = query_of({"id": asked.erasure_id, "done": "sent"})
    return RedirectResponse(f"{PREFIX}/erasure?{query}", 303)


def _request_of(form: Form) -> SubjectErasureRequested:
    """Return the erasure that a form asks for; a ValueError says what is wrong with it."""
    fields: dict[str, Any] = {
        "subject_id": form.get("subject", "").strip(),
        "namespace": form.get("namespace", "").strip() or None,
        "erasure_id": form.get("id", "").strip() or f"console-{uuid.uuid4()}",
        "reason": form.get("reason", "").strip() or None,
    }
    if not fields["subject_id"]:
        raise ValueError("Name the person by their subject id.")
    try:
        return SubjectErasureRequested.model_validate(fields)
    except ValidationError as error:
        raise ValueError(first_error(error)) from None
