"""Strimzi's resources: a KafkaTopic of every topic, and a KafkaUser of every role.

The topics are those that the workers would create, with the same settings, three replicas and
``min.insync.replicas`` 2. The users have the rights of deploy/kafka/acls.csv. Strimzi writes each
user's SCRAM password to a secret of the user's name.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import groupby
from typing import Any

from kafka_acls import Right, rights
from lethe.consumers.contract import topics
from lethe.consumers.log.base import TopicSpec
from lethe.consumers.log.kafka.settings import topic_settings

CLUSTER = "kafka"
"""Name of the Kafka resource in the label ``strimzi.io/cluster``."""

_VERSION = "kafka.strimzi.io/v1"
_REPLICAS = 3


def resources() -> Iterator[dict[str, Any]]:
    """Yield the topics, then the users."""
    yield from map(_topic, topics.specs())
    by_user = sorted(rights({}), key=lambda right: right.user)
    for user, own in groupby(by_user, key=lambda right: right.user):
        yield _user(user, own)


def _topic(spec: TopicSpec) -> dict[str, Any]:
    settings = {**topic_settings(spec), "min.insync.replicas": str(_REPLICAS - 1)}
    return _resource(
        "KafkaTopic",
        spec.name,
        {
            "partitions": spec.partitions,
            "replicas": _REPLICAS,
            "config": dict(sorted(settings.items())),
        },
    )


def _user(name: str, own: Iterable[Right]) -> dict[str, Any]:
    return _resource(
        "KafkaUser",
        name,
        {
            "authentication": {"type": "scram-sha-512"},
            "authorization": {"type": "simple", "acls": [_rule(right) for right in own]},
        },
    )


def _rule(right: Right) -> dict[str, Any]:
    return {
        "resource": {
            "type": right.resource,
            "name": right.name.removesuffix("*"),
            "patternType": "prefix" if right.prefixed else "literal",
        },
        "operations": list(right.operations),
    }


def _resource(kind: str, name: str, spec: dict[str, Any]) -> dict[str, Any]:
    return {
        "apiVersion": _VERSION,
        "kind": kind,
        "metadata": {"name": name, "labels": {"strimzi.io/cluster": CLUSTER}},
        "spec": spec,
    }
