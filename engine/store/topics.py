"""Which topics of the log the store's state belongs to, and what was lost of them.

A topic that was deleted and made again has another id. Nobody can tell from the new one whether
the former still held requests; so the store keeps each topic's id from the moment at which the
topic is first seen, and only a person can make it take another (`lethe recover --topic`).
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from typing import Any

import redis
from redis.exceptions import NoPermissionError

from lethe.engine.errors import CorruptState
from lethe.engine.store.layout.keys import LOSSES, TOPICS
from lethe.engine.store.layout.reading import integer, parse_text
from lethe.engine.store.server.connection import reachable

_NOTE = """
local stored = redis.call('HGET', KEYS[1], ARGV[1])
local id, partitions = string.match(stored or '', '^(%S+) (%d+)$')
if not stored or (id == ARGV[2] and tonumber(partitions) < tonumber(ARGV[3])) then
  redis.call('HSET', KEYS[1], ARGV[1], ARGV[2] .. ' ' .. ARGV[3])
end
"""
"""Notes a topic that is not known, or has more partitions than before; never another id."""


@dataclass(frozen=True, slots=True)
class KnownTopic:
    """The id of a topic, and the most partitions that it was seen with."""

    topic_id: str
    partitions: int


@dataclass(frozen=True, slots=True)
class Loss:
    """What a topic has lost, and that work went on without it.

    Attributes
    ----------
    topic, reason
        The topic, and how the loss was noticed.
    accepted_at
        When work went on, RFC 3339.
    since
        When the log took the newest record of the topic up to which all had their answers, RFC
        3339; empty if that is not known. What it took later may be lost.
    """

    topic: str
    reason: str
    accepted_at: str
    since: str = ""

    @property
    def statement(self) -> str:
        """What can be said of records that nobody answered, for a person."""
        after = f"after {self.since} " if self.since else "at any time before that "
        return (
            f"{self.topic} lost records, and work went on without them at {self.accepted_at} "
            f"({self.reason}): what was sent to it {after}and has no final receipt may be lost. "
            "Send it again under the same ids: nothing is done twice"
        )


class KnownTopics:
    """The topics that one store knows."""

    def __init__(self, client: redis.Redis) -> None:
        self._client = client

    def read(self) -> dict[str, KnownTopic]:
        """Return what is known, by the topic's name. One round trip."""
        with reachable(self._client):
            stored: Any = self._client.hgetall(TOPICS)
        return {parse_text(name, TOPICS): _parsed(name, value) for name, value in stored.items()}

    def note(self, topic: str, known: KnownTopic) -> None:
        """Note a topic that is not known yet, or has more partitions now.

        A user without the right to (the refresh worker's) leaves it to the others.
        """
        with reachable(self._client), suppress(NoPermissionError):
            self._client.eval(_NOTE, 1, TOPICS, topic, known.topic_id, known.partitions)

    def accept(self, known: KnownTopic, loss: Loss) -> None:
        """Know a topic by this id from now on, and keep what was lost; rights as for `note`.

        The loss first: on a cluster the two keys lie on two nodes, and a loss that is listed twice
        does no harm.
        """
        self.record(loss)
        with reachable(self._client), suppress(NoPermissionError):
            self._client.hset(TOPICS, loss.topic, f"{known.topic_id} {known.partitions}")

    def record(self, loss: Loss) -> None:
        """Keep what a topic has lost that the store still knows; rights as for `note`."""
        with reachable(self._client), suppress(NoPermissionError):
            self._client.rpush(LOSSES, json.dumps(asdict(loss)))

    def losses(self, topics: Sequence[str] = ()) -> list[Loss]:
        """Return what was lost, of these topics or of all, in the order of acceptance."""
        with reachable(self._client):
            stored: Any = self._client.lrange(LOSSES, 0, -1)
        losses = [_loss(value) for value in stored]
        return [loss for loss in losses if not topics or loss.topic in topics]


def _parsed(name: bytes, value: bytes) -> KnownTopic:
    what = f"topic {parse_text(name, TOPICS)}, as the store knows it"
    topic_id, _, partitions = parse_text(value, what).partition(" ")
    return KnownTopic(topic_id, integer(partitions, what))


def _loss(value: bytes) -> Loss:
    try:
        return Loss(**json.loads(value))
    except (ValueError, TypeError) as error:
        raise CorruptState(f"{LOSSES} holds no loss: {error}; run `lethe check`") from error
