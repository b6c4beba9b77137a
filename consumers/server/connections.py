"""One connection: HTTP/1.1 as uvicorn speaks it, with a limit to whatever its client can delay."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Callable
from functools import partial
from typing import Any, TypeAlias, cast

import h11
import uvicorn
from starlette.types import Receive, Scope, Send
from uvicorn.protocols.http.h11_impl import H11Protocol
from uvicorn.server import ServerState

from lethe.consumers.server.problems import Problem

MAX_CONNECTIONS = 1_000
"""Connections at a time. Each takes a file descriptor; a process often has 1,024. The one that has
been without a request for longest makes room for a new one; if all have one, the new one gets 503.
"""

BUSY_SECONDS = 1.0
"""How long a client beyond them may take to send a head, and be told."""

HEAD_SECONDS = 10.0
"""How long a client may take to send the head of a request: one that drips bytes holds nothing."""

SEND_SECONDS = 60.0
"""How long a client may take to make room for more of an answer; then its connection is closed."""

_JOINED_BYTES = 16_384


Waiting: TypeAlias = "OrderedDict[PunctualProtocol, None]"
"""The connections of a server that have no request, in the order in which they began to wait."""


def waiting_together() -> type[asyncio.Protocol]:
    """Return what makes the connections of one server, for uvicorn."""
    waiting: Waiting = OrderedDict()
    return cast("type[asyncio.Protocol]", partial(PunctualProtocol, waiting=waiting))


class PunctualProtocol(H11Protocol):
    """Closes a connection whose client is too slow to send a head, or to read its answers.

    uvicorn closes idle connections, but waits for ever once a first byte has come, and before it;
    and for ever for a client that reads nothing.
    """

    _head: _Deadline
    _room: _Deadline

    def __init__(
        self,
        config: uvicorn.Config,
        server_state: ServerState,
        app_state: dict[str, Any],
        _loop: asyncio.AbstractEventLoop | None = None,
        waiting: Waiting | None = None,
    ) -> None:
        super().__init__(config, server_state, app_state, _loop)
        self._waiting: Waiting = OrderedDict() if waiting is None else waiting

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Begin to wait for the first head."""
        joined = _JoinedWrites(transport, self.loop)
        super().connection_made(joined)  # type: ignore[arg-type]
        self._head = _Deadline(self.loop, self.timeout_keep_alive_handler)
        self._room = _Deadline(self.loop, transport.abort)
        busy = len(self.connections) > MAX_CONNECTIONS
        if busy and self._waiting:
            self._waiting.popitem(last=False)[0].timeout_keep_alive_handler()
            busy = False
        if busy:
            self.app = _answer_busy
        else:
            self._waiting[self] = None
        self._head.begin(BUSY_SECONDS if busy else HEAD_SECONDS)

    def data_received(self, data: bytes) -> None:
        """Stop waiting once a head is complete; wait for the next one from its first byte on."""
        super().data_received(data)
        if self.conn.their_state is not h11.IDLE:
            self._head.met()
            self._waiting.pop(self, None)
        elif self.conn.trailing_data[0]:
            self._head.begin(HEAD_SECONDS)

    def on_response_complete(self) -> None:
        """Wait for the next request, last of all that wait."""
        super().on_response_complete()
        if self.conn.their_state is h11.IDLE and not self.transport.is_closing():
            self._waiting[self] = None

    def eof_received(self) -> None:
        """Close: the client sends nothing more, and need not read what it was sent."""
        self.transport.close()

    def pause_writing(self) -> None:
        """Begin to wait for the client to read."""
        super().pause_writing()
        self._room.begin(SEND_SECONDS)

    def resume_writing(self) -> None:
        """Stop waiting: the client has read."""
        self._room.met()
        super().resume_writing()

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop waiting."""
        self._waiting.pop(self, None)
        self._head.met()
        self._room.met()
        super().connection_lost(exc)


async def _answer_busy(scope: Scope, receive: Receive, send: Send) -> None:
    headers = {"Retry-After": "1", "Connection": "close"}
    problem = Problem(503, "BUSY", "too many connections are open; send it again later", headers)
    await problem.response()(scope, receive, send)


class _Deadline:
    """Calls a function if what is waited for does not happen in time."""

    def __init__(self, loop: asyncio.AbstractEventLoop, missed: Callable[[], None]) -> None:
        self._loop = loop
        self._missed = missed
        self._timer: asyncio.TimerHandle | None = None

    def begin(self, seconds: float) -> None:
        """Wait, unless that has begun already."""
        if self._timer is None:
            self._timer = self._loop.call_later(seconds, self._missed)

    def met(self) -> None:
        """Stop waiting."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


class _JoinedWrites:
    """A transport that sends at once what is written in one step of the event loop.

    uvicorn writes the head of an answer and its body apart: two calls of the system, two packets,
    and a client that wakes twice.
    """

    def __init__(self, transport: asyncio.Transport, loop: asyncio.AbstractEventLoop) -> None:
        self._transport = transport
        self._loop = loop
        self._parts: list[bytes] = []
        self._size = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)

    def write(self, data: bytes) -> None:
        """Send ``data`` with what else this step writes; much of it at once."""
        if not self._parts:
            self._loop.call_soon(self._flush)
        self._parts.append(data)
        self._size += len(data)
        if self._size > _JOINED_BYTES:  # the transport counts it, and asks for a pause
            self._flush()

    def close(self) -> None:
        """Send what was written, and close; a client that does not read it does not delay that."""
        self._flush()
        self._transport.close()
        if self._transport.get_write_buffer_size():
            self._loop.call_later(SEND_SECONDS, self._transport.abort)

    def _flush(self) -> None:
        if self._parts and not self._transport.is_closing():
            self._transport.write(b"".join(self._parts))
        self._parts.clear()
        self._size = 0
