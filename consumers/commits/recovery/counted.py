"""Which records of a commits partition count: readers judge this from their open parts alone."""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass, field

from lethe.consumers.commits.frame import OpenPart
from lethe.consumers.commits.journal import LogGap, Verdict, gap, judge, read_records
from lethe.consumers.contract import topics
from lethe.consumers.log.base import Partition, Reader
from lethe.consumers.service.telemetry.progress import Progress
from lethe.engine.store.layout.keys import commit_partition
from lethe.engine.store.layout.state import Head

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


@dataclass(slots=True)
class Chain:
    """The newest commit of a model, as far as its records were read.

    Whoever reads a model's commits judges them by one; the auditor alone has its own
    (`consumers.audit.commits`), because it must not share a mistake.

    Attributes
    ----------
    index
        The model's commits partition.
    head
        The newest commit that counts.
    gap
        Whether a record after it was judged to lie behind a gap.
    """

    index: int
    head: Head = field(default_factory=Head)
    gap: bool = False

    def follow(self, part: OpenPart, digest: str) -> Verdict:
        """Judge the next record, and continue with it if it counts."""
        verdict = judge(part, self.head, self.index, gap=self.gap)
        if verdict is Verdict.VALID:
            self.head = Head(part.number, digest)
        self.gap = digest != self.head.digest and (self.gap or verdict is Verdict.GAP)
        return verdict


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
    """Read open parts from ``start`` up to ``end``, except those that are void in any state.

    Those are records that are not commits, and records that name a model of another partition: they
    must not affect that model, whoever wrote them.
    """
    open_records = []
    for record, framed in read_records(reader, partition, start, end):
        if record.offset % _PROGRESS_INTERVAL == 0:
            progress("reading commits", record.offset, end)
        if framed is not None and commit_partition(framed.open.model_id) == partition.index:
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
    gaps: dict[str, LogGap] = {}
    chains = {model: Chain(index, head) for model, head in heads.items()}
    for head in heads.values():
        record = by_digest.get(head.digest)
        while record is not None and record.offset not in valid:
            valid[record.offset] = record
            record = by_digest.get(record.open.prev)
    continued = {record.open.prev for record in read}
    for record in read:
        model = record.open.model_id
        chain = chains.get(model) or Chain(index, head_before(record, continued), gap=model in gaps)
        verdict = chain.follow(record.open, record.digest)
        if verdict is Verdict.VALID:
            valid[record.offset], chains[model] = record, chain
        elif verdict is Verdict.GAP:
            gaps.setdefault(model, gap(record.open, chain.head, record.offset))
        if not chain.gap:
            gaps.pop(model, None)
    return Counted(valid, {model: chain.head for model, chain in chains.items()}, gaps)


# -- where an incomplete log ends -----------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class LogTip:
    """Where a model's log ends, when it may be incomplete (`lethe recover`).

    Attributes
    ----------
    head, offset, version
        Its last commit that counts, that commit's offset (-1 if the log has none), and the newest
        version that the log names up to it (-1 if none).
    highest
        The highest number of any of its records.
    next
        Offset of the first commit that continues the store's, or None.
    """

    head: Head = Head()  # noqa: RUF009 - it is immutable
    offset: int = -1
    version: int = -1
    highest: int = -1
    next: int | None = None

    def lost(self, stored: Head) -> bool:
        """Return whether no fold can bring store and log together."""
        return self.next is None and (
            self.head != stored or self.highest > max(self.head.commit, stored.commit)
        )


def log_tip(records: Sequence[OpenRecord], stored: Head, index: int) -> LogTip:
    """Return where a model's log ends, judged from the store's commit if the log has it.

    Otherwise the log begins with commit 0, or with the first commit that another one continues.
    """
    highest = max((record.number for record in records), default=-1)
    continued = {record.open.prev for record in records}
    stored_record = next((record for record in records if record.digest == stored.digest), None)
    if stored_record is not None:
        versions = [record.open.version for record in records if record.number <= stored.commit]
        version = max((number for number in versions if number is not None), default=-1)
        head, offset = stored, stored_record.offset
    else:
        first = next((r for r in records if r.number == 0 or r.digest in continued), None)
        if first is None:
            return LogTip(highest=highest)
        version, head, offset = -1, head_before(first, continued), -1
    following: int | None = None
    chain = Chain(index, head)
    for record in records:
        if chain.follow(record.open, record.digest) is Verdict.VALID:
            if stored_record is not None and following is None:
                following = record.offset
            offset = record.offset
            version = version if record.open.version is None else record.open.version
    return LogTip(chain.head, offset, version, highest, following)
