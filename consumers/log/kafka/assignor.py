"""How the members of a group share the partitions of several topics."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

from kafka.coordinator.assignors.cooperative_sticky import CooperativeStickyAssignor
from kafka.protocol.consumer.metadata import ConsumerProtocolAssignment


class BalancedTopicsAssignor(CooperativeStickyAssignor):  # type: ignore[misc]
    """The cooperative sticky assignor, applied to each topic alone.

    Over all topics at once it balances only their sum: of two workers one could get every partition
    of ``lethe.deletions``, and the other every one of ``lethe.row-changes``, which is often idle.
    """

    def assign(self, cluster: Any, members: Sequence[Any]) -> dict[str, Any]:
        """Return what each member is to have, by its id."""
        shares: dict[str, list[Any]] = {member.member_id: [] for member in members}
        by_topic = defaultdict(list)
        for member in members:
            for topic in member.metadata.topics:
                by_topic[topic].append(_restricted(member, topic))
        for topic in sorted(by_topic):
            for member_id, share in super().assign(cluster, by_topic[topic]).items():
                shares[member_id] += share.assigned_partitions
        return {
            member_id: ConsumerProtocolAssignment(self.version, share, b"")
            for member_id, share in shares.items()
        }


def _restricted(member: Any, topic: str) -> SimpleNamespace:
    """Return a member as if it subscribed to one topic."""
    owned = getattr(member.metadata, "owned_partitions", None) or ()
    metadata = SimpleNamespace(
        topics=[topic],
        owned_partitions=[each for each in owned if each.topic == topic],
        generation_id=member.metadata.generation_id,
    )
    return SimpleNamespace(member_id=member.member_id, metadata=metadata)
