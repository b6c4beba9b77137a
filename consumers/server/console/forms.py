"""What changes something, or must be in no address: deletions, signing in, and forms in general."""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from contextlib import closing
from typing import Annotated, Any
from urllib.parse import parse_qsl

from fastapi import APIRouter, Query, Request
from fastapi.concurrency import run_in_threadpool
from fastapi.responses import HTMLResponse, RedirectResponse, Response
from pydantic import ValidationError

from lethe.consumers.contract.erasure_events import SubjectErasureRequested
from lethe.consumers.contract.events import MAX_ROWS, DeletionRequest
from lethe.consumers.contract.requests import check_own_id
from lethe.consumers.deletions.validate import request_at
from lethe.consumers.log.base import Message
from lethe.consumers.server.api.sending import send
from lethe.consumers.server.console import lookup
from lethe.consumers.server.console.install import (
    PREFIX,
    Console,
    ConsoleOf,
    Refused,
    SignIn,
    VisitorOf,
)
from lethe.consumers.server.console.rendering import query_of
from lethe.consumers.server.console.visitors import COOKIE, SESSION_SECONDS, Visitor, own_form
from lethe.consumers.server.index import models
from lethe.consumers.server.index.requests import request_history
from lethe.consumers.server.problems import Problem
from lethe.engine.errors import InvalidRequest, LetheError
from lethe.engine.store.layout.reading import first_error

router = APIRouter(prefix=PREFIX)

_FIELDS = 16
Form = Mapping[str, str]


async def form_of(request: Request, console: Console, visitor: Visitor | None) -> Form:
    """Return the fields of a form, if it was sent from a page of this console.

    Raises
    ------
    Refused
        It was not, or it is malformed.
    """
    cookie = "" if visitor is None else visitor.session
    if request.headers.get("content-type", "").partition(";")[0] != (
        "application/x-www-form-urlencoded"
    ):
        raise Refused(415, "Not a form", "This address takes forms of this console only.")
    body = await request.body()  # of a length that the guard limits
    try:
        pairs = parse_qsl(
            body.decode("ascii"), keep_blank_values=True, max_num_fields=_FIELDS, errors="strict"
        )
    except ValueError:
        raise Refused(400, "Not a form", "The form cannot be read.") from None
    form = dict(pairs)
    if not own_form(request.headers) or not console.sessions.is_token(
        cookie, form.get("token", "")
    ):
        raise Refused(
            403,
            "Sent from elsewhere",
            "The form was not sent from a page of this console, or the page is from before the "
            "server was restarted. Nothing was done: open the page again.",
        )
    return form


# -- signing in -----------------------------------------------------------------------------------


@router.get("/sign-in")
def sign_in_page(
    console: ConsoleOf, to: Annotated[str, Query(alias="next", max_length=2048)] = ""
) -> HTMLResponse:
    """Ask for a key."""
    return console.page(None, "sign_in.html", title="Sign in", next=to, error=None)


@router.post("/sign-in")
async def sign_in(request: Request, console: ConsoleOf) -> Response:
    """Begin a session for a key."""
    form = await form_of(request, console, None)
    secret, to = form.get("key", "").strip(), form.get("next", "")
    if console.keys is None or console.keys.find(secret) is None:
        error = "That is not a key of this server, or it has expired."
        return console.page(None, "sign_in.html", status=403, title="Sign in", next=to, error=error)
    local = to.startswith(f"{PREFIX}/") and "\\" not in to
    answer = RedirectResponse(to if local else f"{PREFIX}/", 303)
    answer.set_cookie(
        COOKIE,
        console.sessions.begin(secret),
        max_age=int(SESSION_SECONDS),
        path=PREFIX,
        secure=request.url.scheme == "https",
        httponly=True,
        samesite="strict",
    )
    return answer


@router.post("/sign-out")
async def sign_out(request: Request, console: ConsoleOf, visitor: VisitorOf) -> Response:
    """End a session."""
    await form_of(request, console, visitor)
    console.sessions.end(visitor.session)
    answer = RedirectResponse(f"{PREFIX}/sign-in", 303)
    answer.delete_cookie(COOKIE, path=PREFIX)
    return answer


# -- deletions ------------------------------------------------------------------------------------

_TAKEN = "This id was used for another request: choose another one."
_DELETION = ("model", "by", "named", "strict", "id", "reason")


def _delete_page(
    console: Console, visitor: Visitor, form: Form, error: str | None = None
) -> HTMLResponse:
    visible = console.visible(visitor)
    with console.file.read() as connection:
        names = models.model_ids(connection, visible)
    return console.page(
        visitor,
        "delete.html",
        status=200 if error is None else 400,
        title="Delete",
        page="delete",
        form={name: form.get(name, "") for name in _DELETION},
        model_ids=names,
        error=error,
    )


@router.get("/delete")
def delete_page(
    console: ConsoleOf,
    visitor: VisitorOf,
    model: Annotated[str, Query(max_length=128)] = "",
    id: Annotated[str, Query(max_length=128)] = "",
) -> HTMLResponse:
    """Show the form of a deletion."""
    return _delete_page(console, visitor, {"model": model, "id": id})


@router.post("/delete")
async def delete(request: Request, console: ConsoleOf, visitor: VisitorOf) -> Response:
    """Show what a deletion would do, and ask."""
    form = await form_of(request, console, visitor)
    try:
        asked = _request_of(form, visitor)
    except ValueError as error:
        return await run_in_threadpool(_delete_page, console, visitor, form, str(error))
    store = console.services.store

    def look() -> lookup.Found:
        rows = asked.row_ids
        if rows is None:
            known = lookup.subject_rows(store, [asked.model_id], asked.subject_id or "")
            rows = known.get(asked.model_id, ())
        [found] = lookup.find_rows(store, {asked.model_id: rows})
        return found

    found = await run_in_threadpool(look)
    kept = {name: form.get(name, "") for name in _DELETION} | {"id": asked.request_id}
    return console.page(
        visitor,
        "delete_confirm.html",
        title="Send this request?",
        page="delete",
        request=asked,
        found=found,
        form=kept,
    )


@router.post("/delete/confirmed")
async def delete_confirmed(request: Request, console: ConsoleOf, visitor: VisitorOf) -> Response:
    """Send a deletion that was confirmed."""
    form = await form_of(request, console, visitor)
    try:
        asked = _request_of(form, visitor)
    except ValueError as error:
        return await run_in_threadpool(_delete_page, console, visitor, form, str(error))
    if not await sent(console, asked):
        return await run_in_threadpool(_delete_page, console, visitor, form, _TAKEN)
    return _to_request(asked.model_id, asked.request_id, "sent")


def _request_of(form: Form, visitor: Visitor) -> DeletionRequest:
    """Return the request that a form asks for.

    Raises
    ------
    ValueError
        Something is missing or wrong; the message is for who has filled it in.
    """
    model_id, named = form.get("model", "").strip(), form.get("named", "")
    fields: dict[str, Any] = {
        "model_id": model_id,
        "request_id": form.get("id", "").strip() or f"console-{uuid.uuid4()}",
        "strict": form.get("strict") == "yes",
        "reason": form.get("reason", "").strip() or None,
    }
    if not model_id:
        raise ValueError("Name a model.")
    if not visitor.sees(model_id):
        raise ValueError("No such model, or your key is not for it.")
    ids = [line.strip() for line in named.splitlines() if line.strip()]
    if not ids:
        raise ValueError("Name a subject, or rows: one id per line.")
    if form.get("by") == "rows":
        if len(ids) > MAX_ROWS:
            raise ValueError(f"{len(ids):,} rows; a request names at most {MAX_ROWS:,}.")
        fields["row_ids"] = list(dict.fromkeys(ids))
    elif len(ids) > 1:
        raise ValueError("Several lines: a request names one subject. Or choose rows.")
    else:
        fields["subject_id"] = ids[0]
    try:
        check_own_id(fields["request_id"])
        return DeletionRequest.model_validate(fields)
    except ValidationError as error:
        raise ValueError(first_error(error)) from None
    except InvalidRequest as error:
        raise ValueError(str(error)) from None


async def sent(console: Console, asked: DeletionRequest | SubjectErasureRequested) -> bool:
    """Send a request; return False, and send nothing, if its id was used for another one.

    Raises
    ------
    Refused
        It was not acknowledged, or nobody would read it.
    """
    try:
        await send(console.services, asked)
    except Problem as problem:
        if problem.status == 409:
            return False
        raise _not_sent(problem.status, problem.detail) from None
    return True


def _not_sent(status: int, reason: str) -> Refused:
    return Refused(status, "Not sent", f"{reason} The same id can be sent again.")


def _to_request(model_id: str, request_id: str, done: str) -> RedirectResponse:
    query = query_of({"model": model_id, "id": request_id, "done": done})
    return RedirectResponse(f"{PREFIX}/request?{query}", 303)


@router.post("/request/again")
async def send_again(request: Request, console: ConsoleOf, visitor: VisitorOf) -> Response:
    """Send a request again as it lies in the log, byte for byte."""
    form = await form_of(request, console, visitor)
    model_id, request_id = form.get("model", ""), form.get("id", "")
    if not visitor.sees(model_id):
        raise SignIn(f"{PREFIX}/")
    message = await run_in_threadpool(_as_sent, console, model_id, request_id)
    if message is None:
        query = query_of({"model": model_id, "id": request_id})
        return RedirectResponse(f"{PREFIX}/delete?{query}", 303)
    try:
        await console.services.appender.append(message)
    except LetheError as error:
        raise _not_sent(503, str(error)) from None
    return _to_request(model_id, request_id, "again")


def _as_sent(console: Console, model_id: str, request_id: str) -> Message | None:
    """Return a request's record as it was sent last; None if the log has removed it."""
    with console.file.read() as connection:
        history = request_history(connection, model_id, request_id)
    if history is None:
        return None
    with closing(console.services.log.reader()) as reader:
        for sent in reversed(history.sent):
            place = sent["topic"], sent["partition"], sent["position"]
            if (found := request_at(reader, model_id, request_id, *place)) is not None:
                record = found.record
                return Message(sent["topic"], record.key or b"", record.value, record.headers)
    return None
