"""What every request passes first: host, key, rate, size, time; and what every answer carries.

It wraps the whole application, so that no route can be added without it. A route of the API asks
for `CallerOf`, which refuses a request without a key; a page may look at the caller itself.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated
from urllib.parse import urlsplit

from fastapi import Depends, Request
from starlette.datastructures import Headers
from starlette.requests import ClientDisconnect
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from lethe.consumers.contract.events import MAX_REQUEST_BYTES
from lethe.consumers.server.keys import ANYONE, Caller, Keys
from lethe.consumers.server.problems import Problem, unknown_model
from lethe.consumers.service.telemetry.logs import log_defect, logger
from lethe.engine.errors import InvalidData, Unauthenticated

MAX_HEAD_BYTES = 32_768
"""Most bytes of a request line and its headers; an id in a path takes up to 1,536 of them. (uvicorn
looks at what has come of a head that is not complete: one that comes at once may be longer.)"""

MAX_BODY_BYTES = MAX_REQUEST_BYTES
"""A body is at most as long as an event: 1 MiB."""

BODY_SECONDS = 20.0
"""How long a body may take: 1 MiB at 52 KB/s. A client that sends slower holds a connection."""

MAX_BUCKETS = 10_000
"""Callers whose rate is remembered, about 2 MB; the one that was silent longest is forgotten."""

FORMS = "/console/"
MAX_FORM_BYTES = 4 << 20
"""Below this path a body is a form: the same ids, percent-encoded."""

_SAFE = frozenset({"GET", "HEAD", "OPTIONS"})
_HEADERS = (
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
    (b"cross-origin-resource-policy", b"same-origin"),
    (b"content-security-policy", b"default-src 'none'; frame-ancestors 'none'"),
    (b"cache-control", b"no-store"),
)
"""Headers of every answer that does not set them itself."""


class Rates:
    """A token bucket for each caller: ``rate`` a second, and twice that at once."""

    def __init__(self, rate: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._rate, self._burst, self._clock = rate, max(2 * rate, 1.0), clock
        self._buckets: OrderedDict[str, tuple[float, float]] = OrderedDict()

    def wait_seconds(self, name: str) -> float:
        """Take a token; return 0, or how long the caller has to wait for one."""
        if self._rate <= 0:
            return 0.0
        now = self._clock()
        tokens, since = self._buckets.pop(name, (self._burst, now))
        tokens = min(self._burst, tokens + (now - since) * self._rate)
        wait = 0.0 if tokens >= 1 else (1 - tokens) / self._rate
        self._buckets[name] = (tokens - (wait == 0.0), now)
        if len(self._buckets) > MAX_BUCKETS:
            self._buckets.popitem(last=False)
        return wait


@dataclass(frozen=True, slots=True)
class Access:
    """Who may call, and how much.

    Attributes
    ----------
    keys
        The keys that count; None: anybody may call, so listen on loopback alone.
    hosts
        Values of ``Host`` that are answered, without the port; None: any. Without keys, a page of
        another site must not reach the server under a name of its own (DNS rebinding).
    rate
        Requests a second of one caller; 0: no limit.
    """

    keys: Keys | None = None
    hosts: frozenset[str] | None = None
    rate: float = 0.0


class Guard:
    """An ASGI application around another one."""

    def __init__(self, app: ASGIApp, access: Access) -> None:
        self._app = app
        self._access = access
        self._rates = Rates(access.rate)
        self._log = logger("server")

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request, or pass it on."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        begun, status = time.perf_counter(), 0

        async def send_with_headers(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                given = message["headers"]
                named = {name for name, _ in given}
                message["headers"] = [*given, *(one for one in _HEADERS if one[0] not in named)]
            await send(message)

        headers = Headers(scope=scope)
        try:
            self._admit(scope, headers)
            most = MAX_FORM_BYTES if scope["path"].startswith(FORMS) else MAX_BODY_BYTES
            limited = _limited(receive, headers, most)
        except Problem as problem:
            await problem.response()(scope, receive, send_with_headers)
        else:
            try:
                await self._app(scope, limited, send_with_headers)
            except ClientDisconnect:
                pass  # uvicorn closes a connection whose answer is not complete
            except Exception as error:
                log_defect(self._log, "defect", error)
                if not status:
                    await _defect().response()(scope, receive, send_with_headers)
        finally:
            caller = scope["state"].get("caller")
            self._log.info(
                "request",
                action="request",
                method=scope["method"],
                route=getattr(scope.get("route"), "path", "-"),
                status=status,
                ms=round((time.perf_counter() - begun) * 1e3, 1),
                key=caller.name if caller else "-",
            )

    def _admit(self, scope: Scope, headers: Headers) -> None:
        """Note in the scope who calls; raise `Problem` if the request goes no further."""
        state = scope.setdefault("state", {})
        if _head_size(scope) > MAX_HEAD_BYTES:
            detail = f"path, query and headers have at most {MAX_HEAD_BYTES} bytes together"
            raise Problem(431, "TOO_LARGE", detail, {"Connection": "close"})
        if "transfer-encoding" in headers and "content-length" in headers:
            # A proxy that counts and a server that reads chunks see two requests, or one.
            detail = "a request has a length or chunks, not both"
            raise Problem(400, "INVALID_REQUEST", detail, {"Connection": "close"})
        self._check_host(headers)
        if scope["method"] not in _SAFE:
            _check_site(headers)
        try:
            state["caller"] = self._caller(headers)
        except Unauthenticated as error:
            state["caller"], state["refusal"] = None, str(error)
        except InvalidData as error:
            self._log.error("keys unreadable", action="keys", reason=str(error))
            raise Problem(503, "KEYS_UNREADABLE", "the server cannot read its keys") from None
        caller = state["caller"]
        address = (scope.get("client") or ("",))[0]
        wait = self._rates.wait_seconds(f"key {caller.name}" if caller else f"address {address}")
        if wait:
            retry = {"Retry-After": str(math.ceil(wait))}
            raise Problem(
                429, "TOO_MANY_REQUESTS", "this key has reached its rate limit; wait", retry
            )

    def _check_host(self, headers: Headers) -> None:
        hosts = self._access.hosts
        host = headers.get("host", "").lower()
        name = host if host.endswith("]") else host.rpartition(":")[0] or host
        if hosts is not None and name not in hosts:
            raise Problem(421, "UNKNOWN_HOST", "this server answers only under its own address")

    def _caller(self, headers: Headers) -> Caller | None:
        if self._access.keys is None:
            return ANYONE
        scheme, _, key = headers.get("authorization", "").partition(" ")
        return self._access.keys.caller(key.strip()) if scheme.lower() == "bearer" else None


def _head_size(scope: Scope) -> int:
    target = len(scope.get("raw_path") or scope["path"]) + len(scope["query_string"])
    return target + sum(len(name) + len(value) for name, value in scope["headers"])


def _check_site(headers: Headers) -> None:
    """Refuse a request that a page of another site has made its visitor's browser send."""
    site, origin = headers.get("sec-fetch-site"), headers.get("origin")
    foreign = site is not None and site not in ("same-origin", "none")
    if foreign or (origin is not None and _netloc(origin) != headers.get("host", "").lower()):
        raise Problem(403, "CROSS_SITE", "another site's page may not send requests to this server")


def _netloc(origin: str) -> str:
    try:
        return urlsplit(origin).netloc.lower()
    except ValueError:
        return ""


def _limited(receive: Receive, headers: Headers, most: int) -> Receive:
    """Return a ``receive`` that refuses a body that is too long, or comes too slowly."""
    announced = headers.get("content-length", "0")
    if not announced.isdigit() or int(announced[:20]) > most:
        raise _too_large(most)
    size, complete, deadline = 0, False, asyncio.get_running_loop().time() + BODY_SECONDS

    async def limited() -> Message:
        nonlocal size, complete
        if complete:  # from now on it waits for the client to go away
            return await receive()
        try:
            async with asyncio.timeout_at(deadline):
                message = await receive()
        except TimeoutError:
            detail = f"the body took longer than {BODY_SECONDS:g} s"
            raise Problem(408, "TOO_SLOW", detail, {"Connection": "close"}) from None
        size += len(message.get("body", b""))
        if size > most:
            raise _too_large(most)
        complete = not message.get("more_body", False)
        return message

    return limited


def _defect() -> Problem:
    detail = "this is a bug; the server's log names it (LETHE_LOG_LEVEL=DEBUG: the traceback)"
    return Problem(500, "BUG", detail)


def _too_large(most: int) -> Problem:
    detail = f"a body has at most {most} bytes; send several requests"
    return Problem(413, "TOO_LARGE", detail, {"Connection": "close"})


async def caller_of(request: Request) -> Caller:
    """Return who calls.

    Raises
    ------
    Problem
        401: nobody that this server knows.
    """
    caller: Caller | None = request.scope["state"].get("caller")
    if caller is None:
        detail = request.scope["state"].get("refusal", "send a key: Authorization: Bearer KEY")
        headers = {"WWW-Authenticate": 'Bearer realm="lethe"'}
        raise Problem(401, Unauthenticated.code, detail, headers)
    return caller


CallerOf = Annotated[Caller, Depends(caller_of)]
"""A parameter of a route: who calls."""


def check_may_use(caller: Caller, model_id: str) -> None:
    """Raise `Problem` 404 if a key is not for a model: whether it exists is not told either."""
    if not caller.allows(model_id):
        raise unknown_model()


async def caller_for_all(caller: CallerOf) -> Caller:
    """Return a caller whose key is for every model.

    Raises
    ------
    Problem
        403: the key is for some models only.
    """
    if not caller.allows_all:
        raise Problem(403, "FORBIDDEN", "this needs a key for every model (*), as an erasure does")
    return caller


CallerForAll = Annotated[Caller, Depends(caller_for_all)]
"""A parameter of a route that concerns every model."""
