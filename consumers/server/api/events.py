"""Server-sent events: a stream that a browser, or curl, reads line by line."""

from __future__ import annotations

from collections.abc import AsyncIterator
from functools import partial

from fastapi.responses import Response, StreamingResponse
from starlette.types import Receive, Scope, Send

from lethe.consumers.server.feeds import Bell
from lethe.consumers.server.keys import Caller

EVENT_STREAM = "text/event-stream"

PING = b": alive\n\n"
"""A comment, which clients skip."""


def event(name: str, number: int, value: bytes) -> bytes:
    """Return an event whose data are JSON, which pydantic writes on one line."""
    return b"event: %s\nid: %d\ndata: %s\n\n" % (name.encode(), number, value)


class _Stream(StreamingResponse):
    """An answer that is counted, from when it is made to when it has ended."""

    def __init__(self, bell: Bell, caller: Caller, events: AsyncIterator[bytes]) -> None:
        bell.begin_stream(caller)
        self._ended = partial(bell.end_stream, caller)
        # Some proxies hold back a stream unless they are told not to.
        super().__init__(events, headers={"X-Accel-Buffering": "no"}, media_type=EVENT_STREAM)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await super().__call__(scope, receive, send)
        finally:
            self._ended()


def stream(bell: Bell, caller: Caller, events: AsyncIterator[bytes]) -> Response:
    """Return an answer that sends events as they come; raises what `Bell.begin_stream` raises."""
    return _Stream(bell, caller, events)
