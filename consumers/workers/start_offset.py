"""Where to resume in a partition that was taken over."""

from __future__ import annotations

from lethe.consumers.log.base import Bounds, Partition
from lethe.engine.errors import LogReset


def start_offset(partition: Partition, watermark: int | None, bounds: Bounds) -> int:
    """Return the offset at which to resume reading a partition.

    Raises
    ------
    LogReset
        The log ends before the watermark, or begins after it: records were lost.
    """
    if watermark is None:
        return bounds.begin
    name = f"{partition.topic}/{partition.index}"
    if watermark > bounds.end:
        raise LogReset(
            f"{name} ends at offset {bounds.end}, but everything below {watermark} was processed: "
            "the log was reset or has lost its end. Restore it, or recreate the topic"
        )
    if watermark < bounds.begin:
        raise LogReset(
            f"{name} begins at offset {bounds.begin}, but {watermark} is the next to process: "
            f"{bounds.begin - watermark} records were removed before they were processed. Find "
            "their requests and send them again, then delete the key of the watermark"
        )
    return watermark
