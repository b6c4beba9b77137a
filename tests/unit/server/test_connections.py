"""One connection: what its client delays ends, and its answers are sent whole."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
import uvicorn
from uvicorn.server import ServerState

from lethe.consumers.server import connections
from lethe.consumers.server.connections import PunctualProtocol

REQUEST = b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n"


class Recorded(asyncio.Transport):
    """A connection whose client reads nothing."""

    def __init__(self) -> None:
        super().__init__({"peername": ("127.0.0.1", 1), "sockname": ("127.0.0.1", 2)})
        self.writes: list[bytes] = []
        self.closed = self.aborted = False

    def write(self, data: Any) -> None:
        self.writes.append(bytes(data))

    def get_write_buffer_size(self) -> int:
        return sum(map(len, self.writes))

    def is_closing(self) -> bool:
        return self.closed

    def close(self) -> None:
        self.closed = True

    def abort(self) -> None:
        self.aborted = True

    def pause_reading(self) -> None:
        pass

    def resume_reading(self) -> None:
        pass


async def answer(scope: Any, receive: Any, send: Any) -> None:
    """Answer with a head and a body of two parts."""
    del scope, receive
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": b"a" * 10, "more_body": True})
    await send({"type": "http.response.body", "body": b"b" * 10})


def connected(check: Callable[[PunctualProtocol, Recorded], Any]) -> Recorded:
    """Run a check on a connection in an event loop of its own; return the transport."""
    transport = Recorded()

    async def run() -> None:
        config = uvicorn.Config(answer, log_config=None, lifespan="off")
        config.load()
        protocol = PunctualProtocol(config, ServerState(), {})
        protocol.connection_made(transport)
        await check(protocol, transport)
        protocol.connection_lost(None)

    asyncio.run(run())
    return transport


def test_head_and_body_are_sent_together() -> None:
    async def ask(protocol: PunctualProtocol, _: Recorded) -> None:
        protocol.data_received(REQUEST)
        await asyncio.sleep(0.05)

    (sent,) = connected(ask).writes

    assert sent.startswith(b"HTTP/1.1 200")
    assert b"a" * 10 in sent
    assert b"b" * 10 in sent


def test_what_was_written_is_sent_before_the_end() -> None:
    async def ask(protocol: PunctualProtocol, transport: Recorded) -> None:
        protocol.data_received(REQUEST.replace(b"localhost", b"localhost\r\nConnection: close"))
        await asyncio.sleep(0.05)
        assert transport.closed

    assert b"".join(connected(ask).writes).count(b"b" * 10) == 1


@pytest.mark.parametrize("reads", [False, True])
def test_a_client_that_reads_nothing_is_cut_off(
    monkeypatch: pytest.MonkeyPatch, reads: bool
) -> None:
    monkeypatch.setattr(connections, "SEND_SECONDS", 0.0)

    async def ask(protocol: PunctualProtocol, _: Recorded) -> None:
        protocol.pause_writing()
        if reads:
            protocol.resume_writing()
        await asyncio.sleep(0.05)

    assert connected(ask).aborted is not reads


def test_a_client_that_goes_without_its_answer_holds_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(connections, "SEND_SECONDS", 0.0)

    async def leave(protocol: PunctualProtocol, transport: Recorded) -> None:
        transport.write(b"not read")
        protocol.eof_received()
        await asyncio.sleep(0.05)

    left = connected(leave)

    assert left.closed
    assert left.aborted


def test_a_head_that_is_not_finished_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "HEAD_SECONDS", 0.0)

    async def ask(protocol: PunctualProtocol, _: Recorded) -> None:
        protocol.data_received(REQUEST[:20])
        await asyncio.sleep(0.05)

    assert connected(ask).closed


def test_a_connection_too_many_is_told_to_come_back(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "MAX_CONNECTIONS", 0)

    async def ask(protocol: PunctualProtocol, transport: Recorded) -> None:
        protocol.data_received(REQUEST)
        await asyncio.sleep(0.05)
        assert transport.closed

    sent = b"".join(connected(ask).writes)

    assert sent.startswith(b"HTTP/1.1 503")
    assert b"retry-after: 1" in sent
    assert b'"code": "BUSY"' in sent
