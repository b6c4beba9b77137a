"""Measure both clients of Kafka behind the log's interface, in turns, on one broker.

    python scripts/kafka_clients.py [--kafka HOST:PORT] [--count N] [--turns N]

Without --kafka it uses the broker that LETHE_TEST_KAFKA names; without that too, it starts one of
its own (scripts/kafka) and stops it. With no Kafka to be had it says so; the exit code is then 3.

The clients take turns, so that what else the machine does meets both; the table holds the median of
the turns. Nothing here is faster than the broker's own disk: sends are acknowledged by all
replicas.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
import uuid
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from pathlib import Path

from harness.servers import NoKafka, kafka
from harness.tables import table
from harness.timing import seconds
from lethe.consumers.log.base import Consumer, Flush, Log, Message, Partition, Reader, TopicSpec
from lethe.consumers.log.kafka.confluent.log import ConfluentLog
from lethe.consumers.log.kafka.kafka_python.log import KafkaPythonLog
from lethe.engine.errors import LogUnavailable

VALUE = bytes(1000)
MANY = 1_000
PARTITIONS = 64
CLIENTS: Mapping[str, Callable[[str], Log]] = {
    "kafka-python": lambda where: KafkaPythonLog(where, client_id="measure"),
    "confluent-kafka": lambda where: ConfluentLog(where, client_id="measure"),
}
UNITS = {
    "one acknowledged send, p50": "ms",
    "one acknowledged send, p99": "ms",
    "1,000 messages of 1 KB in one send": "ms",
    "from a send to the member that polls, p50": "ms",
    "bounds of a partition, p50": "ms",
    "ends of 64 partitions, p50": "ms",
    "a record anywhere in the log, p50": "ms",
    "100,000 records read by a member": "s",
}


def milliseconds(call: Callable[[], object], count: int) -> list[float]:
    """Return how long each of ``count`` calls took, sorted."""
    return sorted(1000 * seconds(call) for _ in range(count))


def measure(log: Log, count: int) -> dict[str, float]:
    """Return the figures of one client."""
    topic = TopicSpec(f"measure-{uuid.uuid4().hex[:8]}", 1)
    wide = TopicSpec(f"measure-{uuid.uuid4().hex[:8]}", PARTITIONS)
    log.ensure_topics([topic, wide])
    one = [Message(topic.name, b"key", VALUE)]
    producer, reader = log.producer(), log.reader()
    milliseconds(lambda: producer.append(one), 50)  # connections, and the first batch's extra
    sends = milliseconds(lambda: producer.append(one), count)
    many = milliseconds(lambda: producer.append(one * MANY), 5)
    [partition] = reader.partitions(topic.name)
    partitions = reader.partitions(wide.name)
    milliseconds(lambda: reader.ends(partitions), 5)
    few = max(count // 10, 20)
    names = iter(UNITS)
    figures = (
        sends[count // 2],
        sends[int(count * 0.99)],
        statistics.median(many),
        _delivery(log, topic.name, few),
        statistics.median(milliseconds(lambda: reader.bounds(partition), few)),
        statistics.median(milliseconds(lambda: reader.ends(partitions), few)),
        _anywhere(reader, topic.name, few),
        _throughput(log, topic.name),
    )
    producer.close()
    reader.close()
    return {next(names): figure for figure in figures}


def _member(log: Log, topic: str) -> tuple[Consumer, Partition]:
    """Return a new group's only member and its partition."""
    consumer = log.consumer(f"g-{uuid.uuid4().hex}", [topic])
    while not (assigned := consumer.take_assigned()):
        consumer.poll(0.1, 100)
    [partition] = assigned
    return consumer, partition


def _delivery(log: Log, topic: str, count: int) -> float:
    """Return the median time from before a send until a member of a group has the record."""
    consumer, partition = _member(log, topic)
    producer = log.producer()
    consumer.seek(partition, consumer.bounds(partition).end)
    flushes: list[Flush] = []

    def deliver() -> None:
        flushes.append(producer.begin([Message(topic, b"key", VALUE)]))
        while not consumer.poll(0.1, 100):
            pass

    found = []
    for _ in range(count):
        found.append(1000 * seconds(deliver))
        flushes.pop().wait()
    consumer.close()
    producer.close()
    return statistics.median(found)


def _anywhere(reader: Reader, topic: str, count: int) -> float:
    """Return the median time to read one record at an offset that was not read before."""
    [partition] = reader.partitions(topic)
    offsets = iter(range(7, 7 + 11 * count, 11))
    return statistics.median(
        milliseconds(lambda: reader.read(partition, next(offsets), 10.0, 1), count)
    )


def _throughput(log: Log, topic: str) -> float:
    """Return the seconds that a member takes for 100,000 records, the same ones many times."""
    consumer, partition = _member(log, topic)
    end, read = consumer.bounds(partition).end, 0

    def read_all() -> None:
        nonlocal read
        while read < 100_000:
            consumer.seek(partition, 0)
            after = 0
            while after < end:
                if records := consumer.poll(1.0, 256):
                    read, after = read + len(records), records[-1].offset + 1

    taken = seconds(read_all)
    consumer.close()
    return taken * 100_000 / read


def in_turns(given: str | None, count: int, turns: int) -> dict[str, list[dict[str, float]]]:
    """Return the figures of each client's turns.

    Raises
    ------
    NoKafka, LogUnavailable
        There is no broker to measure on, or it does not answer.
    """
    found: dict[str, list[dict[str, float]]] = {name: [] for name in CLIENTS}
    with tempfile.TemporaryDirectory() as data:
        broker = nullcontext(given) if given else kafka(Path(data))
        with broker as where:
            for _ in range(turns):
                for name, make in CLIENTS.items():
                    log = make(where)
                    found[name].append(measure(log, count))
                    log.close()
    return found


def main() -> int:
    """Measure and print a Markdown table; return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--kafka", metavar="HOST:PORT")
    parser.add_argument("--count", type=int, default=2_000)
    parser.add_argument("--turns", type=int, default=3)
    given = parser.parse_args()
    try:
        found = in_turns(given.kafka, given.count, given.turns)
    except (NoKafka, LogUnavailable) as missing:
        print(f"no Kafka to measure on: {missing}", file=sys.stderr)
        return 3
    lines = []
    for figure, unit in UNITS.items():
        turns = [[turn[figure] for turn in of_client] for of_client in found.values()]
        cells = [
            f"{statistics.median(of):.2f} {unit} ({min(of):.2f} to {max(of):.2f})" for of in turns
        ]
        lines.append([figure, *cells])
    print(table(["", *CLIENTS], lines))
    return 0


if __name__ == "__main__":
    sys.exit(main())
