"""Reading Kafka with confluent-kafka, without a group."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence

from confluent_kafka import Consumer, KafkaError, Message, TopicPartition

from lethe.consumers.log.base import Bounds, Partition, Record
from lethe.consumers.log.confluent.questions import Questions
from lethe.consumers.log.confluent.records import (
    OUT_OF_RANGE,
    reading_settings,
    to_record,
)
from lethe.consumers.log.confluent.server import (
    METADATA_SECONDS,
    REQUEST_SECONDS,
    SLICE_SECONDS,
    Heard,
    opened,
)
from lethe.consumers.log.partitioner import partition_index
from lethe.consumers.log.reset import PartitionReset
from lethe.engine.errors import LogUnavailable


class ConfluentReader:
    """Reads partitions without a group, one at a time."""

    def __init__(self, questions: Questions) -> None:
        self._questions = questions
        self._server = questions.server
        self._heard = Heard(self._server.signing_on, reached=True)
        self._consumer: Consumer | None = None
        self._reading: tuple[Partition, int] | None = None
        self._waiting: list[Message] = []
        self._checked = 0.0

    def partitions(self, topic: str) -> Sequence[Partition]:
        """Return the topic's partitions, in order; empty if the topic does not exist."""
        return self._questions.partitions([topic]).get(topic, [])

    def partition_for(self, topic: str, key: bytes) -> Partition:
        """Return the partition that the producer would send ``key`` to."""
        partitions = self.partitions(topic)
        if not partitions:
            raise LogUnavailable(f"topic {topic} does not exist in Kafka at {self._server}")
        return partitions[partition_index(key, len(partitions))]

    def bounds(self, partition: Partition) -> Bounds:
        """Return the partition's current bounds."""
        return self._questions.bounds(partition)

    def ends(self, partitions: Iterable[Partition]) -> Mapping[Partition, int]:
        """Return the end of each partition, with one request per leader."""
        return self._questions.ends(partitions)

    def read(
        self, partition: Partition, offset: int, timeout: float, limit: int
    ) -> tuple[Sequence[Record], int]:
        """Return records from ``offset`` on, and the offset to continue from."""
        deadline = time.monotonic() + timeout
        with self._server.reaching(self._heard):
            if self._reading != (partition, offset):
                # A new position: query the bounds first, so that a short timeout still reads
                # what is there, and a wrong offset is detected at once.
                bounds = self._questions.bounds(partition, offset)
                if not bounds.begin <= offset <= bounds.end:
                    raise PartitionReset(partition, offset, bounds)
                self._start(partition, offset)
                if offset < bounds.end:
                    deadline = max(deadline, time.monotonic() + REQUEST_SECONDS)
            self._reading = None
            records, after = self._poll(partition, offset, deadline, limit)
            self._reading = (partition, after)
            return records, after

    def close(self) -> None:
        """Release the connection."""
        self._waiting.clear()
        if self._consumer is not None:
            self._consumer.close()
            self._consumer = None

    def _start(self, partition: Partition, offset: int) -> None:
        if self._consumer is None:
            self._heard = Heard(self._server.signing_on, reached=True)
            settings = reading_settings(self._server, self._heard) | {
                "group.id": self._server.client_id,  # required, although it joins no group
                "enable.partition.eof": True,
            }
            self._consumer = opened(Consumer, settings)
        self._waiting.clear()
        self._consumer.assign([TopicPartition(partition.topic, partition.index, offset)])

    def _poll(
        self, partition: Partition, offset: int, deadline: float, limit: int
    ) -> tuple[Sequence[Record], int]:
        while True:
            left = deadline - time.monotonic()
            taken = self._take(min(max(left, 0.0), SLICE_SECONDS), limit)
            records, after = self._read(partition, offset, taken)
            if records or after != offset or left <= 0:
                self._check_topic(partition, offset, moved=after != offset)
                return records, after
            if self._heard.lasting is not None:
                self.close()  # the next read begins anew
                raise self._server.unreachable(self._heard, "no answer")

    def _check_topic(self, partition: Partition, offset: int, *, moved: bool) -> None:
        """Raise when the topic was made again: at every move, and now and then while it waits.

        The client fetches by topic id, but goes on at the old offset once it hears of a new id.
        What it gave out before the cluster was asked is certainly of the old topic.
        """
        now = time.monotonic()
        if moved or now > self._checked + METADATA_SECONDS:
            self._checked = now
            if partition not in self._questions.leaders([partition.topic]):
                raise PartitionReset(partition, offset, None)

    def _take(self, wait: float, limit: int) -> Sequence[Message]:
        """Return what was read ahead; wait for the first message if there is none."""
        consumer = self._consumer
        assert consumer is not None  # noqa: S101 (mypy: `_start` made it)
        if not self._waiting and (first := consumer.poll(wait)) is not None:
            self._waiting.append(first)
        if self._waiting and len(self._waiting) < limit:
            self._waiting += consumer.consume(limit - len(self._waiting), 0.0)
        taken, self._waiting = self._waiting[:limit], self._waiting[limit:]
        return taken

    def _read(
        self, partition: Partition, offset: int, taken: Sequence[Message]
    ) -> tuple[list[Record], int]:
        """Return the records among the messages taken, and the offset to continue from."""
        records: list[Record] = []
        for message in taken:
            error = message.error()
            if error is None:
                records.append(to_record(partition, message))
                offset = records[-1].offset + 1
            elif error.code() == KafkaError._PARTITION_EOF:
                # Transaction markers and compacted records move the position and yield nothing.
                offset = max(offset, message.offset() or 0)
            elif error.code() in OUT_OF_RANGE:
                bounds = self._questions.bounds(partition, offset)
                raise PartitionReset(partition, offset, bounds)
            elif error.code() in (
                KafkaError.UNKNOWN_TOPIC_OR_PART,
                KafkaError.UNKNOWN_TOPIC_ID,
                KafkaError._UNKNOWN_PARTITION,
            ):
                raise PartitionReset(partition, offset, None)
            elif error.code() != KafkaError.GROUP_AUTHORIZATION_FAILED:  # it joins no group
                raise self._server.failed(error, self._heard)
        return records, offset
