"""The console on an application: what its routes use, its headers, its files."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from importlib.resources import files
from typing import Annotated, Any

from fastapi import Depends, FastAPI, Request
from fastapi.responses import HTMLResponse, RedirectResponse
from jinja2 import Environment
from starlette.datastructures import MutableHeaders
from starlette.staticfiles import StaticFiles
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from lethe.consumers.contract.sealing import SealKeys
from lethe.consumers.server.console import rendering
from lethe.consumers.server.console.visitors import COOKIE, Sessions, Visitor
from lethe.consumers.server.index.follower import IndexFollower
from lethe.consumers.server.index.models import visible_models
from lethe.consumers.server.index.schema import IndexFile
from lethe.consumers.server.keys import Keys
from lethe.consumers.server.services import Services
from lethe.consumers.service.configuration.settings import ERASURE_DAYS

CONTENT_SECURITY_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
    "form-action 'self'; base-uri 'none'; frame-ancestors 'none'; "
    "require-trusted-types-for 'script'"
)

PREFIX = "/console"


@dataclass(frozen=True, slots=True)
class Console:
    """What the routes of the console use.

    Attributes
    ----------
    services
        The log to send to, and the store to look rows up in.
    file, follower
        The index, and what fills it.
    keys
        The keys that are asked for; None: nobody needs one.
    erasure_days
        Within how many days of the request an erasure must be complete.
    seals
        Returns the keys that bind receipts to people, if this server has them: it then finds a
        person's receipts also if it has not read the request.
    """

    services: Services
    file: IndexFile
    follower: IndexFollower
    keys: Keys | None = None
    erasure_days: int = ERASURE_DAYS
    seals: Callable[[], SealKeys | None] = lambda: None
    sessions: Sessions = field(default_factory=Sessions)
    templates: Environment = field(default_factory=rendering.environment)

    def page(
        self, visitor: Visitor | None, name: str, *, status: int = 200, **values: Any
    ) -> HTMLResponse:
        """Return a page; ``values`` are what its template names."""
        known: dict[str, Any] = {
            "page": "",
            "live": False,
            "limit": self.erasure_days,
            "progress": None if visitor is None else self.follower.progress,
            "signed_in": visitor is not None and bool(visitor.session),
            "token": self.sessions.token("") if visitor is None else visitor.token,
        }
        text = self.templates.get_template(name).render(known | values)
        return HTMLResponse(text, status)

    def visible(self, visitor: Visitor) -> frozenset[str] | None:
        """Return the models that a visitor may see; None: all."""
        if visitor.sees_all:
            return None
        with self.file.read() as connection:
            return frozenset(name for name in visible_models(connection) if visitor.sees(name))


class Refused(Exception):
    """An answer instead of a page: a title, a sentence, a status."""

    def __init__(self, status: int, title: str, detail: str) -> None:
        super().__init__(detail)
        self.status = status
        self.title = title


class SignIn(Exception):
    """The visitor has to enter a key first."""

    def __init__(self, to: str) -> None:
        super().__init__(to)
        self.to = to


async def console_of(request: Request) -> Console:
    """Return the console of the application that answers a request."""
    console: Console = request.app.state.console
    return console


async def visitor_of(request: Request, console: Annotated[Console, Depends(console_of)]) -> Visitor:
    """Return who looks.

    Raises
    ------
    SignIn
        Keys are asked for, and nobody has signed in.
    """
    if console.keys is None:
        return Visitor(console.sessions.token(""))
    cookie = request.cookies.get(COOKIE, "")
    secret = console.sessions.secret_of(cookie)
    caller = None if secret is None else console.keys.find(secret)
    if caller is None:
        where = request.url.path + (f"?{request.url.query}" if request.url.query else "")
        raise SignIn(where if request.method == "GET" else f"{PREFIX}/")
    return Visitor(console.sessions.token(cookie), caller, cookie)


def for_all(visitor: Visitor) -> None:
    """Refuse a key that is for some models only: an erasure is of all of them.

    Raises
    ------
    Refused
        It is.
    """
    if not visitor.sees_all:
        raise Refused(
            403, "Not with this key", "Erasures are of every model, and your key is for some only."
        )


ConsoleOf = Annotated[Console, Depends(console_of)]
VisitorOf = Annotated[Visitor, Depends(visitor_of)]


def install(app: FastAPI, console: Console) -> None:
    """Add the console to an application, below `PREFIX`."""
    from lethe.consumers.server.console import (  # noqa: PLC0415 - they use this module
        erasing,
        erasures,
        forms,
        pages,
        people,
    )

    app.state.console = console
    for routes in (pages, forms, people, erasures, erasing):
        app.include_router(routes.router, include_in_schema=False)
    static = files("lethe.consumers.server.console").joinpath("static")
    app.mount(f"{PREFIX}/static", StaticFiles(directory=str(static)), name="console-static")
    app.add_api_route("/", _to_console, include_in_schema=False)
    app.add_api_route(f"{PREFIX}/{{rest:path}}", _no_such_page, include_in_schema=False)
    app.add_exception_handler(Refused, _refused)
    app.add_exception_handler(SignIn, _to_sign_in)
    app.add_middleware(_Headers)


async def _to_console() -> RedirectResponse:
    return RedirectResponse(f"{PREFIX}/", 303)


async def _no_such_page() -> None:
    raise Refused(404, "No such page", "The console has no page at this address.")


async def _refused(request: Request, error: Exception) -> HTMLResponse:
    assert isinstance(error, Refused)  # noqa: S101 - registered for it
    console: Console = request.app.state.console
    values = {"title": error.title, "detail": str(error)}
    return console.page(None, "error.html", status=error.status, **values)


async def _to_sign_in(_request: Request, error: Exception) -> RedirectResponse:
    assert isinstance(error, SignIn)  # noqa: S101 - registered for it
    query = rendering.query_of({"next": error.to})
    return RedirectResponse(f"{PREFIX}/sign-in?{query}", 303)


_HEADERS: Mapping[str, str] = {
    "Content-Security-Policy": CONTENT_SECURITY_POLICY,
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "X-Frame-Options": "DENY",
}


class _Headers:
    """Adds the headers that keep a page to itself to every answer below `PREFIX`."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on."""
        path = scope.get("path", "")
        if scope["type"] != "http" or not path.startswith(PREFIX):
            await self._app(scope, receive, send)
            return

        async def with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                headers.update(_HEADERS)
                static = path.startswith(f"{PREFIX}/static/")
                headers["Cache-Control"] = "no-cache" if static else "no-store"
            await send(message)

        await self._app(scope, receive, with_headers)
