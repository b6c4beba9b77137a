"""A hash of the store that is a view of one topic: any process brings it up to date.

The topic is the truth. A store that goes back takes the hash and its cursor along, and the next
process that needs the hash reads on from there.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from importlib.resources import files
from typing import Any

import redis

from lethe.engine.store.layout.keys import ERASED_CURSORS, ERASED_LATE, ERASED_SECRETS
from lethe.engine.store.layout.reading import integer, parse_text
from lethe.engine.store.server.connection import reachable, text
from lethe.engine.store.server.pipeline import CHUNK, Script, chunks, present, run_pipeline

ADVANCE = Script(files("lethe.engine.store").joinpath("log_view.lua").read_text(encoding="utf-8"))
"""``log_view.lua``."""


@dataclass(frozen=True, slots=True)
class Reached:
    """How far a view has read: the topic's id (empty if it has read nothing), and an offset.

    ``digest`` is that of the record just below it; empty if it is not known. ``lost``: the hash has
    fewer fields than it had then, so that somebody has removed some, or the server has evicted it.
    """

    topic_id: str = ""
    offset: int = 0
    digest: str = ""
    lost: bool = False


@dataclass(frozen=True, slots=True)
class Added:
    """What records add: fields and values.

    ``secrets`` are the names of those that the fields were made under.
    """

    fields: Sequence[tuple[str, str]]
    secrets: frozenset[str] = frozenset()


class LogView:
    """One such hash; one thread uses an instance.

    ``first_counts``: values begin with their own offset in the topic, and of several values of one
    field, the first that the topic still has counts. Otherwise values begin with the ``<partition>
    <offset>`` of the request that they follow from, and the newest request counts, in whatever
    order the values were written.
    """

    def __init__(
        self, client: redis.Redis, key: str, name: str, *, first_counts: bool = False
    ) -> None:
        self._client = client
        self._key = key
        self._name = name
        self._fields = (name, f"{name}:size")
        self._rule = "first" if first_counts else "newest"

    def reached(self) -> Reached:
        """Return how far it has read."""
        with reachable(self._client):
            pipeline = self._client.pipeline(transaction=True)
            pipeline.hmget(ERASED_CURSORS, self._fields)
            pipeline.hlen(self._key)
            (stored, size), found = pipeline.execute()
        if stored is None:
            return Reached()
        what = f"cursor of {self._key}"
        topic_id, offset, digest = [*parse_text(stored, what).split(" "), "", ""][:3]
        lost = size is not None and found < integer(size, what)
        return Reached(topic_id, integer(offset, what), digest, lost)

    def advance(self, low: int, reached: Reached, added: Added, *, begin: int = 0) -> bool:
        """Add what the topic has from ``low`` on; False: the view is not at ``low`` any more.

        ``reached`` is how far it has read then, and ``begin`` the first offset that the topic
        still has.
        """
        high = f"{reached.offset} {reached.digest}".rstrip()
        arguments: list[Any] = [self._name, reached.topic_id, low, high, self._rule, begin]
        arguments += [len(added.secrets), *sorted(added.secrets)]
        arguments += [part for field in added.fields for part in field]
        keys = [self._key, ERASED_CURSORS, ERASED_SECRETS, ERASED_LATE]
        [answer] = run_pipeline(
            self._client, [ADVANCE], lambda pipe: ADVANCE.queue(pipe, keys, arguments)
        )
        return bool(answer)

    def restart(self, *, keep: bool) -> None:
        """Have the topic that is there now read from its beginning.

        Fields were lost, or a person has given up another topic: ``keep`` what was read of that.
        """
        with reachable(self._client):
            pipeline = self._client.pipeline(transaction=True)
            pipeline.hdel(ERASED_CURSORS, *self._fields)
            if not keep:
                pipeline.delete(self._key)
            pipeline.execute()

    def everything(self) -> dict[str, str]:
        """Return all fields with their values."""
        with reachable(self._client):
            stored = self._client.hscan_iter(self._key, count=CHUNK)
            return {text(field): text(value) for field, value in stored}

    def secrets(self) -> frozenset[str]:
        """Return the names of the secrets that fields were ever made under."""
        with reachable(self._client):
            names: Any = self._client.smembers(ERASED_SECRETS)
        return frozenset(text(name) for name in names)

    def late(self) -> list[str]:
        """Return the fields whose newest record in the topic is not the one that counts, sorted."""
        with reachable(self._client):
            fields: Any = self._client.smembers(ERASED_LATE)
        return sorted(text(field) for field in fields)

    def __len__(self) -> int:
        with reachable(self._client):
            size: Any = self._client.hlen(self._key)
        return int(size)

    def get(self, fields: Sequence[str]) -> dict[str, str]:
        """Return the values of those fields that it has. One round trip."""
        parts = list(chunks(fields))
        answers = run_pipeline(
            self._client, (), lambda pipe: [pipe.hmget(self._key, part) for part in parts]
        )
        found: dict[str, Any] = {}
        for part, values in zip(parts, answers, strict=True):
            found |= present(part, values)
        return {field: text(value) for field, value in found.items()}
