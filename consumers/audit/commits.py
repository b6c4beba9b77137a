"""A model's commits as far as the log retains them, judged by their open part as workers do.

Without the seal key, an audit sees that the chain is dense, linked and signed, and that versions
name its commits. With the key, it compares what was published with what the commits seal.
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
from lethe.engine.store.keys import commit_partition
from lethe.engine.store.state import Head, ModelConfig

Again = Callable[[], Iterable[Record]]
"""Reads the records of a model's commits partition, from its begin to its end when first read."""


@dataclass(frozen=True, slots=True)
class CommitFact:
    """A valid commit: its open part, its digest and its place in the log."""

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
        The model.
    again
        Reads the records once more.
    valid
        The valid commits, by number.
    void
        How many records of the model are void: another writer took their number, or they lie in a
        partition that is not the model's.
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
        """Yield the valid commits in order with their records; with ``only``, just that one."""
        numbers = self.valid if only is None else [only]
        by_offset = {fact.offset: fact for fact in map(self.valid.__getitem__, numbers)}
        for record in self.again():
            known = by_offset.get(record.offset)
            framed = None if known is None else decode_frame(record.value)
            if known is not None and framed is not None and framed.digest == known.digest:
                yield known, framed

    def opened(
        self, seals: SealKeys, config: ModelConfig | None = None, only: int | None = None
    ) -> Iterator[tuple[CommitFact, Commit | LetheError]]:
        """Yield what the commits (or one of them) seal, in order, or why one cannot be opened.

        ``config`` is the model's, for commits before the first that carries one.
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
        """Return how many commits each key signed, and what is wrong with the signatures.

        A signed commit vouches for those before it through their links: commits older than the
        first signature may be unsigned.
        """
        by_key: Counter[str] = Counter()
        faults = Faults()
        first_signed: int | None = None
        for fact, framed in self.framed():
            try:
                by_key[check_signature(framed, trusted)] += 1
                first_signed = fact.number if first_signed is None else first_signed
            except Unauthenticated as error:
                if framed.signature or first_signed is not None:
                    faults.add(f"commit {fact.number} at {fact.place}: {error}")
        if first_signed is None and self.valid and not faults:
            faults.add("no commit is signed although keys are trusted: they may be from anybody")
        return by_key, faults


def read_chain(model_id: str, again: Again, named: Mapping[int, str]) -> CommitChain:
    """Read and judge the commits of a model.

    Parameters
    ----------
    model_id
        The model.
    again
        Reads the records of its commits partition.
    named
        What published versions say: the number of a commit, and the digest of the commit before it.
        Where the log does not reach back to commit 0, the chain begins with a record that a version
        names or that another record continues.
    """
    chain = CommitChain(model_id, again)
    records = [
        (record, framed)
        for record in again()
        if (framed := decode_frame(record.value)) is not None and framed.open.model_id == model_id
    ]
    continued = {framed.open.prev for _, framed in records}
    index = commit_partition(model_id)
    head: Head | None = None
    for record, framed in records:
        part = framed.open
        begins = framed.digest in continued or named.get(part.number) == part.prev
        if head is None and part.number > 0 and begins:
            head = Head(part.number - 1, part.prev)
        match judge(part, head or Head(), index):
            case Verdict.VALID:
                place = f"{record.partition.topic}/{record.partition.index} at offset "
                place += str(record.offset)
                chain.valid[part.number] = CommitFact(part, framed.digest, place, record.offset)
                head = Head(part.number, framed.digest)
                if part.format != FORMAT:
                    detail = f"commit {part.number} has format {part.format}: upgrade Lethe"
                    chain.faults.add(detail)
            case Verdict.VOID:
                chain.void += 1
            case Verdict.GAP:
                chain.faults.add(
                    f"commit {part.number} at offset {record.offset} does not follow commit "
                    f"{(head or Head()).commit}, the newest before it: the log lost commits, or "
                    "another program writes to it"
                )
    return chain
