"""A store that can be cut off, lose an answer, or crash and lose what was not on disk.

Commands go to a real server, so the product's own script runs; what is simulated is the line to
it and the disk. The disk holds what the last barrier saw: a crash goes back to that, or to what
there is now, because a server may have written more than it was asked to.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import redis
from redis.backoff import NoBackoff
from redis.connection import Connection, ConnectionPool, UnixDomainSocketConnection
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.retry import Retry

from engine.store.connection import Barrier, connect
from engine.store.store import ModelStore

Point = Callable[[str], None]

_DUMP = """
local found = {}
for _, key in ipairs(redis.call('KEYS', '*')) do
  found[#found + 1] = key
  found[#found + 1] = redis.call('DUMP', key)
  found[#found + 1] = tostring(redis.call('PTTL', key))
end
return found
"""


class Disk:
    """The server's data, and what of it is on disk.

    Parameters
    ----------
    url
        A database of its own; it is emptied.
    """

    def __init__(self, url: str) -> None:
        self.url = url
        self.crashes = 0
        self._client: Any = connect(url)
        self._client.flushdb()
        self._dump = self._client.register_script(_DUMP)
        self._synced = self.image()

    def image(self) -> list[bytes]:
        """Return all keys with their values and times to live."""
        found: list[bytes] = self._dump()
        return found

    def sync(self) -> None:
        """Put on disk what there is."""
        self._synced = self.image()

    def crash(self) -> None:
        """Lose what is not on disk; every connection breaks."""
        self.put_back(self._synced)
        self.crashes += 1

    def fail_over(self, image: list[bytes]) -> None:
        """Go back to what a lagging replica has: what was on disk may be lost as well."""
        self.put_back(image)
        self._synced = image
        self.crashes += 1

    def put_back(self, image: list[bytes]) -> None:
        """Make an image the server's data."""
        pipeline = self._client.pipeline(transaction=True)
        pipeline.flushdb()
        for key, value, ttl in zip(image[::3], image[1::3], image[2::3], strict=True):
            pipeline.restore(key, max(0, int(ttl)), value)
        pipeline.execute()

    def close(self) -> None:
        """Release the connection."""
        self._client.close()

    def store(self, point: Point) -> ModelStore:
        """Return a store for one actor, whose every round trip passes two points."""
        client = self._faulty(point)
        return ModelStore(client, SimulatedBarrier(client, self, point))

    def _faulty(self, point: Point) -> redis.Redis:
        options = dict(connect(self.url).connection_pool.connection_kwargs)
        base = UnixDomainSocketConnection if "path" in options else Connection
        # Looking up redis-py's own version takes 2 ms a connection, and runs make many.
        options.update(retry=Retry(NoBackoff(), 0), driver_info=None)
        pool = ConnectionPool(connection_class=_faulty_connection(base, self, point), **options)
        return redis.Redis(connection_pool=pool)


class SimulatedBarrier(Barrier):
    """Step 6 against the simulated disk."""

    def __init__(self, client: redis.Redis, disk: Disk, point: Point) -> None:
        self._disk = disk
        self._point = point
        super().__init__(client, relaxed=True)

    def settle(self, client: redis.Redis) -> None:
        """Return once all is on disk."""
        self.wait(client)

    def wait(self, client: redis.Redis, timeout: float = 10.0) -> None:
        """Return once all is on disk; before that the process may end, or the server."""
        del timeout
        crashes = self._disk.crashes
        self._point("barrier")
        if self._disk.crashes != crashes:
            # The server restarted: this connection's writes may be gone, and WAITAOF says so.
            client.connection_pool.disconnect()
            raise RedisConnectionError("the server restarted before it synced")
        self._disk.sync()


def _faulty_connection(base: type[Any], disk: Disk, point: Point) -> type[Any]:
    """Return a connection class whose commands may not arrive, and whose answers may get lost."""

    class FaultyConnection(base):  # type: ignore[misc]  # redis-py's classes are untyped
        _sent = False
        _crashes = disk.crashes
        _quiet = False

        def can_read(self, timeout: float = 0) -> bool:
            if self._sock is not None and self._crashes != disk.crashes:
                raise RedisConnectionError("the server restarted")
            return bool(super().can_read(timeout))

        def connect(self) -> None:
            if self._sock is not None:
                return
            self._crashes = disk.crashes
            self._quiet = True  # the handshake is no command of ours
            try:
                super().connect()
            finally:
                self._quiet = False

        def send_packed_command(self, command: Any, check_health: bool = True) -> None:
            if not self._quiet:
                self._pass("store: send")
            super().send_packed_command(command, check_health)
            self._sent = not self._quiet

        def read_response(self, *args: Any, **options: Any) -> Any:
            answer = super().read_response(*args, **options)
            if self._sent:
                self._sent = False
                self._pass("store: answer")
            return answer

        def _pass(self, name: str) -> None:
            try:
                point(name)
            except BaseException:
                self.disconnect()
                raise
            if self._crashes != disk.crashes:
                self.disconnect()
                raise RedisConnectionError("the server restarted")

    return FaultyConnection
