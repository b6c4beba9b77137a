"""Which partition a message goes to: the one that it names, or that of its key."""

from __future__ import annotations

from lethe.consumers.log.base import Message
from lethe.engine.errors import LogUnavailable
from lethe.engine.store.keys import murmur2, partition_index

__all__ = ["index_for", "murmur2", "partition_index"]


def index_for(message: Message, partitions: int) -> int:
    """Return the index of the partition that ``message`` goes to in a topic of ``partitions``.

    Raises
    ------
    LogUnavailable
        The message names a partition that the topic does not have.
    """
    if message.partition is None:
        return partition_index(message.key, partitions)
    if not 0 <= message.partition < partitions:
        raise LogUnavailable(
            f"partition {message.partition} of topic {message.topic} does not exist: it has "
            f"{partitions}"
        )
    return message.partition
