"""Repairs of defects in kafka-python, applied from outside.

Each repair says what happens without it and names the test that would then fail. The repairs use
private parts of the client: `consumers.log.kafka.versions` names these and the versions that have
the defect, checks the installed version, and says when a repair may go.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from weakref import WeakSet

from kafka import errors
from kafka.net.compat import KafkaNetClient
from kafka.net.inet import KafkaNetSocket
from kafka.protocol.consumer.fetch import FetchRequest
from kafka.record.default_records import DefaultRecordBatch
from kafka.record.util import decode_varint

# From this version on, a fetch names its topics by id.
_FETCH_BY_ID = 13
_ABANDON_SECONDS = 2.0


# Passed as ``proxy_url``, by which the client chooses a kind of socket; there is no proxy.
DIRECT = "lethe-direct://"


class _ClosedOnFailure(KafkaNetSocket):  # type: ignore[misc]  # kafka-python has no types
    """A socket that is closed if it cannot connect.

    The client leaves such sockets to the garbage collector, one for every attempt to reach a
    broker that is down. (`test_a_log_that_is_not_there_is_one_clear_line_in_bounded_time`)
    """

    SCHEMES = ("lethe-direct",)

    async def sock_connect(self, net: Any, sock: Any, *args: Any, **kwargs: Any) -> Any:
        try:
            return await super().sock_connect(net, sock, *args, **kwargs)
        except BaseException:
            sock.close()
            raise


class SleepingClient(KafkaNetClient):  # type: ignore[misc]  # kafka-python has no types
    """A client whose thread can be kept asleep while messages are queued.

    A producer wakes the thread for every message that begins a batch. The thread then takes the
    interpreter from the caller that is still queueing, and sends more batches than necessary.
    (`test_a_flush_wakes_the_client_once`)
    """

    _asleep = False

    def wakeup(self) -> None:
        """Wake the thread, unless it is being kept asleep."""
        if not self._asleep:
            super().wakeup()

    @contextmanager
    def asleep(self) -> Iterator[None]:
        """Keep the thread asleep, and wake it at the end."""
        self._asleep = True
        try:
            yield
        finally:
            self._asleep = False
            self.wakeup()


def refuse_new_topics(client: Any) -> None:
    """Make ``allow_auto_create_topics=False`` reach the metadata requests.

    The client creates its `ClusterMetadata` without that setting, so a misspelt topic is created
    on brokers that create topics automatically. (`test_no_metadata_request_creates_topics`)
    """
    client.cluster.config["allow_auto_create_topics"] = False


def hear_last_words(client: Any) -> None:
    """Deliver the bytes that a broker sent before it closed the connection.

    If both arrive together, the client drops the bytes: a broker reports a wrong password and
    closes, and the client reports only that it closed.
    (`test_each_refusal_of_kafka_is_one_line_that_says_what_to_do`)
    """
    manager = client._manager
    build: Callable[..., Any] = manager._build_transport

    async def build_and_listen(*args: Any, **kwargs: Any) -> Any:
        transport = await build(*args, **kwargs)
        receive: Callable[[], tuple[bytes, Any]] = transport._sock_recv
        late: list[Any] = []

        def receive_in_order() -> tuple[bytes, Any]:
            if late:
                return b"", late.pop()
            data, error = receive()
            if data and error is not None:
                late.append(error)
                error = None
            return data, error

        transport._sock_recv = receive_in_order
        return transport

    manager._build_transport = build_and_listen


def close_unsent(client: Any) -> None:
    """Close the sockets of connections that still have bytes to send when the client is closed.

    A connection closes its socket once it has sent everything, which a closed client never does: it
    leaves the socket to the garbage collector.
    (`test_a_client_that_is_closed_before_it_has_sent_everything_leaves_no_socket`)
    """
    manager = client._manager
    build: Callable[..., Any] = manager._build_transport
    close: Callable[..., None] = client.close
    transports: WeakSet[Any] = WeakSet()

    async def build_and_note(*args: Any, **kwargs: Any) -> Any:
        transport = await build(*args, **kwargs)
        transports.add(transport)
        return transport

    def close_with_sockets(node_id: Any = None) -> None:
        close(node_id)
        if node_id is not None:
            return
        for transport in list(transports):
            if transport._sock is not None:
                transport._sock.close()

    manager._build_transport, client.close = build_and_note, close_with_sockets


def fetch_by_topic_id(client: Any) -> None:
    """Send fetches in the version that names topics by id.

    The client fetches by name. If a topic is deleted and recreated, it continues at the old offset
    in the new topic until its metadata are refreshed, and misses records. With the id, the broker
    rejects such a fetch. (`test_a_topic_made_again_is_another_topic`)
    """
    manager = client._manager
    send: Callable[..., Any] = manager.send
    names: dict[object, str] = {}

    def restore_names(response: Any) -> None:
        for topic in response.responses:
            if topic.topic_id in names:
                topic.topic = names[topic.topic_id]

    def send_by_id(request: Any, *args: Any, **kwargs: Any) -> Any:
        if not isinstance(request, FetchRequest):
            return send(request, *args, **kwargs)
        topics = [*request.topics, *request.forgotten_topics_data]
        ids = [client.cluster.topic_id(topic.topic) for topic in topics]
        if None in ids:  # a broker before Kafka 2.8
            return send(request, *args, **kwargs)
        for topic, topic_id in zip(topics, ids, strict=True):
            topic.topic_id = topic_id
            names[topic_id] = topic.topic
        request._max_version = _FETCH_BY_ID
        # Callbacks run in order of addition: the client finds the names that it expects.
        return send(request, *args, **kwargs).add_callback(restore_names)

    manager.send = send_by_id


def read_odd_header_names() -> None:
    """Read records whose header names are not UTF-8, with question marks for the invalid bytes.

    Brokers accept any bytes as a name. The client decodes them strictly and raises, again at every
    poll: one such record blocks its partition for ever.
    (`test_a_header_name_that_is_no_text_harms_nobody`)
    """
    if getattr(DefaultRecordBatch.__next__, "repairs", False):
        return
    read: Callable[[Any], Any] = DefaultRecordBatch.__next__

    def repair_and_read(batch: Any) -> Any:
        try:
            return read(batch)
        except errors.CorruptRecordError as error:
            if not isinstance(error.__context__, UnicodeDecodeError):
                raise
            try:
                _repair_names(batch)  # the batch has not moved on
            except (ValueError, IndexError):
                raise error from None  # the bytes after the name are damaged as well
        except (TypeError, struct.error) as error:  # a damaged transaction marker
            raise errors.CorruptRecordError(f"a record does not parse: {error}") from error
        return read(batch)

    repair_and_read.repairs = True  # type: ignore[attr-defined]
    DefaultRecordBatch.__next__ = DefaultRecordBatch.next = repair_and_read


def _repair_names(batch: Any) -> None:
    """In the next record's undecodable header names, replace bytes that are not ASCII."""
    buffer, at = batch._buffer, batch._pos
    for _ in range(4):  # length, attributes, time, offset
        _, at = decode_varint(buffer, at)
    for _ in range(2):  # key, value
        at = _past(buffer, at)
    count, at = decode_varint(buffer, at)
    for _ in range(count):
        length, start = decode_varint(buffer, at)
        name = buffer[start : start + length]
        try:
            name.decode()
        except UnicodeDecodeError:
            plain = bytes(byte if byte < 0x80 else ord("?") for byte in name)
            buffer[start : start + length] = plain
        at = _past(buffer, start + length)


def _past(buffer: bytearray, at: int) -> int:
    """Return the end of a length-prefixed field at ``at``; a length of -1 means no bytes."""
    length, start = decode_varint(buffer, at)
    return int(start) + max(int(length), 0)


def finish_joins(consumer: Any) -> None:
    """Complete every join of the group, even one whose answer arrives between two polls.

    The client loses such an answer in two ways. It discards the answer and joins again, which makes
    the whole group rebalance: with short polls two members do that to each other for ever. Or, if
    the join was for new partitions, it forgets that it was joining: the member then has no
    partitions and sends no heartbeats, for ever.
    (`test_two_members_split_the_partitions_and_one_that_leaves_hands_over`,
    `test_a_join_that_finishes_between_two_polls_is_completed`)
    """
    coordinator = consumer._coordinator
    join: Callable[..., Any] = coordinator.join_group_async
    need_rejoin: Callable[[], bool] = coordinator.need_rejoin

    async def join_once(timeout_ms: float | None = None) -> Any:
        task = coordinator._join_task
        if task is not None and task.is_done:
            coordinator._join_task = _Finished(task)
        return await join(timeout_ms)

    coordinator.join_group_async = join_once
    coordinator.need_rejoin = lambda: bool(coordinator.rejoining) or need_rejoin()


class _Finished:
    """A finished future that reports being unfinished, so that its result is still delivered."""

    is_done = False

    def __init__(self, future: Any) -> None:
        self.add_callback = future.add_callback
        self.add_errback = future.add_errback


def abandon(producer: Any) -> None:
    """Stop a producer and drop what it has not sent.

    The producer's own ``close`` raises if a flush does not succeed in time and leaves the sending
    thread running, which then sends old messages after their retry.
    (`test_kafka_survives_its_broker`)
    """
    producer._unregister_cleanup()
    producer._closed = True
    producer._sender.force_close()
    producer._sender.join(_ABANDON_SECONDS)
