"""The error for a position that a partition does not hold."""

from __future__ import annotations

from lethe.consumers.log.base import Bounds, Partition
from lethe.engine.errors import LogReset


class PartitionReset(LogReset):
    """A position lies outside its partition, or the topic was deleted and made again.

    The partition yields nothing until it is sought again; the others go on.

    Attributes
    ----------
    partition : Partition
        Which partition, with the topic id that the position belongs to.
    position : int
        The offset that was asked for.
    bounds : Bounds or None
        What the partition holds; None when that incarnation of the topic is gone.
    """

    def __init__(self, partition: Partition, position: int, bounds: Bounds | None) -> None:
        self.partition = partition
        self.position = position
        self.bounds = bounds
        where = f"{partition.topic} partition {partition.index}"
        if bounds is None:
            found = "the topic was deleted or made again"
        else:
            found = f"the log holds {bounds.begin} to {bounds.end}"
        super().__init__(
            f"{where}: position {position} is not in the log: {found} (topic id "
            f"{partition.topic_id}). Find out whether records were lost before going on."
        )
