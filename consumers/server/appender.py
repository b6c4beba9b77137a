"""Appending to the log: acknowledged, for many requests at a time.

One thread owns the producer. While it waits for the log to acknowledge a send, what arrives
meanwhile gathers, and becomes the next send: the more requests there are, the more share one
round trip, and none waits for more than two.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from queue import Empty, SimpleQueue
from typing import Self

from lethe.consumers.contract.codes import REQUEST_ID_CONFLICT
from lethe.consumers.log.base import Appended, Message, Producer
from lethe.consumers.service.telemetry.logs import log_defect, logger
from lethe.engine.errors import LetheError, LogUnavailable

MAX_BATCH = 256
"""Messages of one send: what Redis Streams takes in one round trip."""

MAX_BATCH_BYTES = 8 << 20
"""Bytes of one send, for the same reason."""

MAX_WAITING_BYTES = 64 << 20
"""Bytes that may wait for the log; more are refused at once: a log that is down must not fill the
memory of the server."""

ACKNOWLEDGE_SECONDS = 15.0
"""How long a caller waits for the log before it is told to send again."""

TAKEN = "a request with this id and different content was sent before; choose another id"


@dataclass(frozen=True, slots=True)
class Identity:
    """What a deletion request is known by: its model, its id, and the digest of its content."""

    model_id: str
    request_id: str
    body: bytes


class RequestConflict(LetheError):
    """A request with this id and another content was processed before; choose another id."""

    code = REQUEST_ID_CONFLICT


Conflicts = Callable[[Sequence[Identity]], Sequence[bool]]
"""Returns for each request whether one with its id and another content was processed."""


class Busy(LogUnavailable):
    """Too many requests wait for the log; send again later."""

    code = "BUSY"


@dataclass(frozen=True, slots=True)
class _Waiting:
    message: Message
    identity: Identity | None
    answer: asyncio.Future[Appended]


class Appender:
    """Appends messages from any coroutine of one event loop; use it in a ``with`` statement.

    Parameters
    ----------
    producer
        Returns a producer for the thread.
    conflicts
        Finds requests whose ids are taken, in one round trip for a whole batch. The worker would
        find them as well, but their senders would hear of it later, from the topic alone.
    """

    def __init__(self, producer: Callable[[], Producer], conflicts: Conflicts) -> None:
        self._producer = producer
        self._conflicts = conflicts
        self._open: Producer | None = None
        self._queue: SimpleQueue[_Waiting | None] = SimpleQueue()
        self._thread = threading.Thread(target=self._run, name="appender", daemon=True)
        self._bytes = 0
        self._log = logger("server")

    def __enter__(self) -> Self:
        """Start the thread."""
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        """Send what waits, and end the thread."""
        self._queue.put(None)
        self._thread.join()

    async def append(self, message: Message, identity: Identity | None = None) -> Appended:
        """Return where a message is, once the log has acknowledged it.

        Raises
        ------
        RequestConflict
            The id in ``identity`` is taken; nothing was sent.
        LogUnavailable
            It was not acknowledged in time, and may be in the log: send it again, unchanged.
        """
        size = len(message.value or b"")
        if self._bytes + size > MAX_WAITING_BYTES:
            raise Busy("the log is behind and the server is full; send the request again later")
        waiting = _Waiting(message, identity, asyncio.get_running_loop().create_future())
        self._bytes += size
        try:
            self._queue.put(waiting)
            return await waiting.answer
        finally:
            self._bytes -= size

    def _run(self) -> None:
        while (batch := self._next()) is not None:
            self._send(batch)
        if self._open is not None:
            self._open.close()

    def _next(self) -> list[_Waiting] | None:
        """Return what waits, once anything does; None at the end."""
        first = self._queue.get()
        if first is None:
            return None
        batch, size = [first], len(first.message.value or b"")
        while len(batch) < MAX_BATCH and size < MAX_BATCH_BYTES:
            try:
                waiting = self._queue.get_nowait()
            except Empty:
                break
            if waiting is None:
                self._queue.put(None)  # the next call ends the thread
                break
            batch.append(waiting)
            size += len(waiting.message.value or b"")
        return batch

    def _send(self, batch: Sequence[_Waiting]) -> None:
        outcome: Sequence[Appended] | LetheError
        try:
            batch = self._without_conflicts(batch)
            if not batch:
                return
            if self._open is None:
                self._open = self._producer()
            outcome = self._open.append([one.message for one in batch], ACKNOWLEDGE_SECONDS)
        except LetheError as error:
            outcome = error
        except Exception as error:  # callers must hear of it, and the thread must go on
            log_defect(self._log, "append", error)
            outcome = LogUnavailable("the request was not acknowledged; send it again")
        if isinstance(outcome, LetheError):
            self._log.warning("not acknowledged", action="append", reason=str(outcome))
        _call(batch, outcome)

    def _without_conflicts(self, batch: Sequence[_Waiting]) -> Sequence[_Waiting]:
        """Answer the requests whose ids are taken; return the others."""
        identities = [one.identity for one in batch if one.identity is not None]
        try:
            taken = dict(zip(identities, self._conflicts(identities), strict=True))
        except LetheError as error:  # the log may still work; the worker looks, too
            self._log.warning("ids not looked up", action="append", reason=str(error))
            return batch
        fresh: list[_Waiting] = []
        refused: list[_Waiting] = []
        for one in batch:
            (refused if one.identity and taken[one.identity] else fresh).append(one)
        if refused:
            _call(refused, RequestConflict(TAKEN))
        return fresh


def _call(batch: Sequence[_Waiting], outcome: Sequence[Appended] | LetheError) -> None:
    """Answer callers in their event loop, unless the server has given them up."""
    loop = batch[0].answer.get_loop()
    if not loop.is_closed():
        loop.call_soon_threadsafe(_settle, batch, outcome)


def _settle(batch: Sequence[_Waiting], outcome: Sequence[Appended] | LetheError) -> None:
    """Answer every caller that still waits."""
    for i, one in enumerate(batch):
        if one.answer.done():  # its client has gone
            continue
        if isinstance(outcome, LetheError):
            one.answer.set_exception(outcome)
        else:
            one.answer.set_result(outcome[i])
