"""A model's commits as far as the log retains them, judged by their open part as workers do.

The auditor has its own chain and opener, deliberately separate from those of folds: a mistake there
must show here.

Without the seal key, an audit sees that the chain is dense, linked and signed, and that versions
name its commits. With the key, it compares what was published with what the commits seal.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from redis.exceptions import NoPermissionError

from lethe.consumers.audit.published.finding import Faults
from lethe.consumers.audit.published.history import History
from lethe.consumers.commits.commit import Commit
from lethe.consumers.commits.frame import FORMAT, Framed, decode_frame
from lethe.consumers.commits.journal import Verdict, judge
from lethe.consumers.commits.record import open_commit
from lethe.consumers.commits.recovery.counted import OpenRecord, head_before, read_open
from lethe.consumers.contract import topics
from lethe.consumers.contract.receipt import Receipt
from lethe.consumers.contract.sealing import SealKeys, read_seal_keys, stored_seal_keys
from lethe.consumers.log.base import Partition, Reader
from lethe.consumers.log.scan import scan
from lethe.consumers.service.connect import Runtime
from lethe.consumers.service.telemetry.progress import Progress, no_progress
from lethe.engine.errors import LetheError, StoreUnavailable
from lethe.engine.store.layout.config import ModelConfig
from lethe.engine.store.layout.keys import commit_partition
from lethe.engine.store.layout.state import Head, ModelState
from lethe.engine.store.store import ModelStore


@dataclass
class CommitChain:
    """The commits of a model.

    Attributes
    ----------
    reader, partition, progress
        Read the records once more; the partition is None if the topic does not exist.
    valid
        The valid commits, by number.
    void
        How many records of the model are void: another writer took their number, or they lie in a
        partition that is not the model's.
    faults
        What is wrong with the chain.
    """

    reader: Reader
    partition: Partition | None
    progress: Progress = no_progress
    valid: dict[int, OpenRecord] = field(default_factory=dict)
    void: int = 0
    faults: Faults = field(default_factory=Faults)

    @property
    def first(self) -> OpenRecord | None:
        """The oldest that is retained."""
        return self.valid[min(self.valid)] if self.valid else None

    @property
    def last(self) -> OpenRecord | None:
        """The newest."""
        return self.valid[max(self.valid)] if self.valid else None

    def framed(self, only: OpenRecord | None = None) -> Iterator[tuple[OpenRecord, Framed]]:
        """Yield the valid commits in order with their records; with ``only``, just that one."""
        wanted = list(self.valid.values()) if only is None else [only]
        by_offset = {known.offset: known for known in wanted}
        if self.partition is None or not by_offset:
            return
        begin, end = min(by_offset), max(by_offset) + 1
        for record in scan(self.reader, self.partition, begin, end, self.progress):
            known = by_offset.get(record.offset)
            framed = None if known is None else decode_frame(record.value)
            if known is not None and framed is not None and framed.digest == known.digest:
                yield known, framed


def read_chain(
    reader: Reader,
    history: History,
    state: ModelState | None,
    progress: Progress = no_progress,
) -> CommitChain:
    """Read and judge the commits of the model that a history is about.

    Where the log does not reach back to commit 0, the chain begins with a record that a version or
    the state names, or that another record continues; one before it counts as void.
    """
    index = commit_partition(history.model_id)
    partitions = (one for one in reader.partitions(topics.COMMITS) if one.index == index)
    chain = CommitChain(reader, next(partitions, None), progress)
    if chain.partition is None:
        return chain
    bounds = reader.bounds(chain.partition)
    records = [
        record
        for record in read_open(reader, chain.partition, bounds.begin, bounds.end, progress)
        if record.open.model_id == history.model_id
    ]
    events = (fact.event for fact in history.versions.values())
    named = {event.commit: event.commit_prev for event in events}
    continued = {record.open.prev for record in records}
    continued |= {one.digest for one in records if named.get(one.number) == one.open.prev}
    continued |= set() if state is None else {state.head.digest}
    head: Head | None = None
    for record in records:
        before = head_before(record, continued) if head is None else head
        if head is None and before.commit < 0 < min(record.number, bounds.begin):
            chain.void += 1  # nobody can tell: what it says it continues has expired
            continue
        match judge(record.open, before, index):
            case Verdict.VALID:
                chain.valid[record.number] = record
                head = Head(record.number, record.digest)
                if record.open.format != FORMAT:
                    chain.faults.add(
                        f"commit {record.number} has format {record.open.format}, and this "
                        f"program reads {FORMAT}"
                    )
            case Verdict.VOID:
                chain.void += 1
            case Verdict.GAP:
                chain.faults.add(
                    f"commit {record.number} at offset {record.offset} does not follow commit "
                    f"{before.commit}, the newest before it: the log lost commits, or another "
                    "program writes to it"
                )
    return chain


# -- what commits seal --------------------------------------------------------------------------


@dataclass
class CommitOpener:
    """Opens a model's commits in order.

    ``config`` is the model's; commits before the first that carries one are opened with it.
    """

    seals: SealKeys
    config: ModelConfig | None = None

    @classmethod
    def of(cls, seals: SealKeys | None, state: ModelState | None) -> CommitOpener | None:
        """Return what opens the commits of a state's model; None without keys."""
        config = None if state is None else state.meta.config
        return None if seals is None else cls(seals, config)

    def open(self, framed: Framed) -> Commit | LetheError:
        """Return what a commit seals, or why it cannot be opened."""
        try:
            commit = open_commit(framed, self.seals, None, self.config)
        except LetheError as error:
            return error
        self.config = commit.meta.config
        return commit


def seals_of_auditor(runtime: Runtime, store: ModelStore) -> SealKeys | None:
    """Return the keys that open commits, from the configured file or else from the store.

    None: there are none, or this user may not read those of the store. Without them an audit
    checks less.

    Raises
    ------
    InvalidData
        The configured file cannot be used.
    """
    path = runtime.settings.seal_key_file
    if path is not None:
        return read_seal_keys(path)
    try:
        return stored_seal_keys(store, make=False)
    except StoreUnavailable as error:
        if isinstance(error.__cause__, NoPermissionError):
            return None
        raise


@dataclass(frozen=True, slots=True)
class RequestCommit:
    """The commit that processed a request; ``commit`` None: it cannot be opened here."""

    record: OpenRecord
    commit: Commit | None


def commit_of(
    reader: Reader,
    history: History,
    state: ModelState | None,
    receipt: Receipt,
    value: bytes,
    opener: CommitOpener | None,
) -> RequestCommit | None:
    """Return the commit that holds a receipt (``value``: its bytes); None if it is not known.

    A version names the commit that made it. Where a request made no version, only the sealed
    content of the commits tells.
    """
    chain = read_chain(reader, history, state)
    version = None if receipt.version is None else history.versions.get(receipt.version)
    named: OpenRecord | None = None
    if version is not None and receipt.request_id in version.event.request_ids:
        named = chain.valid.get(version.event.commit)
    if opener is not None:
        for record, framed in chain.framed(named):
            commit = opener.open(framed)
            if isinstance(commit, Commit) and any(one.value == value for one in commit.answers):
                return RequestCommit(record, commit)
    return None if named is None else RequestCommit(named, None)
