"""A small TCP proxy that can be told to cut, hold, slow down and reset what passes through it.

It runs in a process of its own (``python -m tests.proof.chaos.proxy``), so that a busy test cannot
slow it down; `Proxies` is the handle on it. One command a line as JSON on standard input, one
answer a line on standard output. It ends with its standard input.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import socket
import struct
import subprocess
import sys
import threading
from dataclasses import dataclass, field
from typing import Any

from tests.support.servers import ROOT

_CHUNK = 1 << 16


@dataclass
class Route:
    """One listening port and where it leads.

    Attributes
    ----------
    target
        Port of the server on loopback.
    open
        Whether connections are taken; a closed route refuses them, as a server that is not there.
    held
        Set while bytes pass; cleared, everything stands still and no connection breaks.
    delay
        Seconds that every piece of data waits.
    """

    target: int
    open: bool = True
    held: asyncio.Event = field(default_factory=asyncio.Event)
    delay: float = 0.0
    pairs: set[tuple[asyncio.StreamWriter, asyncio.StreamWriter]] = field(default_factory=set)
    server: asyncio.Server | None = None

    async def serve(self, port: int) -> None:
        """Listen."""
        self.held.set()
        self.server = await asyncio.start_server(self._take, "127.0.0.1", port)

    async def _take(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if not self.open:
            reset(writer)
            return
        target = self.target
        try:
            far_reader, far_writer = await asyncio.open_connection("127.0.0.1", target)
        except OSError:
            reset(writer)
            return
        pair = (writer, far_writer)
        self.pairs.add(pair)
        if not self.open or target != self.target:  # it changed meanwhile
            self.drop()
        try:
            await asyncio.gather(self._pass(reader, far_writer), self._pass(far_reader, writer))
        finally:
            self.pairs.discard(pair)
            for one in pair:
                one.close()

    async def _pass(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError, asyncio.IncompleteReadError):
            while data := await reader.read(_CHUNK):
                if self.delay:
                    await asyncio.sleep(self.delay)
                await self.held.wait()
                writer.write(data)
                await writer.drain()
        writer.close()

    def drop(self) -> None:
        """Reset every connection: what was not passed on is lost."""
        for pair in list(self.pairs):
            for writer in pair:
                reset(writer)
        self.held.set()


def reset(writer: asyncio.StreamWriter) -> None:
    """Close a connection with RST, so that the other side sees an error and not an end."""
    raw = writer.get_extra_info("socket")
    with contextlib.suppress(OSError, AttributeError):
        raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    writer.transport.abort()


async def obey(routes: dict[str, Route], command: dict[str, Any]) -> None:
    """Do what one command says."""
    name = command["route"]
    match command["do"]:
        case "listen":
            routes[name] = Route(command["target"])
            await routes[name].serve(command["port"])
        case "close":  # refuse, and break what there is
            routes[name].open = False
            routes[name].drop()
        case "open":
            routes[name].target = command.get("target") or routes[name].target
            routes[name].open = True
            routes[name].held.set()
        case "reset":
            routes[name].drop()
        case "hold":
            routes[name].held.clear()
        case "go":
            routes[name].held.set()
        case "slow":
            routes[name].delay = command["seconds"]


async def main() -> None:
    """Obey until standard input ends."""
    routes: dict[str, Route] = {}
    loop = asyncio.get_running_loop()
    commands = asyncio.StreamReader()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(commands), sys.stdin)
    while line := await commands.readline():
        said = "done"
        try:
            await obey(routes, json.loads(line))
        except (OSError, KeyError) as error:
            said = f"{type(error).__name__}: {error}"
        sys.stdout.write(said + "\n")
        sys.stdout.flush()


class Proxies:
    """The handle on a process of proxies. Safe to use from several threads."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.proof.chaos.proxy"],
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        self._lock = threading.Lock()

    def tell(self, do: str, route: str, **options: float) -> None:
        """Give one command and wait until it is done."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        with self._lock:
            self._process.stdin.write(json.dumps({"do": do, "route": route, **options}) + "\n")
            self._process.stdin.flush()
            answer = self._process.stdout.readline().strip()
        if answer != "done":
            raise RuntimeError(f"proxy {route}: {do} failed: {answer or 'it has ended'}")

    def close(self) -> None:
        """End it."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.close()
        self._process.wait(60)
        self._process.stdout.close()


if __name__ == "__main__":
    with contextlib.suppress(asyncio.CancelledError, KeyboardInterrupt):
        asyncio.run(main())
