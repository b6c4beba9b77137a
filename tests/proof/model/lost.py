"""A key that the store loses while all else stays: the ledger, the index, or what waits.

One model, two workers. A request deletes a row, or is told that it was deleted before; one waits
first, and a later commit decides it. A worker looks up what the store has, decides, and appends;
the log takes a record if it continues the newest. Commits are applied by a script; a fold reads the
log from the head on, or from the log's beginning if a key was lost. Keys are lost at any time, the
store goes back, workers die, the beginning of the log expires.

What is checked in every state: no row is deleted twice, and no request decided twice; and if the
log still has everything, one worker alone would now fold to a store that has every entry.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

from tests.proof.model.checker import FAULT, Broken, rule

IDLE, SENT, FOLDING, HALTED = "idle", "sent", "folding", "halted"
DEFERS = "defers"


@dataclass(frozen=True, slots=True)
class Rules:
    """The rules of lost keys that can be taken away."""

    looked_up: bool = rule("who looks up compares the keys with what the head counts")
    applied: bool = rule("the script refuses a commit if a key lacks what the head counts")
    kept: bool = rule("a commit that the head has changes the counts only if no key was lost")
    beginning: bool = rule("a fold after a loss begins where the log begins")
    waiting_again: bool = rule("a commit that the head has restores what waits if a key was lost")
    whole_alone: bool = rule("what waits is not restored once no key is lost")


@dataclass(frozen=True, slots=True)
class Bounds:
    """How much may happen. A request is a name, and whether it waits first."""

    requests: tuple[tuple[str, bool], ...] = (("x1", False), ("x2", False), ("y1", True))
    losses: int = 1
    crashes: int = 0
    rollbacks: int = 0
    expiries: int = 0


class Record(NamedTuple):
    """A commit: its request, and the row that it deletes; or that the request waits."""

    request: str
    deletes: str


class Counts(NamedTuple):
    """How many entries the keys have."""

    ledger: int
    requests: int
    waiting: int


class Store(NamedTuple):
    """What Redis holds; ``head`` is the number of commits that it has."""

    head: int
    counts: Counts
    ledger: frozenset[str]
    requests: frozenset[str]
    waiting: frozenset[str]

    @property
    def whole(self) -> bool:
        """Whether no key lacks what the head counts."""
        return self.counts == self.now

    @property
    def now(self) -> Counts:
        """How many entries the keys have now."""
        return Counts(len(self.ledger), len(self.requests), len(self.waiting))


class Worker(NamedTuple):
    """A worker: in a fold, the number of the next commit to apply; with a record sent, its own."""

    phase: str = IDLE
    next: int = 0


class State(NamedTuple):
    """The log from its beginning (``begin`` of its records have expired), the store, the rest."""

    log: tuple[Record, ...]
    begin: int
    store: Store
    backup: Store
    workers: tuple[Worker, Worker]
    losses: int
    crashes: int
    rollbacks: int
    expiries: int


_EMPTY = Store(0, Counts(0, 0, 0), frozenset(), frozenset(), frozenset())


class LostModel:
    """Two workers, and a store that loses keys."""

    def __init__(self, bounds: Bounds, rules: Rules | None = None) -> None:
        self.bounds = bounds
        self.rules = rules or Rules()

    def initial(self) -> State:
        """The model is registered; nothing else has happened."""
        b = self.bounds
        idle = (Worker(), Worker())
        return State((), 0, _EMPTY, _EMPTY, idle, b.losses, b.crashes, b.rollbacks, b.expiries)

    def steps(self, state: State) -> Iterator[tuple[str, State]]:
        """Yield what may happen next."""
        store = state.store
        if state.losses:
            none: frozenset[str] = frozenset()
            for key, less in (
                ("ledger", store._replace(ledger=none)),
                ("index", store._replace(requests=none)),
                ("waiting", store._replace(waiting=none)),
            ):
                if less != store:
                    after = state._replace(store=less, losses=state.losses - 1)
                    yield f"{FAULT}{key} is lost", after
        if state.rollbacks:
            yield "a backup is taken", state._replace(backup=store)
            back = state._replace(store=state.backup, rollbacks=state.rollbacks - 1)
            yield f"{FAULT}the store goes back", back
        if state.expiries and state.begin < min(store.head, state.backup.head):
            later = state._replace(begin=state.begin + 1, expiries=state.expiries - 1)
            yield f"{FAULT}a commit expires", later
        for number, worker in enumerate(state.workers):
            name = f"W{number + 1}"
            if state.crashes and worker.phase in (SENT, FOLDING):
                dead = _with(state, number, Worker())._replace(crashes=state.crashes - 1)
                yield f"{FAULT}{name} dies", dead
            for label, after in self._work(state, number, worker):
                yield f"{name} {label}", after

    def _folds(self, state: State) -> bool:
        """Return whether the first worker folds, or is about to."""
        behind = state.store.head < len(state.log)
        lost = not state.store.whole and self.rules.looked_up
        return state.workers[0].phase == FOLDING or behind or lost

    def _work(self, state: State, number: int, worker: Worker) -> Iterator[tuple[str, State]]:
        store = state.store
        lost = not store.whole
        if worker.phase == IDLE:
            if store.head < len(state.log) or (lost and self.rules.looked_up):  # as `_folds`
                start = state.begin if lost and self.rules.beginning else store.head
                yield f"folds from {start}", _with(state, number, Worker(FOLDING, start))
            else:
                yield from self._decide(state, number)
        elif worker.phase == SENT:
            yield self._applied(state, number, worker.next, Worker())
        elif worker.phase == FOLDING and worker.next < len(state.log):
            yield self._applied(state, number, worker.next, Worker(FOLDING, worker.next + 1))
        elif worker.phase == FOLDING:
            yield "ends its fold", _with(state, number, Worker(HALTED if lost else IDLE))
        elif worker.phase == HALTED:
            yield "is tried again", _with(state, number, Worker())

    def _decide(self, state: State, number: int) -> Iterator[tuple[str, State]]:
        """Decide by what the store has, and append: the store is at the end of the log."""
        store = state.store
        for request, waits in self.bounds.requests:
            row = request[0]
            if waits and request in store.waiting:
                record = Record(request, row)
            elif request in store.requests:
                continue
            elif waits:
                record = Record(request, DEFERS)
            else:
                record = Record(request, "" if row in store.ledger else row)
            sent = state._replace(log=(*state.log, record))
            yield f"appends {record}", _with(sent, number, Worker(SENT, len(state.log)))

    def _applied(self, state: State, number: int, at: int, done: Worker) -> tuple[str, State]:
        """Run the script of one commit."""
        store, record = state.store, state.log[at]
        repeats, whole = store.head > at, store.whole
        refused = (not whole and self.rules.applied and not repeats) or store.head < at
        if refused:
            return f"is refused commit {at}", _with(state, number, Worker())
        waits = record.deletes == DEFERS
        deleted = frozenset((record.deletes,)) - {"", DEFERS}
        after = store._replace(
            ledger=store.ledger | deleted, requests=store.requests | {record.request}
        )
        again = self.rules.waiting_again and not (whole and self.rules.whole_alone)
        if not repeats or again:
            named = frozenset((record.request,))
            waiting = store.waiting | named if waits else store.waiting - named
            after = after._replace(waiting=waiting)
        if not repeats or whole or not self.rules.kept:
            after = after._replace(counts=after.now)
        after = after._replace(head=max(store.head, at + 1))
        return f"applies commit {at}", _with(state._replace(store=after), number, done)

    def check(self, state: State) -> None:
        """Raise `Broken` unless what the module promises is true of the state."""
        rows = [record.deletes for record in state.log if record.deletes not in ("", DEFERS)]
        if len(rows) != len(set(rows)):
            raise Broken(f"a row is deleted twice: {rows}")
        decided = [record.request for record in state.log if record.deletes != DEFERS]
        if len(decided) != len(set(decided)):
            raise Broken(f"a request is decided twice: {decided}")
        waits = [record.request for record in state.log if record.deletes == DEFERS]
        if len(waits) != len(set(waits)):
            raise Broken(f"a request waits twice: {waits}")
        if state.begin == 0:
            self._check_restored(state)

    def _check_restored(self, state: State) -> None:
        """Let one worker fold alone, and compare the store with what the log says."""
        alone = _with(_with(state, 1, Worker(HALTED)), 0, Worker())
        while alone.workers[0].phase != HALTED and self._folds(alone):
            [(_, alone)] = self._work(alone, 0, alone.workers[0])
        if _lacks(alone):
            raise Broken("a fold does not restore what the log has")


def _lacks(state: State) -> bool:
    """Return whether the store is not what the log says."""
    rows = frozenset(record.deletes for record in state.log) - {"", DEFERS}
    waiting: frozenset[str] = frozenset()
    for record in state.log:
        named = frozenset((record.request,))
        waiting = waiting | named if record.deletes == DEFERS else waiting - named
    index = frozenset(record.request for record in state.log)
    store = state.store
    return (store.ledger, store.requests, store.waiting) != (rows, index, waiting)


def _with(state: State, number: int, worker: Worker) -> State:
    """Put a worker in its place."""
    workers = (worker, state.workers[1]) if number == 0 else (state.workers[0], worker)
    return state._replace(workers=workers)
