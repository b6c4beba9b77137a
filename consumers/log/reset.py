"""The error for a position that is not in its partition."""

from __future__ import annotations

from lethe.consumers.log.base import Bounds, Partition
from lethe.engine.errors import LogReset


class PartitionReset(LogReset):
    """A position is outside its partition, or the topic was deleted and recreated.

    The partition yields nothing until it is sought again; other partitions are not affected.

    Attributes
    ----------
    partition : Partition
        The partition, with the topic id that the position belongs to.
    position : int
        The requested offset.
    bounds : Bounds or None
        The partition's bounds; None if that incarnation of the topic is gone.
    """

    def __init__(self, partition: Partition, position: int, bounds: Bounds | None) -> None:
        self.partition = partition
        self.position = position
        self.bounds = bounds
        where = f"{partition.topic} partition {partition.index}"
        if bounds is None:
            reason = "the topic was deleted or recreated"
        else:
            reason = f"the log holds {bounds.begin} to {bounds.end}"
        super().__init__(
            f"{where}: position {position} is not in the log: {reason} (topic id "
            f"{partition.topic_id}). Find out whether records were lost before you continue."
        )
