"""Which records of a commits partition count, as a fold finds out: from their open parts alone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from lethe.consumers.commits.journal import LogGap, Verdict, gap, judge, read_records
from lethe.consumers.commits.record import OpenPart
from lethe.consumers.log.base import Partition, Reader
from lethe.consumers.service.progress import Progress
from lethe.engine.store.state import Head

_TELL = 64  # records between two reports of progress


@dataclass(frozen=True, slots=True)
class OpenRecord:
    """A record as a fold reads it first: its open part, and where it lies."""

    offset: int
    epoch: int
    digest: str
    open: OpenPart


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
        By model: a commit is missing.
    """

    valid: Mapping[int, OpenRecord]
    newest: dict[str, Head]
    gaps: Mapping[str, LogGap]


def read_open(
    reader: Reader, partition: Partition, start: int, end: int, progress: Progress
) -> list[OpenRecord]:
    """Read the open parts from ``start`` up to ``end``; records that are no commits are void."""
    found = []
    for record, framed in read_records(reader, partition, start, end):
        if record.offset % _TELL == 0:
            progress("reading commits", record.offset, end)
        if framed is not None:
            epoch = -1 if record.leader_epoch is None else record.leader_epoch
            found.append(OpenRecord(record.offset, epoch, framed.digest, framed.open))
    return found


def count(read: Sequence[OpenRecord], heads: Mapping[str, Head], index: int) -> Counted:
    """Return the records that count: the past of the stored heads, and what follows them.

    A model without a head begins with its commit 0, or, where that has expired, with the first
    commit that another one continues.

    Parameters
    ----------
    read
        The records of commits partition ``index``, in order.
    heads
        By model, the newest commit that the store holds.
    """
    by_digest = {one.digest: one for one in read}
    valid: dict[int, OpenRecord] = {}
    newest, gaps = dict(heads), dict[str, LogGap]()
    for head in heads.values():
        one = by_digest.get(head.digest)
        while one is not None and one.offset not in valid:
            valid[one.offset] = one
            one = by_digest.get(one.open.prev)
    continued = {one.open.prev for one in read}
    for one in read:
        model = one.open.model_id
        if one.offset in valid:
            continue
        # Also of a model that halts: what continues it is its newest all the same.
        head = newest.get(model, Head())
        if model not in newest and one.open.number > 0 and one.digest in continued:
            head = Head(one.open.number - 1, one.open.prev)
        match judge(one.open, head, index):
            case Verdict.VALID:
                valid[one.offset] = one
                newest[model] = Head(one.open.number, one.digest)
                if one.open.checkpoint:  # a person goes on over what was missing
                    gaps.pop(model, None)
            case Verdict.GAP:
                if model not in heads or one.offset > heads[model].offset:
                    gaps.setdefault(model, gap(one.open, head, one.offset))
            case Verdict.VOID:
                pass
    return Counted(valid, newest, gaps)
