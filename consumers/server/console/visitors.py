"""Who looks at the console, and whether a form is one of its own.

With keys, a visitor enters one and gets a cookie; sessions live in memory, so a restart ends them.
Without keys the console answers to everybody on the machine, and so it must be careful about other
sites in the same browser: the guard of the server answers to the names of loopback only, and a form
is taken only from the console's own pages.
"""

from __future__ import annotations

import hmac
import secrets
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from urllib.parse import urlsplit

from lethe.consumers.server.keys import ANYONE, Caller

COOKIE = "lethe-session"

SESSION_SECONDS = 8 * 3600.0
"""A working day; then the key is asked for again."""

MAX_SESSIONS = 1_000
"""More are for people who sign in again and again: the oldest session ends."""


@dataclass(frozen=True, slots=True)
class Visitor:
    """Somebody who may look. ``session`` is empty where nobody needs a key."""

    token: str
    caller: Caller = ANYONE
    session: str = ""

    def sees(self, model_id: str) -> bool:
        """Return whether a model may be shown to them."""
        return self.caller.allows(model_id)

    @property
    def sees_all(self) -> bool:
        """Whether every model may be shown to them, and each person erased."""
        return self.caller.allows_all


@dataclass(frozen=True, slots=True)
class _Session:
    secret: str = field(repr=False)
    until: float


class Sessions:
    """Sessions by their cookies; used by the event loop and by threads that only read."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._secret = secrets.token_bytes(32)
        self._sessions: dict[str, _Session] = {}

    def begin(self, secret: str) -> str:
        """Return the cookie of a new session for a key."""
        if len(self._sessions) >= MAX_SESSIONS:
            del self._sessions[next(iter(self._sessions))]
        cookie = secrets.token_urlsafe(32)
        self._sessions[cookie] = _Session(secret, self._clock() + SESSION_SECONDS)
        return cookie

    def secret_of(self, cookie: str) -> str | None:
        """Return the key of a session, which is looked up again each time: it may be withdrawn."""
        session = self._sessions.get(cookie)
        if session is None or self._clock() > session.until:
            self._sessions.pop(cookie, None)
            return None
        return session.secret

    def end(self, cookie: str) -> None:
        """End a session."""
        self._sessions.pop(cookie, None)

    def token(self, cookie: str) -> str:
        """Return what a form of this session must carry."""
        return hmac.new(self._secret, f"form\n{cookie}".encode(), "sha256").hexdigest()

    def is_token(self, cookie: str, token: str) -> bool:
        """Return whether a form carries what it must."""
        return hmac.compare_digest(self.token(cookie), token)


def own_form(headers: Mapping[str, str]) -> bool:
    """Return whether a browser says that a form was sent from a page of this console."""
    site = headers.get("sec-fetch-site")
    if site is not None and site != "same-origin":
        return False
    origin = headers.get("origin")
    return origin is None or urlsplit(origin).netloc == headers.get("host")
