"""Callbacks: a POST to an address that the configuration allows, and to no other.

Whoever may send requests chooses the addresses, so they must not reach what only this machine can
reach: an address must be on the list, its name is resolved once and checked, the connection goes to
what was checked, and a redirect is not followed.
"""

from __future__ import annotations

import http.client
import ipaddress
import re
import socket
import ssl
from collections.abc import Mapping
from contextlib import closing
from urllib.parse import SplitResult, unquote, urlsplit

from lethe.consumers.server.opendsr.configuration import CallbackRules
from lethe.engine.errors import InvalidRequest, Unavailable

SECONDS = 10.0
"""How long an address may take to answer."""

MAX_URL = 2_048
MAX_CALLBACKS = 10
"""Length and number of the addresses of one request."""


class CallbackFailed(Unavailable):
    """A callback was not taken; it is tried again."""

    code = "CALLBACK_FAILED"


def check_allowed(url: str, rules: CallbackRules) -> SplitResult:
    """Return the parts of an address.

    Raises
    ------
    InvalidRequest
        It is not on the list.
    """
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        raise _refused() from None
    plain = url.isascii() and url.isprintable() and " " not in url and "\\" not in url
    if len(url) > MAX_URL or not plain or parts.username or parts.fragment or port == 0:
        raise _refused()
    for allowed in rules.allow:
        wanted = urlsplit(allowed)
        same_origin = (parts.scheme, parts.hostname, port) == (
            wanted.scheme, wanted.hostname, wanted.port,
        )  # fmt: skip
        below = parts.path == wanted.path or (
            wanted.path.endswith("/") and parts.path.startswith(wanted.path)
        )
        if same_origin and below and not _climbs(parts.path):
            return parts
    raise _refused()


def _climbs(path: str) -> bool:
    """Return whether some server may take a part of a path for a step between folders.

    Servers decode a path once, or behind a proxy twice; some take a backslash for a slash, and some
    cut off what follows a semicolon or a NUL.
    """
    decoded = unquote(path)
    while decoded != path:
        path, decoded = decoded, unquote(decoded)
    steps = re.split(r"[/\\]", path)
    return any(re.split(r"[;\0]", step)[0].strip() in (".", "..") for step in steps)


def _refused() -> InvalidRequest:
    return InvalidRequest(
        "a status_callback_url is not allowed here: nothing was erased. Leave it out, or have the "
        "server's configuration allow it"
    )


def send(url: str, body: bytes, headers: Mapping[str, str], rules: CallbackRules) -> None:
    """Send a callback.

    Raises
    ------
    CallbackFailed
        It was not answered with a status from 200 to 299, in time.
    InvalidRequest
        The address is not allowed (any more).
    """
    parts = check_allowed(url, rules)
    host, tls = parts.hostname or "", parts.scheme == "https"
    port = parts.port or (443 if tls else 80)
    try:
        address = _resolve(host, port, rules)
        with closing(_Connection(host, port, address, tls=tls)) as client:
            target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
            client.request("POST", target, body, {"Content-Type": "application/json", **headers})
            status = client.getresponse().status
    except (OSError, http.client.HTTPException) as error:
        raise CallbackFailed(f"{host} was not reached: {type(error).__name__}") from None
    if not 200 <= status < 300:
        raise CallbackFailed(f"{host} answered {status}")


def _resolve(host: str, port: int, rules: CallbackRules) -> str:
    """Return the address of a host, unless it is one that nobody outside may reach."""
    found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    addresses = [str(entry[4][0]) for entry in found]
    if not rules.private:
        for address in addresses:
            if not ipaddress.ip_address(address.partition("%")[0]).is_global:
                raise CallbackFailed(f"{host} has a private address")
    return addresses[0]


class _Connection(http.client.HTTPConnection):
    """A connection to an address that was checked, under the host's own name."""

    def __init__(self, host: str, port: int, address: str, *, tls: bool) -> None:
        super().__init__(host, port, timeout=SECONDS)
        self._address = address
        self._context = ssl.create_default_context() if tls else None

    def connect(self) -> None:
        """Connect, without looking the name up again."""
        plain = socket.create_connection((self._address, self.port), self.timeout)
        if self._context is None:
            self.sock = plain
        else:
            self.sock = self._context.wrap_socket(plain, server_hostname=self.host)
