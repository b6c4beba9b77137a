"""Server-sent events: something that the console shows has changed.

An event says that, and no more: the page fetches itself again, so that there is one place where a
page is made.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable

from lethe.consumers.server.index.follower import Progress

LOOK_SECONDS = 0.5
"""Between looks at the index. A page is fetched again at most twice a second."""

KEEP_ALIVE_SECONDS = 15.0
"""A comment this often keeps proxies from closing the connection."""

LONGEST_SECONDS = 3600.0
"""Then the browser connects again, and its session is looked up again."""


async def changes(
    progress: Callable[[], Progress],
    ends: Callable[[], bool],
    gone: Callable[[], Awaitable[bool]],
) -> AsyncIterator[bytes]:
    """Yield an event whenever the index has changed, until server or client end."""
    begin = said = time.monotonic()
    seen = progress()
    yield b"retry: 2000\n\n"
    while time.monotonic() - begin < LONGEST_SECONDS and not ends() and not await gone():
        now = progress()
        if _shown(now) != _shown(seen):
            seen, said = now, time.monotonic()
            yield b"event: change\ndata: %d\n\n" % now.changes
        elif time.monotonic() - said > KEEP_ALIVE_SECONDS:
            said = time.monotonic()
            yield b": still here\n\n"
        await asyncio.sleep(LOOK_SECONDS)


def _shown(progress: Progress) -> tuple[object, ...]:
    return progress.changes, progress.trouble, progress.caught_up
