"""A model's commits as far as the log retains them: judged on their open part, as workers do.

Whoever has no seal key sees that the chain is dense, linked and signed, and that versions name its
commits. With the key, what was published is compared with what the commits seal.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from lethe.consumers.audit.finding import Faults
from lethe.consumers.commits.commit import Commit
from lethe.consumers.commits.journal import Verdict, judge
from lethe.consumers.commits.record import (
    FORMAT,
    Framed,
    OpenPart,
    check_signature,
    decode_frame,
    open_commit,
)
from lethe.consumers.contract.sealing import SealKeys
from lethe.consumers.contract.signatures import TrustedKeys
from lethe.consumers.log.base import Record
from lethe.engine.errors import LetheError, Unauthenticated
from lethe.engine.store.head import ModelConfig
from lethe.engine.store.partition import commit_partition
from lethe.engine.store.state import Head

Again = Callable[[], Iterable[Record]]
"""Reads the records of a model's commits partition, from where the log begins to where it ended."""


@dataclass(frozen=True, slots=True)
class CommitFact:
    """A commit that counts: its open part, its digest, and where it lies."""

    open: OpenPart
    digest: str
    place: str
    offset: int

    @property
    def number(self) -> int:
        """The commit's number."""
        return self.open.number


@dataclass
class CommitChain:
    """The commits of a model.

    Attributes
    ----------
    model_id
        Whose they are.
    again
        Reads the records once more.
    valid
        Those that count, by number.
    void
        How many records of the model lost, or lie in another model's partition.
    faults
        What is wrong with the chain.
    """

    model_id: str
    again: Again
    valid: dict[int, CommitFact] = field(default_factory=dict)
    void: int = 0
    faults: Faults = field(default_factory=Faults)

    @property
    def first(self) -> CommitFact | None:
        """The oldest that is retained."""
        return self.valid[min(self.valid)] if self.valid else None

    @property
    def last(self) -> CommitFact | None:
        """The newest."""
        return self.valid[max(self.valid)] if self.valid else None

    def framed(self, only: int | None = None) -> Iterator[tuple[CommitFact, Framed]]:
        """Yield the commits that count, in their order, with their records; or one of them."""
        numbers = self.valid if only is None else [only]
        by_offset = {one.offset: one for one in map(self.valid.__getitem__, numbers)}
        for record in self.again():
            fact = by_offset.get(record.offset)
            framed = None if fact is None else decode_frame(record.value)
            if fact is not None and framed is not None and framed.digest == fact.digest:
                yield fact, framed

    def opened(
        self, seals: SealKeys, config: ModelConfig | None = None, only: int | None = None
    ) -> Iterator[tuple[CommitFact, Commit | LetheError]]:
        """Yield what commits (or one of them) seal, in their order; or why one cannot be opened.

        ``config`` is the model's, for commits from before the first that says it anew.
        """
        for fact, framed in self.framed(only):
            try:
                commit = open_commit(framed, seals, None, config)
            except LetheError as error:
                yield fact, error
                continue
            config = commit.meta.config
            yield fact, commit

    def signed(self, trusted: TrustedKeys) -> tuple[Counter[str], Faults]:
        """Return how many commits each key signed, and what is wrong with signatures.

        A signed commit vouches for those before it, by their links: what is older than the first
        signature may be unsigned.
        """
        by_key: Counter[str] = Counter()
        faults = Faults()
        began: int | None = None
        for fact, framed in self.framed():
            try:
                by_key[check_signature(framed, trusted)] += 1
                began = fact.number if began is None else began
            except Unauthenticated as error:
                if framed.signature or began is not None:
                    faults.add(f"commit {fact.number} at {fact.place}: {error}")
        if began is None and self.valid and not faults:
            faults.add("no commit is signed, and keys are trusted: they may be from anybody")
        return by_key, faults


def read_chain(model_id: str, again: Again, named: Mapping[int, str]) -> CommitChain:
    """Read and judge the commits of a model.

    Parameters
    ----------
    model_id
        Whose.
    again
        Reads the records of its commits partition.
    named
        What published versions say: by number of a commit the digest of the one before. Where the
        log does not reach back to commit 0, a record begins the chain that a version names, or that
        another record continues.
    """
    chain = CommitChain(model_id, again)
    mine = [
        (record, framed)
        for record in again()
        if (framed := decode_frame(record.value)) is not None and framed.open.model_id == model_id
    ]
    continued = {framed.open.prev for _, framed in mine}
    index = commit_partition(model_id)
    head: Head | None = None
    for record, framed in mine:
        one = framed.open
        begins = framed.digest in continued or named.get(one.number) == one.prev
        if head is None and one.number > 0 and begins:
            head = Head(one.number - 1, one.prev)
        match judge(one, head or Head(), index):
            case Verdict.VALID:
                place = f"{record.partition.topic}/{record.partition.index} at offset "
                place += str(record.offset)
                chain.valid[one.number] = CommitFact(one, framed.digest, place, record.offset)
                head = Head(one.number, framed.digest)
                if one.format != FORMAT:
                    chain.faults.add(f"commit {one.number} is of format {one.format}: upgrade")
            case Verdict.VOID:
                chain.void += 1
            case Verdict.GAP:
                chain.faults.add(
                    f"commit {one.number} at offset {record.offset} does not continue the newest "
                    f"before it, {(head or Head()).commit}: the log lost commits, or somebody else "
                    "writes to it"
                )
    return chain
