"""Appending commits, and judging which records of ``lethe.commits`` count.

Every reader judges alike, on the open part alone. A record counts if it is in its model's partition
and continues the model's newest commit, that is, has the next number and names its digest. A record
whose number is not above the newest is *void*: its writer came second and lost, and it is skipped.
If a number is ahead, or next but with another predecessor, the log has lost something: the model
halts.

So an append needs no lock, lease or epoch. A writer knows the *tail* of the partition, and wins if
what the log acknowledges continues it. If not, somebody else has written too: the partition is read
again (`consumers.commits.recovery.fold`), and what did not win is decided again.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum

from lethe.consumers.commits.commit import Commit, LoggedCommit
from lethe.consumers.commits.frame import MAX_RECORD_BYTES, Framed, OpenPart, decode_frame
from lethe.consumers.commits.record import encode
from lethe.consumers.contract import topics
from lethe.consumers.contract.sealing import SealKeys
from lethe.consumers.contract.signatures import Signer
from lethe.consumers.log.base import Appended, Flush, Message, Partition, Producer, Reader, Record
from lethe.consumers.log.kept import Kept, check_kept
from lethe.consumers.log.scan import scan
from lethe.engine.errors import CorruptState, FormatTooOld, LogUnavailable
from lethe.engine.store.apply import Place
from lethe.engine.store.layout.keys import COMMIT_PARTITIONS, commit_partition
from lethe.engine.store.layout.state import Head

ROOM_BYTES = 16 << 10
"""Part of a message that is left for its key and for what the log adds to it."""

YIELD_SECONDS = 0.05
"""A winner that saw a rival's void record waits up to this long before its next append for that
model; otherwise the slower of two owners would never win (docs/model.md)."""


class LogGap(CorruptState):
    """A commit is missing from the log: it lost records, or somebody else wrote to it."""

    code = "LOG_GAP"


class CommitTooLarge(CorruptState):
    """A commit does not fit into a message."""

    code = "COMMIT_TOO_LARGE"

    def __init__(self, model_id: str, message: str) -> None:
        super().__init__(message)
        self.model_id = model_id


class Verdict(Enum):
    """How a record relates to its model's newest commit."""

    VALID = "valid"
    VOID = "void"
    GAP = "gap"


def judge(part: OpenPart, head: Head, index: int, *, gap: bool = False) -> Verdict:
    """Judge a record of commits partition ``index`` against its model's newest commit.

    ``gap``: whether an earlier record was judged to lie behind a gap. Then only a commit with
    ``skips`` counts, which shows that a person has accepted what is missing: an append that was on
    its way must not end the gap.
    """
    if commit_partition(part.model_id) != index or part.number <= head.commit:
        return Verdict.VOID
    follows = part.skips or (part.number == head.commit + 1 and not gap)
    return Verdict.VALID if follows and part.prev == head.digest else Verdict.GAP


def gap(part: OpenPart, head: Head, offset: int) -> LogGap:
    """Return the error of a model whose next commit is missing."""
    return LogGap(
        f"model {part.model_id!r}: commit {part.number} at offset {offset} of {topics.COMMITS} "
        f"does not continue commit {head.commit}, the newest that is known: the log lost records, "
        "or somebody else writes to it. Restore it, or run `lethe recover`"
    )


@dataclass(frozen=True, slots=True)
class Tail:
    """The end of a commits partition, as known to a process that has read or written it.

    Attributes
    ----------
    partition
        Includes the topic's id: a topic that is made again is another one.
    offset
        Where the next record will be.
    last_digest, epoch
        Digest of the last record (empty if it is not a commit), and its leader epoch.
    """

    partition: Partition
    offset: int
    last_digest: str = ""
    epoch: int = -1


@dataclass(slots=True)
class Followed:
    """A commits partition that was read to its end: all that is needed to append to it.

    Attributes
    ----------
    tail
        Its end.
    heads
        Newest commit of each model; a model that is absent has none.
    valid_end
        End of the last valid record.
    model_ends
        By model, the end of its own last valid record.
    """

    tail: Tail
    heads: dict[str, Head] = field(default_factory=dict)
    valid_end: int = 0
    model_ends: dict[str, int] = field(default_factory=dict)

    def take_place(self, model_id: str, offset: int, epoch: int = -1) -> Place:
        """Return the place of a valid record, and take it as the last one."""
        place = Place(offset, epoch, self.valid_end, self.model_ends.get(model_id, self.valid_end))
        self.valid_end = self.model_ends[model_id] = offset + 1
        return place


@dataclass(frozen=True, slots=True)
class Appending:
    """Commits that were sent, but are not acknowledged.

    Attributes
    ----------
    flush
        What to wait for; None if nothing was sent.
    sent
        The commits with their digests, in the order of sending.
    overtaken
        Commits that were not sent, because they no longer continue the newest known ones.
    """

    flush: Flush | None
    sent: Sequence[tuple[Commit, str]]
    overtaken: Sequence[Commit]


def commit_partitions(reader: Reader) -> Sequence[Partition]:
    """Return the partitions of ``lethe.commits`` that are in use; any beyond them are ignored.

    Raises
    ------
    LogUnavailable
        The topic does not exist.
    FormatTooOld
        It has fewer partitions than the format requires.
    """
    partitions = reader.partitions(topics.COMMITS)
    if not partitions:
        raise LogUnavailable(f"topic {topics.COMMITS} does not exist: `lethe work` creates it")
    if len(partitions) < COMMIT_PARTITIONS:
        raise FormatTooOld(
            f"topic {topics.COMMITS} has {len(partitions)} partitions and needs "
            f"{COMMIT_PARTITIONS}: "
            "create it anew before the first model is registered, or add partitions to it"
        )
    return partitions[:COMMIT_PARTITIONS]


def read_opening(reader: Reader) -> dict[str, int]:
    """Return where each partition of requests ends now: deletions, and changes of rows.

    To be read after a registration's first commit was acknowledged: any request below was for a
    model that was not registered, for everybody and for ever.
    """
    partitions = [*reader.partitions(topics.DELETIONS), *reader.partitions(topics.ROW_CHANGES)]
    return {str(partition): end for partition, end in reader.ends(partitions).items()}


def read_records(
    reader: Reader, partition: Partition, start: int, end: int
) -> Iterator[tuple[Record, Framed | None]]:
    """Yield the records from ``start`` up to ``end`` with their parts; None if not a commit.

    Raises
    ------
    LogUnavailable
        The log does not return them.
    """
    for record in scan(reader, partition, start, end):
        yield record, decode_frame(record.value)


class Journal:
    """Appends commits to the partitions that it follows; one thread uses it.

    Parameters
    ----------
    producer
        What it appends with.
    seals, signer
        What commits are sealed and signed with.
    sleep
        Waits for a number of seconds.
    """

    def __init__(
        self,
        producer: Producer,
        seals: SealKeys,
        signer: Callable[[], Signer | None],
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._producer = producer
        self._seals = seals
        self._signer = signer
        self._sleep = sleep
        self._followed: dict[int, Followed] = {}
        self._contested: set[str] = set()
        self._sent_digests: dict[str, str] = {}

    def follow(self, index: int, followed: Followed) -> None:
        """Follow a partition that was read to its end."""
        self._followed[index] = followed

    def followed(self, index: int) -> Followed | None:
        """Return a partition as it is followed, or None if it is not."""
        return self._followed.get(index)

    def tails(self) -> Mapping[int, Tail]:
        """Return the ends of all partitions that are followed."""
        return {index: followed.tail for index, followed in self._followed.items()}

    def forget(self, index: int | None = None) -> None:
        """Forget a partition, or all: they must be read again before anything is appended."""
        if index is None:
            self._followed.clear()
        else:
            self._followed.pop(index, None)

    def append(self, commits: Sequence[Commit]) -> list[LoggedCommit]:
        """Append commits of different models, all at once, and return those that won.

        `begin` and `finish` in one, for registration and recovery; a worker's step 6 calls the two.

        The partitions of the others are forgotten: fold them, and decide again. A commit that no
        longer continues the newest known commit is not sent at all.

        Raises
        ------
        CommitTooLarge
            A commit does not fit into a message; nothing was sent.
        LogUnavailable
            The outcome is unknown: fold everything.
        """
        return self.finish(self.begin(commits))

    def begin(self, commits: Sequence[Commit]) -> Appending:
        """Send commits as `append` does, without waiting; `finish` must follow.

        Raises
        ------
        CommitTooLarge, LogUnavailable
            As `append`.
        """
        continuing: list[Commit] = []
        overtaken: list[Commit] = []
        for commit in commits:
            followed = self._followed.get(commit_partition(commit.model_id))
            newest = None if followed is None else followed.heads.get(commit.model_id, Head())
            before = Head(commit.number - 1, commit.prev)
            continues = newest is not None and (commit.skips or newest == before)
            (continuing if continues else overtaken).append(commit)
        if not continuing:
            return Appending(None, [], overtaken)
        contested = self._contested.intersection(commit.model_id for commit in continuing)
        if contested:
            self._contested -= contested
            self._sleep(random.uniform(0.0, YIELD_SECONDS))  # noqa: S311 - not a secret
        signer = self._signer()
        sent: list[tuple[Commit, str]] = []
        messages: list[Message] = []
        for commit in continuing:
            value, digest = encode(commit, self._seals, signer)
            messages.append(_message(commit, value))
            sent.append((commit, digest))
        return Appending(self._producer.begin(messages), sent, overtaken)

    def finish(self, appending: Appending) -> list[LoggedCommit]:
        """Wait for what was sent, and return the commits that won, as `append` does.

        Raises
        ------
        LogUnavailable
            The outcome is unknown: fold everything.
        """
        won: list[LoggedCommit] = []
        if appending.flush is not None:
            by_partition: dict[int, list[tuple[Appended, Commit, str]]] = {}
            appended = appending.flush.wait()
            for acknowledgement, (commit, digest) in zip(appended, appending.sent, strict=True):
                index = commit_partition(commit.model_id)
                by_partition.setdefault(index, []).append((acknowledgement, commit, digest))
                self._sent_digests[commit.model_id] = digest
            for index, appends in by_partition.items():
                won += self._won(index, appends)
        for commit in appending.overtaken:
            self.forget(commit_partition(commit.model_id))
        return won

    def note_rival(self, model_id: str) -> None:
        """Note that a rival's void record lies beside a commit that has won after all, if it has.

        Then the next append for the model waits a little. Call this once its partition was folded.
        """
        followed = self._followed.get(commit_partition(model_id))
        head = None if followed is None else followed.heads.get(model_id)
        if head is not None and head.digest == self._sent_digests.get(model_id):
            self._contested.add(model_id)

    def _won(self, index: int, appends: list[tuple[Appended, Commit, str]]) -> list[LoggedCommit]:
        """Return the commits of one partition, logged, if they continue its tail; else none."""
        followed = self._followed[index]
        tail = followed.tail
        offsets = [acknowledgement.offset for acknowledgement, _, _ in appends]
        topic_ids = {acknowledgement.partition.topic_id for acknowledgement, _, _ in appends}
        epochs = {
            -1 if acknowledgement.leader_epoch is None else acknowledgement.leader_epoch
            for acknowledgement, _, _ in appends
        }
        epoch = max(epochs)
        expected = range(tail.offset, tail.offset + len(appends))
        same_leader = -1 in (epoch, tail.epoch) or epochs == {tail.epoch}
        same_topic = topic_ids == {tail.partition.topic_id}
        if not (same_leader and same_topic and set(offsets) == set(expected)):
            del self._followed[index]
            return []
        logged: list[LoggedCommit] = []
        for _, commit, digest in sorted(appends, key=lambda append: append[0].offset or 0):
            offset = tail.offset + len(logged)
            place = followed.take_place(commit.model_id, offset, epoch)
            followed.heads[commit.model_id] = Head(commit.number, digest)
            followed.tail = replace(
                followed.tail, offset=offset + 1, last_digest=digest, epoch=max(epoch, tail.epoch)
            )
            logged.append(LoggedCommit(commit, digest, self._seals.current, place))
        return logged


def _message(commit: Commit, value: bytes) -> Message:
    if len(value) > MAX_RECORD_BYTES - ROOM_BYTES:
        raise CommitTooLarge(
            commit.model_id,
            f"model {commit.model_id!r}: a commit of {len(value):,} bytes does not fit into a "
            f"message of {topics.COMMITS}; send fewer rows in one request, or register it again "
            "with fewer features",
        )
    index = commit_partition(commit.model_id)
    return Message(topics.COMMITS, commit.model_id.encode(), value, partition=index)


def check_tail(reader: Reader, tail: Tail, end: int) -> None:
    """Check that a partition still has what it had: the record below the tail is the same.

    Raises
    ------
    LogReset
        The partition ends before the tail, or another record lies below it.
    """
    advice = "the log lost commits. Restore it, or run `lethe recover` for each of its models"
    kept = Kept(tail.partition, tail.offset, tail.last_digest)
    check_kept(reader, kept, end, advice, _digest_of)


def tail_of(reader: Reader, partition: Partition, offset: int) -> Tail:
    """Return a partition's tail at an offset, with what is known of the record below."""
    below = reader.record_at(partition, offset - 1)
    if below is None:
        return Tail(partition, offset)
    epoch = -1 if below.leader_epoch is None else below.leader_epoch
    return Tail(partition, offset, _digest_of(below), epoch)


def _digest_of(record: Record) -> str:
    framed = decode_frame(record.value)
    return "" if framed is None else framed.digest
