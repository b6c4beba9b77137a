"""A store that can be cut off, lose an answer, or go back to any earlier state, in part or whole.

Commands go to a real server, so the product's own scripts run; what is simulated is the line to
it and its history. The store is a view of the log, so any earlier state of it may come back: after
a crash, from a replica, from a backup; of the whole store, or of the keys of one hash tag, as when
one shard of a cluster fails over.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import redis
from redis.backoff import NoBackoff
from redis.connection import Connection, ConnectionPool, UnixDomainSocketConnection
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.retry import Retry

from lethe.engine.store.layout.keys import PREFIX, SETTLED, ModelKeys, PartitionKeys, watermark
from lethe.engine.store.server.barrier import Barrier
from lethe.engine.store.server.connection import connect
from lethe.engine.store.store import ModelStore

Point = Callable[[str], None]

_DUMP = """
local found = {}
for _, key in ipairs(redis.call('KEYS', '*')) do
  local mark = ''
  if string.find(key, '^lethe:watermark:') then
    mark = string.match(redis.call('GET', key), '^%d+')
  end
  if string.find(key, ':fixed$') then mark = redis.call('HEXISTS', key, 'complete') end
  if string.find(key, ':head$') then mark = redis.call('HGET', key, 'commit') or '-1' end
  if string.find(key, ':cursors$') then
    local at = redis.call('HGETALL', key)
    local lowest = nil
    for i = 1, #at, 2 do
      if at[i] == 'apply' or at[i] == 'published' or string.find(at[i], '^behind:') then
        for number in string.gmatch(at[i + 1], '%d+') do
          lowest = math.min(lowest or tonumber(number), tonumber(number))
        end
      end
    end
    mark = string.format('%.0f', lowest or 0)
  end
  found[#found + 1] = key
  found[#found + 1] = redis.call('DUMP', key)
  found[#found + 1] = tostring(redis.call('PTTL', key))
  found[#found + 1] = mark
end
return found
"""
_TAG = re.compile(PREFIX + r":\{(c\d\d)\}:")


def tag_of(key: str) -> str:
    """Return the hash tag of a key; empty where it has none."""
    found = _TAG.match(key)
    return "" if found is None else found[1]


@dataclass(frozen=True)
class Image:
    """All keys with their values and times to live, and how far cursors and models are."""

    held: Mapping[str, tuple[bytes, int]]
    marks: Mapping[str, int]

    def commit(self, model_id: str) -> int:
        """Return a model's newest commit; -1 where there is none."""
        return self.marks.get(ModelKeys(model_id).head, -1)

    def watermark(self, partition: str) -> int:
        """Return a partition's watermark; 0 where there is none."""
        return self.marks.get(watermark(partition), 0)

    def lowest(self, index: int) -> int:
        """Return where a fold of a commits partition begins."""
        return self.marks.get(PartitionKeys(index).cursors, 0)

    def with_part(self, other: Image, tag: str) -> Image:
        """Return this image with the keys of one hash tag as they are in another."""

        def joined(mine: Mapping[str, Any], theirs: Mapping[str, Any]) -> dict[str, Any]:
            kept = {key: value for key, value in mine.items() if tag_of(key) != tag}
            return kept | {key: value for key, value in theirs.items() if tag_of(key) == tag}

        return Image(joined(self.held, other.held), joined(self.marks, other.marks))


NOTHING = Image({}, {})
"""Of a store that was wiped."""


class Disk:
    """The server's data.

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

    def image(self) -> Image:
        """Return what there is now."""
        found: list[bytes] = self._dump()
        keys = [key.decode() for key in found[::4]]
        marks = {key: int(mark) for key, mark in zip(keys, found[3::4], strict=True) if mark}
        ttls = (max(0, int(ttl)) for ttl in found[2::4])
        held = dict(zip(keys, zip(found[1::4], ttls, strict=True), strict=True))
        return Image(held, marks)

    def go_back(self, image: Image) -> bool:
        """Make an image the server's data; every connection breaks. Return whether commits went."""
        before = self.image()
        pipeline = self._client.pipeline(transaction=True)
        pipeline.flushdb()
        for key, (value, ttl) in image.held.items():
            pipeline.restore(key, ttl, value)
        pipeline.execute()
        self.crashes += 1
        heads = {key: at for key, at in before.marks.items() if key.endswith(":head")}
        return any(image.marks.get(key, -1) < at for key, at in heads.items())

    def close(self) -> None:
        """Release the connection."""
        self._client.close()

    def store(self, point: Point, cut: Callable[[int], int] = lambda sent: sent) -> ModelStore:
        """Return a store for one actor, whose every round trip passes two points.

        ``cut`` says how many commands of a pipeline still arrive when its sending fails.
        """
        client = self._faulty(point, cut)
        return ModelStore(client, SimulatedBarrier(client, self, point))

    def _faulty(self, point: Point, cut: Callable[[int], int]) -> redis.Redis:
        options = self._client.connection_pool.connection_kwargs
        base = UnixDomainSocketConnection if "path" in options else Connection
        # Saying who connects is a round trip a connection, and runs make many.
        options = {**options, "retry": Retry(NoBackoff(), 0), "driver_info": None}
        kind = _faulty_connection(base, self, point, cut)
        return redis.Redis(connection_pool=ConnectionPool(connection_class=kind, **options))


class SimulatedBarrier(Barrier):
    """Waiting for the disk: before that the process may end, or the server."""

    def __init__(self, client: redis.Redis, disk: Disk, point: Point) -> None:
        self.waits = True
        self._client = client
        self._disk = disk
        self._point = point

    def sync(self, client: redis.Redis) -> None:
        """Return once all is on disk."""
        crashes = self._disk.crashes
        client.set(SETTLED, 1)
        self._point("barrier")
        if self._disk.crashes != crashes:
            client.connection_pool.disconnect()
            raise RedisConnectionError("the server restarted before it synced")


def _commands(packed: bytes) -> Iterator[int]:
    """Yield where each command of a pipeline ends."""
    at = 0
    while at < len(packed):
        end = packed.index(b"\r\n", at)
        parts, at = int(packed[at + 1 : end]), end + 2
        for _ in range(parts):
            end = packed.index(b"\r\n", at)
            at = end + 2 + int(packed[at + 1 : end]) + 2
        yield at


def _is_commit(command: Sequence[bytes]) -> bool:
    """Return whether packed commands call a script, as every write of workers does."""
    return any(b"EVALSHA" in part for part in command)


def _faulty_connection(
    base: type[Any], disk: Disk, point: Point, cut: Callable[[int], int]
) -> type[Any]:
    """Return a connection class whose commands may not arrive, and whose answers may get lost."""

    class FaultyConnection(base):  # type: ignore[misc]  # redis-py's classes are untyped
        _sent = ""
        _crashes = disk.crashes
        _quiet = False

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
                try:
                    self._pass("store: send")
                except RedisConnectionError:
                    if self._crashes == disk.crashes:
                        self._send_some(b"".join(command))
                    raise
            super().send_packed_command(command, check_health)
            if not self._quiet:
                self._sent = "store: commit answer" if _is_commit(command) else "store: answer"

        def _send_some(self, packed: bytes) -> None:
            """Let the first commands of a pipeline arrive before the line breaks."""
            ends = list(_commands(packed))
            arrive = cut(len(ends)) if len(ends) > 1 else 0
            if arrive and b"EVALSHA" in packed[: ends[arrive - 1]]:
                self.connect()
                super().send_packed_command([packed[: ends[arrive - 1]]], check_health=False)
                for _ in range(arrive):
                    super().read_response(disable_decoding=True)
                self.disconnect()

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
