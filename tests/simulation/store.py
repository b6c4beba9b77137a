"""A store that can be cut off, lose an answer, or crash and lose what was not on disk.

Commands go to a real server, so the product's own script runs; what is simulated is the line to
it and the disk. The disk holds what the last barrier saw: a crash goes back to that, or to what
there is now, because a server may have written more than it was asked to.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import redis
from redis.backoff import NoBackoff
from redis.connection import Connection, ConnectionPool, UnixDomainSocketConnection
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.retry import Retry

from engine.store.connection import Barrier, connect
from engine.store.keys import SETTLED, ModelKeys, watermark
from engine.store.store import ModelStore

Point = Callable[[str], None]

_DUMP = """
local found = {}
for _, key in ipairs(redis.call('KEYS', '*')) do
  local mark = ''
  if string.find(key, '^lethe:watermark:') then mark = redis.call('GET', key) end
  if string.find(key, ':head$') then
    local at = redis.call('HMGET', key, 'commit_seq', 'version')
    mark = (at[1] or '0') .. ' ' .. (at[2] or '-1')
  end
  found[#found + 1] = key
  found[#found + 1] = redis.call('DUMP', key)
  found[#found + 1] = tostring(redis.call('PTTL', key))
  found[#found + 1] = mark
end
return found
"""


@dataclass(frozen=True)
class Image:
    """All keys with their values and times to live, and how far watermarks and models are."""

    keys: Sequence[bytes]
    values: Sequence[bytes]
    ttls: Sequence[bytes]
    marks: Mapping[str, tuple[int, ...]]

    def commits(self) -> dict[str, int]:
        """Return how many commits each model has had."""
        return {key: at[0] for key, at in self.marks.items() if key.endswith(":head")}

    def version(self, model_id: str) -> int:
        """Return a model's version; -1 where there is none."""
        return self.marks.get(ModelKeys.of_model(model_id).head, (0, -1))[1]

    def watermark(self, partition: str) -> int:
        """Return a partition's watermark; 0 where there is none."""
        return self.marks.get(watermark(partition), (0,))[0]


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

    @property
    def synced(self) -> Image:
        """What is on disk."""
        return self._synced

    def image(self) -> Image:
        """Return what there is now."""
        found: list[bytes] = self._dump()
        keys, marks = found[::4], found[3::4]
        held = zip(keys, marks, strict=True)
        return Image(
            keys,
            found[1::4],
            found[2::4],
            {key.decode(): tuple(int(at) for at in mark.split()) for key, mark in held if mark},
        )

    def sync(self) -> None:
        """Put on disk what there is."""
        self._synced = self.image()

    def crash(self) -> bool:
        """Lose what is not on disk; every connection breaks. Return whether commits are lost."""
        return self.fail_over(self._synced)

    def fail_over(self, image: Image) -> bool:
        """Go back to what a lagging replica has: what was on disk may be lost as well.

        Return whether commits are lost.
        """
        before, after = self.image().commits(), image.commits()
        self.put_back(image)
        self._synced = image
        self.restart()
        return any(after.get(model, 0) < at for model, at in before.items())

    def restart(self) -> None:
        """Break every connection."""
        self.crashes += 1

    def put_back(self, image: Image) -> None:
        """Make an image the server's data."""
        pipeline = self._client.pipeline(transaction=True)
        pipeline.flushdb()
        for key, value, ttl in zip(image.keys, image.values, image.ttls, strict=True):
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
        options = self._client.connection_pool.connection_kwargs
        base = UnixDomainSocketConnection if "path" in options else Connection
        # Saying who connects is a round trip a connection, and runs make many.
        options = {**options, "retry": Retry(NoBackoff(), 0), "driver_info": None}
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
        client.set(SETTLED, 1)
        self.wait(client)

    def wait(self, client: redis.Redis, timeout: float = 10.0) -> None:
        """Return once all is on disk; before that the process may end, or the server.

        As WAITAOF does, it waits for what this connection has written, and for nothing else.
        """
        del timeout
        if not getattr(client.connection, "wrote", False):
            return
        crashes = self._disk.crashes
        self._point("barrier")
        if self._disk.crashes != crashes:
            # The server restarted: this connection's writes may be gone, and WAITAOF says so.
            client.connection_pool.disconnect()
            raise RedisConnectionError("the server restarted before it synced")
        self._disk.sync()


def _is_commit(command: Any) -> bool:
    """Return whether packed commands call the one script that workers have loaded."""
    return any(b"EVALSHA" in part for part in command)


def _faulty_connection(base: type[Any], disk: Disk, point: Point) -> type[Any]:
    """Return a connection class whose commands may not arrive, and whose answers may get lost."""

    class FaultyConnection(base):  # type: ignore[misc]  # redis-py's classes are untyped
        _sent = ""
        _crashes = disk.crashes
        _quiet = False
        wrote = False

        def can_read(self, timeout: float = 0) -> bool:
            if self._sock is not None and self._crashes != disk.crashes:
                raise RedisConnectionError("the server restarted")
            if self._sock is not None and timeout == 0:
                return False  # an idle connection; asking the kernel takes a tenth of a run
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
            self.wrote = self.wrote or _is_commit(command) or any(b"SET" in p for p in command)
            if not self._quiet:
                self._sent = "store: commit answer" if _is_commit(command) else "store: answer"

        def read_response(self, *args: Any, **options: Any) -> Any:
            answer = super().read_response(*args, **options)
            if self._sent:
                sent, self._sent = self._sent, ""
                self._pass(sent)
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
