"""What a worker leaves to the next one that takes over its partitions (step 9).

How far each partition is decided, where the topics ended when the store was last known to hold
all that was published, and which models are halted.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence

import redis

from engine.store import keys
from engine.store.connection import Fields, reachable, text
from engine.store.reading import integer

_RAISE = """
if tonumber(ARGV[1]) > tonumber(redis.call('GET', KEYS[1]) or '-1') then
  redis.call('SET', KEYS[1], ARGV[1])
end
"""


class Handover:
    """Watermarks, marks and halts in one Redis or Valkey; one thread uses an instance."""

    def __init__(self, client: redis.Redis) -> None:
        self._client = client

    def watermark(self, partition: str) -> int | None:
        """Return the offset below which every record of a partition is decided and durable."""
        with reachable(self._client):
            stored = self._client.get(keys.watermark(partition))
        return None if stored is None else integer(text(stored), f"watermark of {partition}")

    def set_watermarks(self, offsets: Mapping[str, int]) -> None:
        """Store watermarks, all in one round trip.

        None goes back: below it the log may have removed the records, and a worker that lost its
        partition may come late with an older one.
        """
        if not offsets:
            return
        pipeline = self._client.pipeline(transaction=False)
        for partition, offset in offsets.items():
            pipeline.eval(_RAISE, 1, keys.watermark(partition), offset)
        with reachable(self._client):
            pipeline.execute()

    def marks(self, partitions: Sequence[str]) -> list[dict[str, int]]:
        """Return where topics ended when the worker of each partition last looked.

        What the store has lost since was published behind it. Empty where nobody has looked.
        """
        pipeline = self._client.pipeline(transaction=False)
        for partition in partitions:
            pipeline.hgetall(keys.mark(partition))
        with reachable(self._client):
            stored = pipeline.execute()
        return [
            {text(name): integer(text(end), f"mark of {partition}") for name, end in mark.items()}
            for partition, mark in zip(partitions, stored, strict=True)
        ]

    def set_marks(self, partitions: Iterable[str], ends: Mapping[str, int]) -> None:
        """Store, for each of these partitions, where topics end now."""
        fields: Fields = ends
        if not fields:
            return
        pipeline = self._client.pipeline(transaction=True)
        for partition in partitions:
            pipeline.delete(keys.mark(partition))
            pipeline.hset(keys.mark(partition), mapping=fields)
        with reachable(self._client):
            pipeline.execute()

    def halted(self) -> frozenset[str]:
        """Return the ids of the models that the last takeover to look at them halted."""
        with reachable(self._client):
            return frozenset(text(member) for member in self._client.smembers(keys.HALTED))

    def note_halts(self, halted: Collection[str], sound: Collection[str]) -> None:
        """Note which models a takeover halted, and which are halted no more."""
        pipeline = self._client.pipeline(transaction=False)
        if halted:
            pipeline.sadd(keys.HALTED, *halted)
        if sound:
            pipeline.srem(keys.HALTED, *sound)
        with reachable(self._client):
            pipeline.execute()
