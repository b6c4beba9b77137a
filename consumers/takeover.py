"""Taking over a partition (docs/commit.md): where to go on, and whether history agrees.

The rebalance listener only sets a flag; the polling thread runs this before it seeks.
"""

from __future__ import annotations

from collections.abc import Iterable

from consumers import topics
from consumers.events import Version
from consumers.log.base import Bounds, Partition, Reader
from engine.errors import LogReset, VersionFork
from engine.store.state import ModelState

TAIL = 1000
"""Newest records of each versions partition that are read at takeover."""

_READ_SECONDS = 5.0


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


def published_tails(reader: Reader, models: Iterable[str]) -> dict[str, Version]:
    """Return the newest published version of each model, as far as the tails hold it."""
    wanted = set(models)
    newest: dict[str, Version] = {}
    for partition in reader.partitions(topics.VERSIONS):
        bounds = reader.bounds(partition)
        offset = max(bounds.begin, bounds.end - TAIL)
        while offset < bounds.end:
            records, position = reader.read(partition, offset, _READ_SECONDS, TAIL)
            for record in records:
                key = (record.key or b"").decode("utf-8", errors="replace")
                if key in wanted and record.value is not None:
                    version = Version.model_validate_json(record.value)
                    known = newest.get(key)
                    if known is None or version.version > known.version:
                        newest[key] = version
            if position == offset:
                break
            offset = position
    return newest


def check_history(state: ModelState, published: Version | None) -> None:
    """Compare stored state with published history.

    Raises
    ------
    VersionFork
        The store is behind what was published, or says otherwise.
    """
    if published is None or published.version < state.version:
        return
    if published.version == state.version and published.digest == state.digest:
        return
    raise VersionFork(
        f"model {state.model_id!r}: version {published.version} was published and the store holds "
        f"version {state.version}{' with another digest' * (published.version == state.version)}: "
        "it has lost writes. Restore the store, or register the model again with --replace"
    )
