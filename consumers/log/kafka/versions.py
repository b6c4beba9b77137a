"""The repairs of kafka-python, and the versions that they concern.

Repairs reach into private parts of the client, which any version may change. In a version that the
table names, each defect was reproduced and each repair tested. In any other one, every private part
must at least be there. `tests/integration/log/test_repairs.py` fails when a version has no defect
any more: then its repair goes, and with it its line here.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from functools import cache
from importlib import import_module

import kafka

from lethe.engine.errors import InvalidData

log = logging.getLogger(__name__)

TESTED = ("3.0.9", "3.0.10", "3.0.11", "3.0.12")
"""Where `scripts/kafka_python_defects.py` found every defect, and the log's tests passed."""


@dataclass(frozen=True, slots=True)
class Repair:
    """A repair: what applies it, and the name of its defect in `scripts/kafka_python_defects.py`.

    ``parts`` are the private parts that it needs, as ``module:Class.attribute``.
    """

    by: str
    defect: str
    parts: tuple[str, ...]
    versions: tuple[str, ...] = TESTED


_BUILD = "kafka.net.manager:KafkaConnectionManager._build_transport"
_MANAGER = "kafka.net.compat:KafkaNetClient._manager"
_SOCKET = "kafka.net.transport:KafkaTCPTransport._sock"

REPAIRS = (
    Repair(
        "repairs.refuse_new_topics",
        "metadata_requests_create_topics",
        ("kafka.cluster:ClusterMetadata.config",),
    ),
    Repair(
        "repairs.hear_last_words",
        "last_words_are_lost",
        (_MANAGER, _BUILD, "kafka.net.transport:KafkaTCPTransport._sock_recv"),
    ),
    Repair(
        "repairs.fetch_by_topic_id",
        "a_topic_made_again_is_read_on",
        (
            _MANAGER,
            "kafka.net.manager:KafkaConnectionManager.send",
            "kafka.cluster:ClusterMetadata.topic_id",
            "kafka.protocol.consumer.fetch:FetchRequest._max_version",
        ),
    ),
    Repair(
        "repairs.read_odd_header_names",
        "an_odd_header_name_stops_a_partition",
        (
            "kafka.record.default_records:DefaultRecordBatch.__next__",
            "kafka.record.default_records:DefaultRecordBatch._buffer",
            "kafka.record.default_records:DefaultRecordBatch._pos",
        ),
    ),
    Repair(
        "repairs.finish_joins",
        "a_join_between_two_polls_is_forgotten",
        (
            "kafka.consumer.group:KafkaConsumer._coordinator",
            "kafka.coordinator.base:BaseCoordinator._join_task",
            "kafka.coordinator.base:BaseCoordinator.join_group_async",
            "kafka.coordinator.base:BaseCoordinator.need_rejoin",
            "kafka.coordinator.base:BaseCoordinator.rejoining",
        ),
    ),
    Repair(
        "repairs.abandon",
        "a_closed_producer_sends_on",
        (
            "kafka.producer.kafka:KafkaProducer._unregister_cleanup",
            "kafka.producer.kafka:KafkaProducer._closed",
            "kafka.producer.kafka:KafkaProducer._sender",
            "kafka.producer.sender:Sender.force_close",
        ),
    ),
    Repair(
        "repairs.DIRECT",
        "a_refused_connection_leaks_its_socket",
        (
            "kafka.net.inet:KafkaNetSocket._registry",
            "kafka.net.inet:KafkaNetSocket.sock_connect",
        ),
    ),
    Repair(
        "repairs.close_unsent",
        "a_closed_client_leaks_a_socket",
        (_MANAGER, _BUILD, _SOCKET),
    ),
    Repair(
        "repairs.SleepingClient",
        "each_batch_wakes_the_sender",
        ("kafka.net.compat:KafkaNetClient.wakeup",),
    ),
    Repair(
        "connection.Connection",
        "a_failed_constructor_leaves_its_thread",
        (_MANAGER, "kafka.net.manager:KafkaConnectionManager.bootstrapped"),
    ),
    Repair(
        "connection.Connection",
        "the_reason_of_a_refusal_is_not_told",
        (
            _MANAGER,
            "kafka.net.manager:KafkaConnectionManager._auth_failures",
            "kafka.net.manager:KafkaConnectionManager._connect",
            "kafka.net.manager:KafkaConnectionManager._conns",
            "kafka.net.connection:KafkaConnection.close_future",
            "kafka.net.connection:KafkaConnection.init_future",
        ),
    ),
    Repair(
        "batches.bound_batches",
        "a_small_batch_unpacks_to_a_huge_one",
        (
            "kafka.consumer.group:KafkaConsumer._fetcher",
            "kafka.consumer.fetcher:Fetcher.PartitionRecords",
            "kafka.record.default_records:DefaultRecordBatch._buffer",
            "kafka.record.default_records:DefaultRecordBatch._decompressed",
            "kafka.record.default_records:DefaultRecordBatch._pos",
        ),
    ),
)


@cache
def check_version() -> None:
    """Check that the repairs fit the installed version; called before the first connection.

    Raises
    ------
    InvalidData
        A private part that a repair needs is not there: without the repair, records could be lost.
    """
    version: str = kafka.__version__
    unknown = [repair for repair in REPAIRS if version not in repair.versions]
    for repair in unknown:
        for part in repair.parts:
            if not is_there(part):
                raise InvalidData(
                    f"kafka-python {version} cannot be used: it has no {part.partition(':')[2]}, "
                    f"which Lethe needs to repair it ({repair.by.partition('.')[2]}): "
                    f"pip install 'kafka-python[crc32c]=={TESTED[-1]}'"
                )
    if unknown:
        log.warning(
            "Lethe was not tested with kafka-python %s (only with %s to %s); the private parts "
            "that the repairs need are there, so this version is used",
            version,
            TESTED[0],
            TESTED[-1],
            extra={"action": "check_kafka_python"},
        )


def is_there(part: str) -> bool:
    """Return whether a class has an attribute, or its constructor names it."""
    module, _, path = part.partition(":")
    kind, _, attribute = path.partition(".")
    try:
        owner = getattr(import_module(module), kind)
    except (ModuleNotFoundError, AttributeError):
        return False
    constructor = getattr(owner.__init__, "__code__", None)
    return hasattr(owner, attribute) or attribute in getattr(constructor, "co_names", ())
