"""Pages 3.3 and 3.5 as states: one model from registration to registration, with refreshes.

A request is a letter and a row: `d1` deletes row 1, `i3` inserts row 3, `c2` corrects row 2, `u0`
unregisters. A row is its id, the incarnation that wrote it, and its value. `History` says what each
record means to whoever has read the chain up to it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from tests.proof.model.checker import rule

BASE, NONE = 0, -1


@dataclass(frozen=True, slots=True)
class Rules:
    """The rules of registration, refresh and row changes that can be taken away."""

    ledger_of_log: bool = rule("a registration reads its ledger by a fold to the end of the log")
    ledger_of_prev: bool = rule("a void registration reads the ledger again, it is not re-linked")
    passed_over_added: bool = rule("records passed over still add to the ledger and the index")
    staged_until_void: bool = rule("a staged registration has no time to live until it is void")
    registration_ends_job: bool = rule("registration and unregister end the pending job")
    result_of_registration: bool = rule("a result from below the newest registration is dropped")
    missing_result_ends_job: bool = rule("a missing result ends its job and orders a new one")
    own_features: bool = rule("a swap catches up from the features of the staged generation")
    changes_caught_up: bool = rule("a swap brings in rows changed since, from the live records")
    deferral_orders: bool = rule("a deferral orders a job when none is pending")
    keyed_by_incarnation: bool = rule("row records are keyed by incarnation")
    unknown_in_ledger: bool = rule("unknown ids of a decided deletion stay as tombstones")
    others_answered: bool = rule("a registration of other people answers what was deferred")
    lost_derived: bool = rule("DATA_LOST is worked out at the end of a fold, never stored")


@dataclass(frozen=True, slots=True)
class Bounds:
    """How much may happen.

    Attributes
    ----------
    requests
        See the module.
    rows, file
        Rows at the beginning, and rows in the file of each later `register --replace`.
    expiries
        How often a staged generation may outlive its time to live.
    row_changes_expire
        `lethe.row-changes` may lose the values of what it held.
    other_people
        The file of each later registration is of another namespace: its rows have the same ids, and
        are other people's.
    awaiting
        At first, the arrays have to be made again: deletions are deferred.
    registrations_expire
        A staged registration may go as soon as the rules let it.
    """

    requests: tuple[str, ...] = ("d1",)
    rows: tuple[int, ...] = (1, 2)
    file: tuple[int, ...] = (1, 2)
    appends: int = 4
    rollbacks: int = 2
    expiries: int = 0
    jobs: int = 0
    registrations: int = 0
    deaths: int = 1
    row_changes_expire: bool = False
    other_people: bool = False
    awaiting: bool = False
    registrations_expire: bool = False
    log_length: int = 7

    @property
    def store_intact(self) -> bool:
        """Whether the store keeps all that it is given for as long as it promises to."""
        return not (self.rollbacks or self.expiries or self.row_changes_expire or self.awaiting)


class Row(NamedTuple):
    """A row's features: which row, which incarnation wrote them, which value they have."""

    id: int
    incarnation: str
    value: str


Rows = frozenset[Row]


class Result(NamedTuple):
    """A refresh's result: its job, the record it was made at, and the rows it was made from."""

    job: int
    base: int
    rows: Rows

    def __str__(self) -> str:
        return f"J{self.job}"


class Record(NamedTuple):
    """A commit: what it decides about which request, and what it orders or registers."""

    commit: int
    prev: int
    kind: str
    request: str | Result | None = None
    orders: int | None = None
    rows: tuple[int, ...] = ()
    incarnation: str = ""
    attempt: int = 0


class Meaning(NamedTuple):
    """What the chain up to a record says of the model."""

    registered: bool
    incarnation: str
    live: Rows
    ledger: frozenset[int]
    outcomes: tuple[tuple[str | Result, str], ...]
    deferred: frozenset[str | Result]
    job: int | None


class Store(NamedTuple):
    """What Redis holds of the model; `arrays` None when they cannot be made."""

    head: int
    cursor: int
    records: Rows
    arrays: Rows | None
    awaiting: bool
    lost: bool
    staged: frozenset[Result]
    ledger: frozenset[int]
    decided: frozenset[str | Result]
    registrations: frozenset[tuple[str, Rows]]


class Worker(NamedTuple):
    """What a worker that has folded knows."""

    head: int
    awaiting: bool
    lost: bool
    staged: frozenset[Result]


class Refresh(NamedTuple):
    """A refresh worker at a job: its result, staged or not yet."""

    staged: bool
    result: Result


class Registrar(NamedTuple):
    """`register --replace`: what it does next, and what it has read and sent."""

    phase: str
    at: int
    ledger: frozenset[int] = frozenset()
    rows: tuple[int, ...] = ()
    incarnation: str = ""
    sent: int = NONE


class Budget(NamedTuple):
    """What may still happen."""

    appends: int
    rollbacks: int
    expiries: int
    jobs: int
    registrations: int
    deaths: int


class State(NamedTuple):
    """Everything."""

    log: tuple[int, ...]
    flight: tuple[int, ...]
    store: Store
    backup: Store | None
    workers: tuple[Worker | None, Worker | None]
    registrar: Registrar | None
    refresh: Refresh | None
    completed: frozenset[Result]
    expired: bool
    budget: Budget


class History:
    """Every record that was ever made, and what the chain up to it means."""

    def __init__(self, bounds: Bounds, rules: Rules) -> None:
        self.rules = rules
        self.bounds = bounds
        base = Record(0, NONE, "base")
        rows = frozenset(Row(row, "n0", "a") for row in bounds.rows)
        self._records = [base]
        self._numbers = {base: BASE}
        self._meanings = {
            BASE: Meaning(True, "n0", rows, frozenset(), (), frozenset(), None),
        }
        self._accepted: dict[tuple[int, ...], tuple[int, tuple[bool, ...]]] = {}

    def __getitem__(self, digest: int) -> Record:
        return self._records[digest]

    def append(
        self,
        prev: int,
        kind: str,
        *,
        attempt: int,
        request: str | Result | None = None,
        orders: int | None = None,
        rows: tuple[int, ...] = (),
        incarnation: str = "",
    ) -> int:
        """Make the record that continues `prev`; return its digest."""
        commit = self[prev].commit + 1
        record = Record(commit, prev, kind, request, orders, rows, incarnation, attempt)
        if record not in self._numbers:
            self._numbers[record] = len(self._records)
            self._records.append(record)
        return self._numbers[record]

    def chain(self, head: int) -> list[int]:
        """Return the records from `head` down to the base."""
        chain = []
        while head != NONE:
            chain.append(head)
            head = self[head].prev
        return chain

    def since_registration(self, head: int) -> list[int]:
        """Return the records from `head` down to the newest registration."""
        since = []
        for digest in self.chain(head):
            since.append(digest)
            if self[digest].kind in ("register", "base"):
                break
        return since

    def accepted(self, log: tuple[int, ...]) -> tuple[int, tuple[bool, ...]]:
        """Return the head that a whole log leads to, and which of its records are valid."""
        known = self._accepted.get(log)
        if known is None:
            head, valid = BASE, []
            for digest in log:
                valid.append(self[digest].prev == head)
                head = digest if valid[-1] else head
            known = self._accepted[log] = (head, tuple(valid))
        return known

    def meaning(self, head: int) -> Meaning:
        """Return what the chain up to `head` says of the model."""
        known = self._meanings.get(head)
        if known is None:
            record = self[head]
            known = self._meanings[head] = self._after(self.meaning(record.prev), record)
        return known

    def _after(self, before: Meaning, record: Record) -> Meaning:
        registered, incarnation, live, ledger, outcomes, deferred, job = before
        request = record.request
        if record.kind == "defer" and request is not None:
            job = record.orders if record.orders is not None else job
            return before._replace(deferred=deferred | {request}, job=job)
        if request is not None:
            outcomes = (*outcomes, (request, record.kind))
            deferred -= {request}
        if record.kind == "register":
            incarnation = record.incarnation
            registered = True
            live = frozenset(Row(row, incarnation, "b") for row in record.rows)
            job = None if self.rules.registration_ends_job else job
            if self.bounds.other_people and self.rules.others_answered:
                outcomes += tuple((other, "rejected") for other in sorted(deferred, key=str))
                deferred = frozenset()
        elif record.kind == "unregister":
            outcomes += tuple((other, "rejected") for other in sorted(deferred, key=str))
            registered, live, deferred = False, frozenset(), frozenset()
            job = None if self.rules.registration_ends_job else job
        elif record.kind == "order":
            job = record.orders
        elif record.kind == "gone":
            job = record.orders if self.rules.missing_result_ends_job else job
        elif record.kind == "swap" and isinstance(request, Result):
            job = None if job == request.job else job
        elif record.kind == "delete":
            row = row_of(request)
            if self.rules.unknown_in_ledger or any(each.id == row for each in live):
                ledger |= {row}
            live = frozenset(each for each in live if each.id != row)
        elif record.kind in ("insert", "correct"):
            row = row_of(request)
            written = Row(row, incarnation, f"v{request}")
            live = frozenset(each for each in live if each.id != row) | {written}
        return Meaning(registered, incarnation, live, ledger, outcomes, deferred, job)

    def of_others(self, meaning: Meaning) -> bool:
        """Return whether the model's rows are other people's than those of the base."""
        return self.bounds.other_people and meaning.incarnation != "n0"

    def name(self, digest: int) -> str:
        """Name a record for a trace."""
        record = self[digest]
        about = "" if record.request is None else f"({record.request})"
        rows = list(record.rows) if record.kind == "register" else ""
        orders = f" orders J{record.orders}" if record.orders is not None else ""
        return f"#{record.commit}:{record.kind}{about}{rows}{orders}~{record.attempt}"


def row_of(request: object) -> int:
    """Return the row that a request names."""
    return int(str(request)[1])
