"""New versions for everybody who listens: read once for each model, sent to each at its own pace.

A thread waits for something to be published and wakes the feeds. A feed belongs to one model and
keeps its last versions; a listener has nothing but a position, so a slow one holds up nobody, loses
nothing, and reads what the feed no longer keeps from the index.
"""

from __future__ import annotations

import asyncio
import threading
from collections import Counter, deque
from collections.abc import AsyncIterator, Awaitable, Iterator, Sequence
from contextlib import contextmanager

from lethe.consumers.server.index.published import IndexPublished
from lethe.consumers.server.keys import ANYONE, Caller
from lethe.consumers.server.problems import Problem
from lethe.consumers.service.telemetry.logs import logger

KEPT = 256
"""Versions that a feed keeps, about 256 KB a model that somebody listens to."""

MAX_STREAMS = 500
"""Streams at a time: half of the connections, so that requests always find one."""

MAX_STREAMS_OF_KEY = 100
"""Streams of one key: whoever has it leaves some to the others."""

PING_SECONDS = 15.0
"""How often a silent stream says that it is alive: proxies close one that says nothing for 30 s."""

MAX_STREAM_SECONDS = 3_600.0
"""How long a stream lasts; its client connects again, and its key is looked at again."""

_WAIT_SECONDS = 0.2

Entry = tuple[int, bytes]
"""A version: its number and its JSON value."""


class Bell:
    """Wakes coroutines when something was published; use it in a ``with`` statement."""

    def __init__(self, published: IndexPublished, stop: threading.Event) -> None:
        self._published = published
        self._stop = stop
        self._thread = threading.Thread(target=self._run, name="bell", daemon=True)
        self._waiting: set[asyncio.Future[None]] = set()
        self._lock = threading.Lock()
        self._streams: Counter[Caller] = Counter()

    @contextmanager
    def ringing(self) -> Iterator[None]:
        """Wake coroutines until the block ends."""
        self._thread.start()
        try:
            yield
        finally:
            self._stop.set()
            self._thread.join()

    @property
    def stopped(self) -> bool:
        """Whether the server is stopping."""
        return self._stop.is_set()

    @property
    def open_streams(self) -> int:
        """How many streams are open."""
        return self._streams.total()

    def begin_stream(self, caller: Caller) -> None:
        """Count a stream, until `end_stream`.

        Raises
        ------
        Problem
            503: there are as many streams as there may be. 429: that many are this key's.
        """
        retry = {"Retry-After": "5"}
        if self.open_streams >= MAX_STREAMS:
            raise Problem(503, "BUSY", "too many streams are open; try again", retry)
        if caller is not ANYONE and self._streams[caller] >= MAX_STREAMS_OF_KEY:
            detail = f"this key has {MAX_STREAMS_OF_KEY} streams open; end one first"
            raise Problem(429, "TOO_MANY_REQUESTS", detail, retry)
        self._streams[caller] += 1

    def end_stream(self, caller: Caller) -> None:
        """Stop counting a stream."""
        self._streams[caller] -= 1
        if not self._streams[caller]:
            del self._streams[caller]

    @contextmanager
    def rung(self) -> Iterator[asyncio.Future[None]]:
        """Yield what is done at the next ring; look at the index inside, so that none is missed."""
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        with self._lock:
            self._waiting.add(future)
        try:
            yield future
        finally:
            with self._lock:
                self._waiting.discard(future)

    def _run(self) -> None:
        seen = 0
        while not self._stop.is_set():
            now = self._published.wait(seen, _WAIT_SECONDS)
            if now != seen:
                self._ring()
            seen = now
        self._ring()

    def _ring(self) -> None:
        with self._lock:
            waiting, self._waiting = self._waiting, set()
        for loop in {future.get_loop() for future in waiting}:
            if not loop.is_closed():
                loop.call_soon_threadsafe(_wake, [one for one in waiting if one.get_loop() is loop])


def _wake(futures: Sequence[asyncio.Future[None]]) -> None:
    for future in futures:
        if not future.done():
            future.set_result(None)


class Feed:
    """The versions of one model for everybody who listens to it; one event loop uses it."""

    def __init__(self, model_id: str, published: IndexPublished, bell: Bell) -> None:
        self._model_id = model_id
        self._published = published
        self._bell = bell
        self._kept: deque[Entry] = deque(maxlen=KEPT)
        self._newest = -1
        self._changed = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self.ended = False
        self.listeners = 0

    async def listen(self, after: int | None) -> AsyncIterator[Sequence[Entry]]:
        """Yield versions above number ``after``, or from the newest on; empty: a sign of life."""
        now = asyncio.get_running_loop().time
        end, position = now() + MAX_STREAM_SECONDS, after
        self.listeners += 1
        if self._task is None:
            self._task = asyncio.create_task(self._follow())
        try:
            while not self.ended and now() < end:
                changed = self._changed
                if position is None and self._kept:
                    position = self._newest - 1
                entries = () if position is None else await self._above(position)
                if entries:
                    position = entries[-1][0]
                    yield entries
                elif not await within(changed.wait(), PING_SECONDS):
                    yield ()
        finally:
            self.listeners -= 1
            if self.listeners == 0:
                self._task.cancel()

    async def _above(self, position: int) -> Sequence[Entry]:
        if position >= self._newest and self._kept:
            return ()
        if self._kept and self._kept[0][0] <= position + 1:
            return [entry for entry in self._kept if entry[0] > position]
        return await asyncio.to_thread(self._published.versions, self._model_id, position, KEPT)

    async def _follow(self) -> None:
        """Read the newest version, and each later one when something was published."""
        try:
            newest = await asyncio.to_thread(self._published.newest, self._model_id)
            self._newest = max(newest - 1, -1)
            while not self._bell.stopped:
                with self._bell.rung() as rung:
                    entries = await asyncio.to_thread(
                        self._published.versions, self._model_id, self._newest, KEPT
                    )
                    if not entries:
                        await within(rung, PING_SECONDS)
                        continue
                self._kept.extend(entries)
                self._newest = entries[-1][0]
                self._wake_listeners()
        except Exception as error:  # listeners end, connect again, and get a feed that may work
            logger("server").error("feed ended", action="feed", reason=str(error))
        finally:
            self.ended = True
            self._wake_listeners()

    def _wake_listeners(self) -> None:
        changed, self._changed = self._changed, asyncio.Event()
        changed.set()


async def within(awaited: Awaitable[object], seconds: float) -> bool:
    """Return whether something came within some time."""
    try:
        async with asyncio.timeout(seconds):
            await awaited
    except TimeoutError:
        return False
    return True


class Feeds:
    """The feeds of all models that somebody listens to."""

    def __init__(self, published: IndexPublished, bell: Bell) -> None:
        self._published = published
        self._bell = bell
        self._feeds: dict[str, Feed] = {}

    async def listen(self, model_id: str, after: int | None) -> AsyncIterator[Sequence[Entry]]:
        """Yield versions as `Feed.listen` does."""
        feed = self._feeds.get(model_id)
        if feed is None or feed.ended:
            feed = self._feeds[model_id] = Feed(model_id, self._published, self._bell)
        try:
            async for entries in feed.listen(after):
                yield entries
        finally:
            if feed.listeners == 0 and self._feeds.get(model_id) is feed:
                del self._feeds[model_id]
