"""TLS in front of a server that has none: the bundled Valkey is built without it.

A thread with an event loop that takes TLS connections on one loopback port and passes their bytes
on to another. What a client of the store sees is what it sees of a server with ``tls-port``.
"""

from __future__ import annotations

import asyncio
import contextlib
import ssl
import threading
from pathlib import Path

from tests.support.servers import free_port


class TlsFront:
    """Use it in a ``with`` statement; ``port`` is where it listens."""

    def __init__(self, target: int, certificate: Path, key: Path, ca: Path | None = None) -> None:
        self.port = free_port()
        self._target = target
        self._context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self._context.load_cert_chain(certificate, key)
        if ca is not None:  # clients must show a certificate
            self._context.load_verify_locations(ca)
            self._context.verify_mode = ssl.CERT_REQUIRED
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread = threading.Thread(target=self._run, name="tls", daemon=True)
        self._listening = threading.Event()

    def __enter__(self) -> TlsFront:
        self._thread.start()
        assert self._listening.wait(10)
        return self

    def __exit__(self, *_: object) -> None:
        assert self._loop is not None
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()

    def _run(self) -> None:
        self._loop = loop = asyncio.new_event_loop()
        # Clients that hang up in a handshake are the tests' business, not this log's.
        loop.set_exception_handler(lambda *_: None)
        server = loop.run_until_complete(
            asyncio.start_server(self._pass_on, "127.0.0.1", self.port, ssl=self._context)
        )
        self._listening.set()
        loop.run_forever()
        server.close()
        loop.run_until_complete(_end_all())
        loop.close()

    async def _pass_on(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError, asyncio.CancelledError):
            inner_reader, inner_writer = await asyncio.open_connection("127.0.0.1", self._target)
            try:
                await asyncio.gather(_copy(reader, inner_writer), _copy(inner_reader, writer))
            finally:
                inner_writer.close()
                writer.close()


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(OSError):
        while data := await reader.read(65_536):
            writer.write(data)
            await writer.drain()
    writer.close()


async def _end_all() -> None:
    tasks = asyncio.all_tasks() - {asyncio.current_task()}
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
