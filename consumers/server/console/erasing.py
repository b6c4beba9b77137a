"""The forms of an erasure: who is asked for, which models that concerns, and the sending."""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime
from typing import Any

from fastapi import APIRouter, Request
from fastapi.concurrency import run_in_threadpool
from fastapi.responses import HTMLResponse, RedirectResponse, Response
from pydantic import ValidationError

from lethe.consumers.contract.erasure_events import SubjectErasureRequested
from lethe.consumers.erasures.models import read_models
from lethe.consumers.erasures.spelling import known_spellings
from lethe.consumers.server.console import lookup
from lethe.consumers.server.console.forms import Form, form_of, sent
from lethe.consumers.server.console.install import PREFIX, Console, ConsoleOf, VisitorOf, for_all
from lethe.consumers.server.console.rendering import query_of
from lethe.consumers.server.console.visitors import Visitor
from lethe.consumers.suppression.marks import DEFAULT_NAMESPACE
from lethe.engine.store.layout.reading import first_error

router = APIRouter(prefix=PREFIX)

MANY_ROWS = 100
"""Above so many rows, or with several models, the subject is typed again: a slip costs much."""

_FIELDS = ("subject", "namespace", "id", "asked", "reason")
_TAKEN = "This id was used for another erasure: choose another one."
_NOT_THE_SAME = "That is not the subject above: type its id again. Nothing has been sent."


@dataclass(frozen=True, slots=True)
class Concerned:
    """What an erasure would do now.

    Attributes
    ----------
    found
        The models that know the person.
    searched
        How many models were searched: those of the namespace.
    not_covered
        Models that were registered without subjects: the erasure cannot be complete.
    similar
        If none knows the person: by model, other spellings of the id that it knows.
    """

    found: list[lookup.Found]
    searched: int
    not_covered: list[str]
    similar: Mapping[str, Sequence[str]]

    @property
    def rows(self) -> int:
        """How many rows would be deleted."""
        return sum(one.live for one in self.found)

    @property
    def many(self) -> bool:
        """Whether so much is concerned that the subject is typed again."""
        return len(self.found) > 1 or self.rows > MANY_ROWS


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
    for_all(visitor)
    return _erase_page(console, visitor, {})


@router.post("/erase")
async def erase(request: Request, console: ConsoleOf, visitor: VisitorOf) -> Response:
    """Show which models know the person, and ask."""
    form = await form_of(request, console, visitor)
    for_all(visitor)
    try:
        asked = _request_of(form)
    except ValueError as error:
        return _erase_page(console, visitor, form, str(error))
    concerned = await run_in_threadpool(_concerned, console, asked)
    return _confirm_page(console, visitor, form, asked, concerned)


def _confirm_page(
    console: Console,
    visitor: Visitor,
    form: Form,
    asked: SubjectErasureRequested,
    concerned: Concerned,
    error: str | None = None,
) -> HTMLResponse:
    return console.page(
        visitor,
        "erase_confirm.html",
        status=200 if error is None else 400,
        title="Erase this person?",
        page="erasures",
        asked=asked,
        concerned=concerned,
        form={name: form.get(name, "") for name in _FIELDS} | {"id": asked.erasure_id},
        error=error,
    )


@router.post("/erase/confirmed")
async def erase_confirmed(request: Request, console: ConsoleOf, visitor: VisitorOf) -> Response:
    """Send an erasure that was confirmed."""
    form = await form_of(request, console, visitor)
    for_all(visitor)
    try:
        asked = _request_of(form)
    except ValueError as error:
        return _erase_page(console, visitor, form, str(error))
    concerned = await run_in_threadpool(_concerned, console, asked)
    if concerned.many and form.get("again", "").strip() != asked.subject_id:
        return _confirm_page(console, visitor, form, asked, concerned, _NOT_THE_SAME)
    if not await sent(console, asked):
        return _erase_page(console, visitor, form, _TAKEN)
    query = query_of({"id": asked.erasure_id, "done": "sent"})
    return RedirectResponse(f"{PREFIX}/erasure?{query}", 303)


def _concerned(console: Console, asked: SubjectErasureRequested) -> Concerned:
    """Return what an erasure would do now; blocks."""
    store, namespace = console.services.store, asked.namespace or DEFAULT_NAMESPACE
    every = read_models(store).registered
    models = [one.model_id for one in every if one.knows(namespace)]
    found = lookup.find_subject(store, models, asked.subject_id)
    not_covered = sorted(one.model_id for one in every if one.namespace is None)
    similar = {} if found else known_spellings(store, every, namespace, asked.subject_id)
    return Concerned(found, len(models), not_covered, similar)


def _request_of(form: Form) -> SubjectErasureRequested:
    """Return the erasure that a form asks for; a ValueError says what is wrong with it."""
    fields: dict[str, Any] = {
        "subject_id": form.get("subject", "").strip(),
        "namespace": form.get("namespace", "").strip() or None,
        "erasure_id": form.get("id", "").strip() or f"console-{uuid.uuid4()}",
        "requested_at": _day_of(form.get("asked", "").strip()),
        "reason": form.get("reason", "").strip() or None,
    }
    if not fields["subject_id"]:
        raise ValueError("Name the person by their subject id.")
    try:
        return SubjectErasureRequested.model_validate(fields)
    except ValidationError as error:
        raise ValueError(first_error(error)) from None


def _day_of(text: str) -> str | None:
    """Return the day on which the person has asked, as it was typed; None if it was not."""
    if not text:
        return None
    try:
        day = date.fromisoformat(text)
    except ValueError:
        raise ValueError("Give the day of the request as YYYY-MM-DD.") from None
    if day > datetime.now(UTC).date():
        raise ValueError("The day of the request is still to come.")
    return day.isoformat()
