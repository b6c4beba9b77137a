"""Sending with confluent-kafka."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import replace
from functools import partial
from typing import Any

from confluent_kafka import KafkaError, KafkaException, Message as Delivered, Producer as Client

from lethe.consumers.log.base import Appended, Message, Partition, Producer
from lethe.consumers.log.confluent.questions import Questions, by_topic
from lethe.consumers.log.confluent.server import METADATA_SECONDS, SLICE_SECONDS, Heard, opened
from lethe.consumers.log.kafka.limits import MAX_REQUEST_BYTES, too_large
from lethe.consumers.log.partitioner import index_for
from lethe.engine.errors import LogUnavailable

DELIVERY_SECONDS = 30.0
# librdkafka does not split a batch that is too large for a topic, so a batch of several messages
# stays below the limit of every topic; a larger message is sent alone.
BATCH_BYTES = 16_384


class ConfluentProducer(Producer):
    """An idempotent producer.

    After a failure the client is discarded with everything still in it, so that nothing of the
    failed send can arrive after the caller has sent it again.
    """

    def __init__(self, questions: Questions) -> None:
        self._questions = questions
        self._server = questions.server
        self._heard = Heard(self._server.signing_on, reached=True)
        self._client: Client | None = None
        self._topics: dict[str, list[Partition]] = {}
        self._requested_at = 0.0
        self._descriptions: Mapping[str, Future[Any]] = {}

    def begin(self, messages: Iterable[Message]) -> ConfluentFlush:
        """Send in order; librdkafka's own threads do the rest."""
        batch = list(messages)
        flush = ConfluentFlush(self, batch)
        try:
            with self._server.reaching(self._heard):
                self._look_up(batch)
                client = self._open()
                flush.client, flush.topics = client, dict(self._topics)
                for place, message in enumerate(batch):
                    self._produce(client, message, partial(flush.delivered, place))
                client.poll(0.0)
        except BaseException:
            self._abandon()
            raise
        return flush

    def close(self) -> None:
        """Release the connection."""
        self._abandon()

    # The methods below are for the flush.

    def acknowledge(self, flush: ConfluentFlush, timeout: float) -> None:
        """Wait until the brokers have acknowledged every message of ``flush``."""
        client = flush.client
        if client is None or client is not self._client:
            raise LogUnavailable(
                f"an earlier send to Kafka at {self._server} failed: send this again as well"
            )
        deadline = time.monotonic() + timeout
        try:
            with self._server.reaching(self._heard):
                while flush.missing:
                    self._check(flush, deadline, timeout)
                    client.poll(min(max(deadline - time.monotonic(), 0.0), SLICE_SECONDS))
        except BaseException:
            self._abandon()
            raise

    def _check(self, flush: ConfluentFlush, deadline: float, timeout: float) -> None:
        """Raise the reason if waiting any longer is pointless."""
        if flush.failure is not None:
            message, error = flush.failure
            raise self._failed(message, error)
        if self._heard.lasting is not None or time.monotonic() > deadline:
            raise self._server.unreachable(self._heard, f"no acknowledgement within {timeout:g} s")

    def _open(self) -> Client:
        if self._client is None:
            self._heard = Heard(self._server.signing_on, reached=True)
            settings = self._server.settings(self._heard) | {
                "acks": "all",
                "enable.idempotence": True,
                "max.in.flight.requests.per.connection": 5,  # ordered, with idempotence
                "retries": 1_000_000,  # the delivery timeout is the bound
                "retry.backoff.ms": 50,
                "delivery.timeout.ms": int(DELIVERY_SECONDS * 1000),
                "linger.ms": 0,
                "batch.size": BATCH_BYTES,
                "compression.type": "none",
                "message.max.bytes": MAX_REQUEST_BYTES,
                "partitioner": "murmur2",  # as `consumers.log.partitioner`
            }
            self._client = opened(Client, settings)
        return self._client

    def _produce(self, client: Client, message: Message, delivered: Any) -> None:
        deadline = time.monotonic() + DELIVERY_SECONDS
        index = -1  # by key
        if message.partition is not None:
            index = index_for(message, len(self._topics[message.topic]))
        while True:
            try:
                client.produce(
                    message.topic,
                    message.value,
                    message.key,
                    index,
                    on_delivery=delivered,
                    headers=list(message.headers),
                )
            except BufferError:  # the client's queue is full: the brokers are slower than we are
                if time.monotonic() > deadline:
                    raise self._server.unreachable(self._heard, "its queue is full") from None
                client.poll(SLICE_SECONDS)
            except KafkaException as error:
                raise self._failed(message, error.args[0]) from error
            else:
                return

    def _failed(self, message: Message, error: KafkaError) -> Exception:
        if error.code() == KafkaError.MSG_SIZE_TOO_LARGE:
            return too_large(message)
        return self._server.failed(error, self._heard)

    def _look_up(self, batch: Sequence[Message]) -> None:
        """Reject a topic that does not exist at once, and keep the ids of the others up to date."""
        self._refresh()
        unknown = {message.topic for message in batch if not self._knows(message)}
        if not unknown:
            return
        existing = self._questions.partitions(sorted(unknown))
        for topic in sorted(unknown):
            if topic not in existing:
                raise LogUnavailable(
                    f"topic {topic} does not exist in Kafka at {self._server}: `lethe work` and "
                    "`lethe register` create it"
                )
        self._topics |= existing

    def _knows(self, message: Message) -> bool:
        known = self._topics.get(message.topic)
        return known is not None and (message.partition or 0) < len(known)

    def _refresh(self) -> None:
        """Take the topic descriptions if they have arrived, and request new ones; never wait."""
        if self._descriptions:
            if not all(future.done() for future in self._descriptions.values()):
                return
            descriptions, self._descriptions = self._descriptions, {}
            with contextlib.suppress(LogUnavailable):  # the send itself will report it
                self._topics = by_topic(self._questions.described(descriptions))
        now = time.monotonic()
        if self._topics and now > self._requested_at + METADATA_SECONDS:
            self._requested_at = now
            self._descriptions = self._questions.describe(sorted(self._topics))

    def _abandon(self) -> None:
        """Discard the client and what it has not sent: nothing waits for its acknowledgements."""
        self._topics.clear()
        self._descriptions = {}
        if self._client is not None:
            client, self._client = self._client, None
            client.purge()
            client.poll(0.0)  # otherwise librdkafka keeps its pending callbacks
            client.close()


class ConfluentFlush:
    """Messages that librdkafka is sending."""

    def __init__(self, owner: ConfluentProducer, batch: Sequence[Message]) -> None:
        self._owner = owner
        self._batch = batch
        self._appended: dict[int, Appended] = {}
        self.client: Client | None = None
        self.topics: Mapping[str, Sequence[Partition]] = {}
        self.failure: tuple[Message, KafkaError] | None = None

    @property
    def missing(self) -> int:
        """How many messages are not acknowledged yet."""
        return len(self._batch) - len(self._appended)

    def delivered(self, place: int, error: KafkaError | None, report: Delivered) -> None:
        """Record the outcome of a message: librdkafka's ``on_delivery``."""
        message = self._batch[place]
        if error is not None:
            self.failure = self.failure or (message, error)
            return
        offset, index = report.offset(), report.partition()
        assert index is not None  # noqa: S101 (mypy: it was delivered)
        known = offset is not None and offset >= 0
        partition = replace(self.topics[message.topic][0], index=index)
        self._appended[place] = Appended(partition, offset if known else None)

    def wait(self, timeout: float = 30.0) -> Sequence[Appended]:
        """Return where each message is, once the brokers have acknowledged all of them."""
        self._owner.acknowledge(self, timeout)
        return [self._appended[place] for place in range(len(self._batch))]
