"""Topics that lose records, or are made again, and a person who goes on."""

from __future__ import annotations

from typing import Any

from lethe.consumers.contract import topics
from lethe.consumers.registration.topic_loss import TopicPlan, TopicRecovery
from lethe.consumers.service.topic_watch import ensure_known
from lethe.engine.store.topics import Loss
from tests.support.platform import Platform


def know(platform: Platform, *accepting: str) -> None:
    """Do what every worker and `lethe register` does first: create topics, and know them."""
    specs = topics.specs(platform.partitions)
    ensure_known(platform.log, platform.store.topics, specs, accepting)


def delete(platform: Platform, topic: str) -> None:
    """Delete a topic, as an administrator can."""
    log: Any = platform.log
    log.delete_topic(topic)


def make_again(platform: Platform, topic: str) -> None:
    """Delete a topic and create it again, as an administrator can."""
    delete(platform, topic)
    specs = [spec for spec in topics.specs(platform.partitions) if spec.name == topic]
    platform.log.ensure_topics(specs)


def plan_of(platform: Platform, topic: str) -> TopicPlan:
    """Return what `lethe recover --topic` would do."""
    return TopicRecovery(platform.store, platform.reader).plan(topic)


def go_on_without(platform: Platform, topic: str) -> Loss:
    """Do what `lethe recover --topic` does once a person has agreed."""
    recovery = TopicRecovery(platform.store, platform.reader)
    return recovery.run(recovery.plan(topic), platform.log, platform.producer)
