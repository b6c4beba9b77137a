"""Where to go on in a partition that was taken over."""

from __future__ import annotations

from lethe.consumers.log.base import Bounds, Partition
from lethe.engine.errors import LogReset


def start_offset(partition: Partition, watermark: int | None, bounds: Bounds) -> int:
    """Return where to go on in a partition.

    Raises
    ------
    LogReset
        The log ends before the watermark, or begins after it: records were lost.
    """
    if watermark is None:
        return bounds.begin
    where = f"{partition.topic}/{partition.index}"
    if watermark > bounds.end:
        raise LogReset(
            f"{where} ends at offset {bounds.end}, but everything below {watermark} was decided: "
            "the log was reset or has lost its end. Restore it, or recreate the topic"
        )
    if watermark < bounds.begin:
        raise LogReset(
            f"{where} begins at offset {bounds.begin}, but {watermark} is the next to decide: "
            f"{bounds.begin - watermark} records were removed before they were decided. Find their "
            "requests and send them again, then delete the key of the watermark"
        )
    return watermark
