"""Given the members of a group, when partitions are shared out, then those of each topic evenly."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from lethe.consumers.log.kafka.assignor import BalancedTopicsAssignor

TOPICS = ("lethe.deletions", "lethe.row-changes")
PARTITIONS = frozenset(range(16))
Owned = dict[str, list[int]]


def shared(owners: dict[str, Owned]) -> dict[str, Owned]:
    """Return what the members have after one round, given what they have before."""
    cluster = SimpleNamespace(
        partitions_for_topic=lambda _: set(PARTITIONS),
        topics=lambda: set(TOPICS),
    )
    members = [
        SimpleNamespace(
            member_id=name,
            metadata=SimpleNamespace(
                topics=list(TOPICS),
                owned_partitions=[
                    SimpleNamespace(topic=topic, partitions=has) for topic, has in owned.items()
                ],
                generation_id=1,
            ),
        )
        for name, owned in owners.items()
    ]
    found: dict[str, Any] = BalancedTopicsAssignor().assign(cluster, members)
    return {
        name: {topic: list(has) for topic, has in share.assigned_partitions}
        for name, share in found.items()
    }


def test_one_member_has_everything() -> None:
    [share] = shared({"a": {}}).values()
    assert {topic: set(has) for topic, has in share.items()} == dict.fromkeys(TOPICS, PARTITIONS)


def test_a_second_member_gets_half_of_each_topic_in_two_rounds() -> None:
    first = shared({"a": {topic: sorted(PARTITIONS) for topic in TOPICS}, "b": {}})
    assert all(len(first["a"][topic]) == 8 for topic in TOPICS)
    assert not any(first["b"].values()), "given away before the first has let go of them"
    second = shared(first)
    for topic in TOPICS:
        assert set(first["a"][topic]) == set(second["a"][topic])
        assert set(second["a"][topic]) | set(second["b"][topic]) == PARTITIONS
        assert len(second["b"][topic]) == 8
