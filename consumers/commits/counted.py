"""Which records of a commits partition count: a fold judges this from their open parts alone."""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass

from lethe.consumers.commits.journal import LogGap, Verdict, gap, judge, read_records
from lethe.consumers.commits.record import OpenPart
from lethe.consumers.contract import topics
from lethe.consumers.log.base import Partition, Reader
from lethe.consumers.service.progress import Progress
from lethe.engine.store.partition import commit_partition
from lethe.engine.store.state import Head

_PROGRESS_INTERVAL = 64  # records between two progress reports


@dataclass(frozen=True, slots=True)
class OpenRecord:
    """What everybody can read of a record: its open part, and where it lies."""

    offset: int
    digest: str
    open: OpenPart
    epoch: int = -1

    @property
    def number(self) -> int:
        """The commit's number."""
        return self.open.number

    @property
    def place(self) -> str:
        """Where it lies, in words; only in its model's partition can it count."""
        index = commit_partition(self.open.model_id)
        return f"{topics.COMMITS}/{index} at offset {self.offset}"


@dataclass(frozen=True, slots=True)
class Counted:
    """Which records count.

    Attributes
    ----------
    valid
        Those that do, by offset.
    newest
        By model, its newest commit.
    gaps
        By model, the error of a missing commit.
    """

    valid: Mapping[int, OpenRecord]
    newest: dict[str, Head]
    gaps: Mapping[str, LogGap]


def read_open(
    reader: Reader, partition: Partition, start: int, end: int, progress: Progress
) -> list[OpenRecord]:
    """Read open parts from ``start`` up to ``end``; records that are not commits are void."""
    open_records = []
    for record, framed in read_records(reader, partition, start, end):
        if record.offset % _PROGRESS_INTERVAL == 0:
            progress("reading commits", record.offset, end)
        if framed is not None:
            epoch = -1 if record.leader_epoch is None else record.leader_epoch
            open_records.append(OpenRecord(record.offset, framed.digest, framed.open, epoch))
    return open_records


def head_before(record: OpenRecord, continued: Container[str]) -> Head:
    """Return what a model's record follows if no commit before it is known.

    A model begins with its commit 0 or, if that has expired, with the first commit that another
    one continues; ``continued`` holds the digests of such commits.
    """
    if record.number > 0 and record.digest in continued:
        return Head(record.number - 1, record.open.prev)
    return Head()


def count(read: Sequence[OpenRecord], heads: Mapping[str, Head], index: int) -> Counted:
    """Return the records that count: those that the stored heads descend from, and what follows.

    Parameters
    ----------
    read
        The records of commits partition ``index``, in order.
    heads
        By model, the newest commit that the store holds.
    """
    by_digest = {record.digest: record for record in read}
    valid: dict[int, OpenRecord] = {}
    newest, gaps = dict(heads), dict[str, LogGap]()
    for head in heads.values():
        record = by_digest.get(head.digest)
        while record is not None and record.offset not in valid:
            valid[record.offset] = record
            record = by_digest.get(record.open.prev)
    continued = {record.open.prev for record in read}
    for record in read:
        model = record.open.model_id
        if record.offset in valid:
            continue
        # A model that halts is no exception: what continues its newest commit is then the newest.
        head = newest[model] if model in newest else head_before(record, continued)
        match judge(record.open, head, index):
            case Verdict.VALID:
                valid[record.offset] = record
                newest[model] = Head(record.open.number, record.digest)
                if record.open.checkpoint:  # a person has accepted what is missing
                    gaps.pop(model, None)
            case Verdict.GAP:
                if model not in heads or record.offset > heads[model].offset:
                    gaps.setdefault(model, gap(record.open, head, record.offset))
            case Verdict.VOID:
                pass
    return Counted(valid, newest, gaps)
