"""Appending to Redis Streams."""

from __future__ import annotations

import hashlib
import math
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import zip_longest
from typing import Any

import redis

from lethe.consumers.log.base import Appended, Message, Producer, missing_topic
from lethe.consumers.log.streams.format import (
    MAX_BYTES_PER_CALL,
    MAX_HEADER_BYTES,
    MAX_MESSAGES_PER_CALL,
    Topic,
    encode_headers,
    latest_key,
    reaching,
    read_topic,
    script,
    stream_key,
    topic_key,
)
from lethe.engine.errors import InvalidData, LogUnavailable
from lethe.engine.store.server.barrier import Barrier

EXPIRY_SECONDS = 60.0
"""How often a producer looks for records older than their topic's retention."""

_APPEND = script("append")
# Redis's name of the script. A call by name is one round trip; redis-py's pipelines need two.
_APPEND_NAME = hashlib.sha1(_APPEND.encode(), usedforsecurity=False).hexdigest()

# A call is repeated if the topic was recreated since its record was read, or if the server has
# restarted and does not know the script.
_TRIES = 3


class StreamsProducer(Producer):
    """Appends to Redis Streams, in one round trip for up to 256 messages or 8 MiB of a topic.

    More messages of a topic take several calls, each sent after the answer to the previous one:
    messages after a failed call must not be in the log. Topics are not ordered among each other,
    so their calls share a round trip. For the same reason `begin` first completes the previous
    send: only one is in flight at a time.
    """

    def __init__(self, client: redis.Redis, barrier: Barrier | None = None) -> None:
        self._client = client
        self._barrier = barrier
        self._expire = client.register_script(script("expire"))
        self._topics: dict[str, Topic] = {}
        self._expired_at: dict[str, float] = {}
        self._flush: StreamsFlush | None = None

    def begin(self, messages: Iterable[Message]) -> StreamsFlush:
        """Send the first calls without waiting for the answers."""
        if self._flush is not None:
            self._flush.complete()
        with reaching(self._client):
            batch = list(messages)
            for message in batch:
                _check_size(message, self._topic(message.topic))
            self._flush = StreamsFlush(self, batch)
            self._flush.send()
        return self._flush

    def close(self) -> None:
        """Close the connection.

        Closing a single-connection client only returns the connection to its pool, which is ours.
        """
        if self._flush is not None:
            self._flush.abandon()
        self._client.close()
        self._client.connection_pool.disconnect()

    def _topic(self, name: str) -> Topic:
        topic = self._topics.get(name) or read_topic(self._client, name)
        if topic is None:
            raise missing_topic(name, "the log")
        self._topics[name] = topic
        return topic

    def _arguments(self, call: _Call) -> Sequence[str | bytes | int]:
        """Return the script's arguments, and note in ``call`` the topic and partitions used."""
        topic = self._topic(call.topic)
        used: dict[int, int] = {}
        records: list[str | bytes | int] = []
        for message in call.messages:
            index = message.index_among(topic.partitions)
            records += (
                used.setdefault(index, len(used) + 1),
                int(message.value is not None),
                message.key,
                message.value or b"",
                encode_headers(message.headers),
            )
        keys = [topic_key(call.topic)]
        for index in used:
            partition = topic.partition(index)
            keys += (stream_key(partition), latest_key(partition))
        call.sent_to, call.used = topic, tuple(used)
        return [len(keys), *keys, topic.topic_id, topic.partitions, len(used), *used, *records]

    def _remove_old(self, name: str) -> None:
        """Remove records older than the topic's retention, if a check is due."""
        now = time.monotonic()
        topic = self._topics[name]
        last = self._expired_at.get(name, -math.inf)
        if topic.retention_ms < 0 or now < last + EXPIRY_SECONDS:
            return
        self._expired_at[name] = now
        for index in range(topic.partitions):
            stream = stream_key(topic.partition(index))
            self._expire(keys=[topic_key(name), stream], args=[topic.topic_id, index])


@dataclass(slots=True)
class _Call:
    """Messages of one topic for one call of the script, with their positions in the send."""

    topic: str
    places: list[int] = field(default_factory=list)
    messages: list[Message] = field(default_factory=list)
    size: int = 0
    tries: int = 0
    sent_to: Topic | None = None
    used: tuple[int, ...] = ()

    def takes(self, size: int) -> bool:
        """Return whether a message of ``size`` bytes still fits."""
        return not self.messages or (
            len(self.messages) < MAX_MESSAGES_PER_CALL and self.size + size <= MAX_BYTES_PER_CALL
        )

    def placed(self, firsts: Sequence[int]) -> dict[int, Appended]:
        """Return where each message is in the log, by its position in the send."""
        assert self.sent_to is not None  # noqa: S101 (mypy: it was sent)
        nexts = dict(zip(self.used, firsts, strict=True))
        appended: dict[int, Appended] = {}
        for place, message in zip(self.places, self.messages, strict=True):
            index = message.index_among(self.sent_to.partitions)
            appended[place] = Appended(self.sent_to.partition(index), nexts[index])
            nexts[index] += 1
        return appended


class StreamsFlush:
    """One send: successive rounds, each with one call per topic."""

    def __init__(self, producer: StreamsProducer, messages: Iterable[Message]) -> None:
        self._producer = producer
        self._client = producer._client
        self._rounds = _rounds(messages)
        self._names = sorted({call.topic for calls in self._rounds for call in calls})
        self._appended: dict[int, Appended] = {}
        self._connection: Any = None
        self._sent: Sequence[_Call] = ()
        self._failure: BaseException | None = None
        self._done = False

    def wait(self, timeout: float = 30.0) -> Sequence[Appended]:
        """Return where each message is, once the server has acknowledged all of them.

        ``timeout`` bounds all calls together; the connection's own reply timeout bounds each call.
        """
        self.complete(timeout)
        return [self._appended[place] for place in sorted(self._appended)]

    def complete(self, timeout: float = math.inf) -> None:
        """Do the remaining work; the outcome is kept for `wait`."""
        if self._failure is not None:
            raise self._failure
        if self._done:
            return
        deadline = time.monotonic() + timeout
        try:
            with reaching(self._client):
                self._receive()
                while self._rounds:
                    _check_time(deadline, timeout)
                    self.send()
                    self._receive()
                for name in self._names:
                    self._producer._remove_old(name)
                if self._producer._barrier is not None:  # acknowledge only what is on disk
                    self._producer._barrier.wait(self._client)
        except BaseException as error:
            self.abandon(error)
            raise
        self._done = True

    def send(self) -> None:
        """Send the calls of the next round."""
        if not self._rounds:
            return
        try:
            calls = self._rounds.pop(0)
            commands = [("EVALSHA", _APPEND_NAME, *self._producer._arguments(c)) for c in calls]
            pool = self._client.connection_pool
            self._connection = self._client.connection or pool.get_connection()
            self._sent = calls
            self._connection.send_packed_command(self._connection.pack_commands(commands))
        except BaseException as error:
            self.abandon(error)
            raise

    def abandon(self, error: BaseException | None = None) -> None:
        """Fail, and never read the answers that are still in flight."""
        if not self._done and self._failure is None:
            self._failure = error or LogUnavailable("the producer was closed during the send")
        if self._producer._flush is self:
            self._producer._flush = None
        if self._connection is not None:
            self._connection.disconnect()
            self._give_back()

    def _receive(self) -> None:
        """Read the answers of a round; calls to repeat become the next round."""
        if self._connection is None:
            return
        repeats: list[_Call] = []
        failure: redis.ResponseError | None = None
        for call in self._sent:
            try:
                firsts = self._connection.read_response()
            except redis.exceptions.NoScriptError:
                self._repeat(call, repeats)
            except redis.ResponseError as error:  # still read the answers after it
                failure = failure or error
            else:
                if isinstance(firsts, list):
                    self._appended |= call.placed(firsts)
                else:
                    self._producer._topics.pop(call.topic, None)
                    self._repeat(call, repeats)
        self._give_back()
        if failure is not None:
            raise failure
        if repeats:
            self._client.script_load(_APPEND)
            self._rounds.insert(0, repeats)

    def _repeat(self, call: _Call, repeats: list[_Call]) -> None:
        call.tries += 1
        if call.tries == _TRIES:
            raise LogUnavailable(f"topic {call.topic} is being deleted or recreated")
        repeats.append(call)

    def _give_back(self) -> None:
        connection, self._connection, self._sent = self._connection, None, ()
        if connection is not self._client.connection:
            self._client.connection_pool.release(connection)


def _rounds(messages: Iterable[Message]) -> list[list[_Call]]:
    """Split each topic's messages, in order, into calls; return the first calls, the second, ..."""
    topics: dict[str, list[_Call]] = {}
    for place, message in enumerate(messages):
        calls = topics.setdefault(message.topic, [_Call(message.topic)])
        size = len(message.value or b"")
        if not calls[-1].takes(size):
            calls.append(_Call(message.topic))
        calls[-1].places.append(place)
        calls[-1].messages.append(message)
        calls[-1].size += size
    return [[call for call in calls if call] for calls in zip_longest(*topics.values())]


def _check_time(deadline: float, timeout: float) -> None:
    if time.monotonic() > deadline:
        raise LogUnavailable(f"the log did not acknowledge within {timeout:g} s; send all again")


def _check_size(message: Message, topic: Topic) -> None:
    size = len(message.key) + len(message.value or b"")
    if size > topic.max_message_bytes:
        raise InvalidData(
            f"a message of {size} bytes for topic {topic.name} is too large: it takes at most "
            f"{topic.max_message_bytes}"
        )
    if sum(len(name) + len(value) for name, value in message.headers) > MAX_HEADER_BYTES:
        raise InvalidData(
            f"a message for topic {topic.name} has over {MAX_HEADER_BYTES} bytes of headers"
        )
