"""The appender: many requests share a send, and each hears what became of it, whatever fails."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterable, Sequence

import pytest

from lethe.consumers.log.base import Appended, Flush, Message, Partition, Producer
from lethe.consumers.server import appender
from lethe.consumers.server.appender import Appender, Busy, Identity, RequestConflict
from lethe.engine.errors import LogUnavailable, StoreUnavailable

PARTITION = Partition("t", "id", 0)


class Slow(Producer):
    """Takes a send at a time, once it is told to, and remembers them."""

    def __init__(self) -> None:
        self.sends: list[list[Message]] = []
        self.go = threading.Event()
        self.failure: Exception | None = None
        self.closed = False

    def begin(self, messages: Iterable[Message]) -> Flush:
        raise NotImplementedError

    def append(self, messages: Iterable[Message], timeout: float = 30.0) -> Sequence[Appended]:
        batch = list(messages)
        assert self.go.wait(timeout)
        self.sends.append(batch)
        if self.failure is not None:
            raise self.failure
        return [Appended(PARTITION, len(self.sends) * 1000 + i) for i in range(len(batch))]

    def close(self) -> None:
        self.closed = True


def message(number: int) -> Message:
    return Message("t", b"m", str(number).encode())


def free(identities: Sequence[Identity]) -> Sequence[bool]:
    return [False] * len(identities)


async def send_all(appending: Appender, count: int, producer: Slow) -> list[Appended]:
    """Append messages at once; the producer begins when all of them wait."""
    tasks = [asyncio.create_task(appending.append(message(i))) for i in range(count)]
    await asyncio.sleep(0.05)
    producer.go.set()
    return await asyncio.gather(*tasks)


def test_what_waits_while_a_send_is_on_its_way_becomes_the_next_send() -> None:
    producer = Slow()
    with Appender(lambda: producer, free) as appending:
        places = asyncio.run(send_all(appending, 100, producer))

    assert len(producer.sends) <= 2  # the first to come, and all others
    sent = [one.value for batch in producer.sends for one in batch]
    assert sent == [str(i).encode() for i in range(100)]
    assert len({place.offset for place in places}) == 100
    assert producer.closed


def test_a_failed_send_fails_its_callers_and_no_others() -> None:
    producer = Slow()
    producer.failure = LogUnavailable("down")
    producer.go.set()

    async def calls(appending: Appender) -> None:
        with pytest.raises(LogUnavailable):
            await appending.append(message(0))
        producer.failure = RuntimeError("a defect")
        with pytest.raises(LogUnavailable):
            await appending.append(message(1))
        producer.failure = None
        assert (await appending.append(message(2))).offset == 3000

    with Appender(lambda: producer, free) as appending:
        asyncio.run(calls(appending))


def test_a_log_that_is_down_at_first_is_tried_again() -> None:
    producer, tries = Slow(), [LogUnavailable("down")]
    producer.go.set()

    def connect() -> Slow:
        if tries:
            raise tries.pop()
        return producer

    async def calls(appending: Appender) -> Appended:
        with pytest.raises(LogUnavailable):
            await appending.append(message(0))
        return await appending.append(message(1))

    with Appender(connect, free) as appending:
        assert asyncio.run(calls(appending)).partition == PARTITION


def test_a_taken_id_is_refused_and_its_neighbours_are_sent() -> None:
    producer = Slow()
    producer.go.set()
    taken = Identity("m", "taken", b"x")

    async def calls(appending: Appender) -> Sequence[object]:
        asked = [Identity("m", "a", b"x"), taken, None]
        sends = [appending.append(message(i), one) for i, one in enumerate(asked)]
        return await asyncio.gather(*sends, return_exceptions=True)

    with Appender(lambda: producer, lambda found: [one == taken for one in found]) as appending:
        first, second, third = asyncio.run(calls(appending))

    assert isinstance(second, RequestConflict)
    assert isinstance(first, Appended)
    assert isinstance(third, Appended)


def test_a_store_that_is_down_does_not_stop_the_log() -> None:
    producer = Slow()
    producer.go.set()

    def fail(_: Sequence[Identity]) -> Sequence[bool]:
        raise StoreUnavailable("down")

    with Appender(lambda: producer, fail) as appending:
        asyncio.run(appending.append(message(0), Identity("m", "a", b"x")))

    assert len(producer.sends) == 1


def test_more_than_the_memory_holds_is_refused_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(appender, "MAX_WAITING_BYTES", 1)
    producer = Slow()

    async def calls(appending: Appender) -> None:
        waiting = asyncio.create_task(appending.append(message(0)))
        await asyncio.sleep(0)
        with pytest.raises(Busy):
            await appending.append(message(1))
        producer.go.set()
        await waiting

    with Appender(lambda: producer, free) as appending:
        asyncio.run(calls(appending))
