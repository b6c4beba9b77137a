"""A log that loses what it acknowledged (3.2 step 6, 3.3 last rows), as states.

A place in the log is four parts: topic, offset, leader epoch, and the record below. A *checkpoint*
is what `lethe recover` appends: `prev` is the last valid record of the log, `names` the head of the
store, `common` the last record that the log and the store's chain share.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from tests.proof.model.checker import rule

BASE, NONE = 0, -1


@dataclass(frozen=True, slots=True)
class Rules:
    """The rules of leader epochs and of `recover` that can be taken away."""

    topic_compared: bool = rule("an acknowledgement of another topic id does not continue the tail")
    epoch_compared: bool = rule("an acknowledgement of another epoch does not continue the tail")
    digest_compared: bool = rule("the record below a tail or a cursor is compared")
    head_placed: bool = rule("the head carries the place of its record, and a fold compares it")
    ahead_halts: bool = rule("a record that is ahead of the head halts the model")
    gap_applied: bool = rule("a fold applies what counts before a gap, and halts then")
    applied_first: bool = rule("a record is published after the store has taken it")
    same_digest: bool = rule("already there: the head is the record, or descends from it as read")
    recover_fences: bool = rule("recover renews the arrays id when it reads, every apply compares")
    moves_compared: bool = rule("the published cursor is not moved by who read before recover did")
    published_asked: bool = rule("recover is refused when more is published than the store knows")
    versions_asked: bool = rule("a fold halts when more is published than its head knows")
    branch_dropped: bool = rule("records between a checkpoint's common record and itself are dead")
    receipts_carried: bool = rule("a checkpoint carries the receipts of what the log has lost")


@dataclass(frozen=True, slots=True)
class Bounds:
    """How much may happen.

    Attributes
    ----------
    losses
        How often the log loses its last acknowledged record, under a new leader.
    elections
        How often a leader changes and nothing is lost.
    remade
        How often the topic is deleted and made again.
    forged
        How often somebody else writes a record that is far ahead.
    recoveries
        How often a person runs `lethe recover`.
    cursor_lags
        The apply cursor may stay behind: another model's record below is not applied yet.
    """

    requests: tuple[str, ...] = ("r1", "r2", "r3")
    appends: int = 3
    crashes: int = 0
    losses: int = 1
    elections: int = 0
    remade: int = 0
    rollbacks: int = 0
    forged: int = 0
    recoveries: int = 1
    log_length: int = 6
    cursor_lags: bool = False


class Place(NamedTuple):
    """A place in a log: everything below `offset`, of which `below` is the last record."""

    topic: int = 0
    offset: int = 0
    epoch: int = 0
    below: int = NONE


class Log(NamedTuple):
    """One partition: records, each with the epoch of the leader that took it."""

    topic: int = 0
    epoch: int = 0
    records: tuple[int, ...] = ()
    epochs: tuple[int, ...] = ()

    def append(self, digest: int) -> Log:
        """Take a record."""
        records, epochs = (*self.records, digest), (*self.epochs, self.epoch)
        return self._replace(records=records, epochs=epochs)

    def place(self, offset: int) -> Place:
        """Return the place at an offset."""
        if not offset:
            return Place(self.topic, 0, 0, NONE)
        return Place(self.topic, offset, self.epochs[offset - 1], self.records[offset - 1])

    def end(self) -> Place:
        """Return the end, with the epoch of the leader that would take the next record."""
        return self.place(len(self.records))._replace(epoch=self.epoch)


class Record(NamedTuple):
    """A commit, or a checkpoint if `names` is not `NONE`."""

    commit: int
    prev: int
    request: str
    writer: int
    attempt: int
    names: int = NONE
    common: int = NONE


class Store(NamedTuple):
    """What Redis holds: the head and the place behind it; `fence` stands for the arrays id."""

    head: int = BASE
    at: Place = Place()
    applied: Place = Place()
    published: Place = Place()
    fence: int = 0


class Publication(NamedTuple):
    """One flush: records to send, and the places that it leads from and to."""

    records: tuple[int, ...]
    start: int
    end: Place
    fence: int


class Worker(NamedTuple):
    """A worker: empty, idle, sent, applying or halted.

    `todo` are the places behind the valid records to apply; if it `halts`, a gap follows them.
    `valid_end` is the end of the last
    valid record that it knows, at or below its tail.
    """

    phase: str = "empty"
    head: int = BASE
    tail: Place = Place()
    valid_end: int = 0
    fence: int = 0
    sent: int = NONE
    todo: tuple[Place, ...] = ()
    covered: int = 0
    folding: bool = False
    halts: bool = False
    queue: Publication | None = None


class Budget(NamedTuple):
    """What may still happen."""

    appends: int
    crashes: int
    losses: int
    elections: int
    remade: int
    rollbacks: int
    forged: int
    recoveries: int


class State(NamedTuple):
    """Everything.

    `acks` are the acknowledgements: of which record, and the topic, offset and epoch that the
    leader gave it. `recover` is the checkpoint on its way. `clean` says that a valid checkpoint
    lies in the log and that nothing went wrong since it landed.
    """

    log: Log
    flight: tuple[int, ...]
    acks: tuple[tuple[int, Place], ...]
    store: Store
    backup: Store
    workers: tuple[Worker, Worker]
    published: frozenset[tuple[str, int]]
    recover: int
    clean: bool
    budget: Budget


class History:
    """Every record that was ever made, and what the chain up to it decides."""

    def __init__(self, rules: Rules) -> None:
        self.rules = rules
        base = Record(0, NONE, "", NONE, NONE)
        self._records = [base]
        self._numbers = {base: BASE}
        self._chains: dict[int, tuple[int, ...]] = {BASE: ()}

    def __getitem__(self, digest: int) -> Record:
        return self._records[digest]

    def add(self, record: Record) -> int:
        """Make a record; return its digest."""
        if record not in self._numbers:
            self._numbers[record] = len(self._records)
            self._records.append(record)
        return self._numbers[record]

    def chain(self, head: int) -> tuple[int, ...]:
        """Return the records that count, from the base, without it, to `head`.

        Below a checkpoint that is the chain of the store which it names: what the log has between
        the common record and the checkpoint is a branch that nobody may act on.
        """
        known = self._chains.get(head)
        if known is None:
            record = self[head]
            named = record.names != NONE and self.rules.branch_dropped
            below = self.chain(record.names if named else record.prev)
            known = self._chains[head] = (*below, head)
        return known

    def since_checkpoint(self, head: int) -> tuple[int, ...]:
        """Return the records that the log must have: from the newest checkpoint on."""
        chain = self.chain(head)
        checkpoints = [at for at, digest in enumerate(chain) if self[digest].names != NONE]
        return chain[checkpoints[-1] :] if checkpoints else chain

    def outcomes(self, digest: int) -> list[tuple[str, int]]:
        """Return what is published of a record: of a checkpoint, what the log has lost."""
        record = self[digest]
        if record.names == NONE:
            return [(record.request, digest)]
        if not self.rules.receipts_carried:
            return []
        shared = self.chain(record.common)
        lost = [each for each in self.chain(record.names) if each not in shared]
        return [outcome for each in lost for outcome in self.outcomes(each)]

    def decided(self, head: int) -> set[tuple[str, int]]:
        """Return every outcome of the chain to `head`."""
        return {
            (self[digest].request, digest)
            for digest in self.chain(head)
            if self[digest].names == NONE
        }

    def name(self, digest: int) -> str:
        """Name a record for a trace."""
        record = self[digest]
        if record.names != NONE:
            return f"K{record.commit}(after {record.prev}, names {self.name(record.names)})"
        if record.prev == NONE:
            return "A0"
        return f"A{record.commit}:{record.request}/W{record.writer + 1}#{record.attempt}"
