"""Server-sent events: a stream that a browser, or curl, reads line by line."""

from __future__ import annotations

from collections.abc import AsyncIterator

from fastapi.responses import Response, StreamingResponse

from lethe.consumers.server.feeds import Bell

EVENT_STREAM = "text/event-stream"

PING = b": alive\n\n"
"""A comment, which clients skip."""


def event(name: str, number: int, value: bytes) -> bytes:
    """Return an event whose data are JSON, which pydantic writes on one line."""
    return b"event: %s\nid: %d\ndata: %s\n\n" % (name.encode(), number, value)


def stream(bell: Bell, events: AsyncIterator[bytes]) -> Response:
    """Return an answer that sends events as they come.

    Raises
    ------
    Problem
        503: too many streams are open.
    """
    bell.check_streams()

    async def counted() -> AsyncIterator[bytes]:
        with bell.stream():
            async for one in events:
                yield one

    # Some proxies hold back a stream unless they are told not to.
    headers = {"X-Accel-Buffering": "no"}
    return StreamingResponse(counted(), headers=headers, media_type=EVENT_STREAM)
