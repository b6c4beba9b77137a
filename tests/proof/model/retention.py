"""Commits expire (3.1, 3.3): a store that is too old, and a store that was wiped.

One model, two workers, a log whose oldest records go. A record goes only after somebody folded past
it and published it: retention is days. The store goes back to a backup of any age, or is wiped;
then only `register --replace` leads on. It reads what is left of the log, without a base: it knows
the newest record that published bytes name, and judges from there.

What is checked in every state: the store's head and the `prev` of a registration are accepted
history, by the whole log that nobody can read any more; a row whose deletion is retained is not
live; and a store that never went back is never called too old.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

from tests.proof.model.checker import FAULT, Broken, rule
from tests.proof.model.journal import NONE, Journal, Log

_FILE = ("1", "2")
_REGISTERS = "register"


@dataclass(frozen=True, slots=True)
class Rules:
    """The rules of retention that can be taken away."""

    too_old_seen: bool = rule("STORE_TOO_OLD: a cursor below the log's first record halts")
    voids_passed: bool = rule("at the end of a fold the apply cursor passes void records, too")
    anchor_needed: bool = rule("without a base a record counts if it is named or continued")
    digest_published: bool = rule("what is published names the digest of its commit")
    ledger_retained: bool = rule("--replace takes its ledger from every commit that is left")


@dataclass(frozen=True, slots=True)
class Bounds:
    """How much may happen."""

    appends: int = 3
    expiries: int = 2
    rollbacks: int = 1
    wipes: int = 1
    registrations: int = 1
    log_length: int = 5


class Store(NamedTuple):
    """The head and the apply cursor; a store that was wiped has neither."""

    head: int = 0
    applied: int = 0


class Registrar(NamedTuple):
    """`register --replace` after its append."""

    sent: int
    rows: str


class State(NamedTuple):
    """Everything; see the module.

    `first` is the offset of the oldest record left, `folded` the log's length at the last fold,
    `intact` whether the store never went back, `memory` the workers' heads.
    """

    log: Log
    first: int
    folded: int
    flight: tuple[int, ...]
    store: Store | None
    backup: Store
    intact: bool
    memory: tuple[int, int]
    published: int
    registrar: Registrar | None
    appends: int
    expiries: int
    rollbacks: int
    wipes: int
    registrations: int


class RetentionModel:
    """A log that forgets its beginning."""

    def __init__(self, bounds: Bounds, rules: Rules | None = None) -> None:
        self.bounds = bounds
        self.rules = rules or Rules()
        self.journal = Journal(1)

    def initial(self) -> State:
        """The model is registered with every row of the file."""
        bounds = self.bounds
        return State(
            log=(),
            first=0,
            folded=0,
            flight=(),
            store=Store(),
            backup=Store(),
            intact=True,
            memory=(0, 0),
            published=0,
            registrar=None,
            appends=bounds.appends,
            expiries=bounds.expiries,
            rollbacks=bounds.rollbacks,
            wipes=bounds.wipes,
            registrations=bounds.registrations,
        )

    def steps(self, state: State) -> Iterator[tuple[str, State]]:
        """Yield what may happen next."""
        for digest in state.flight if len(state.log) < self.bounds.log_length else ():
            flight = tuple(other for other in state.flight if other != digest)
            landed = state._replace(log=(*state.log, digest), flight=flight)
            yield f"{self.journal.name(digest)} lands at {len(state.log)}", landed
        yield from self._faults(state)
        for number in (0, 1):
            yield from self._work(state, number)
        yield from self._register(state)

    def _faults(self, state: State) -> Iterator[tuple[str, State]]:
        """The oldest record expires; the store goes back or is wiped."""
        if state.expiries and self._may_expire(state):
            less = state._replace(first=state.first + 1, expiries=state.expiries - 1)
            yield f"{FAULT}{self.journal.name(state.log[state.first])} expires", less
        if state.rollbacks and state.store is not None and state.backup != state.store:
            left = state.rollbacks - 1
            back = state._replace(store=state.backup, rollbacks=left, intact=False)
            yield f"{FAULT}the store goes back", back
            yield "a backup is taken", state._replace(backup=state.store)
        if state.store is not None and state.wipes:
            wiped = state._replace(store=None, wipes=state.wipes - 1, intact=False)
            yield f"{FAULT}the store is wiped", wiped

    def _may_expire(self, state: State) -> bool:
        """Whether the oldest record was folded and, if valid, published."""
        if state.first >= min(len(state.log), state.folded):
            return False
        oldest = state.log[state.first]
        valid = self.journal.accepted(state.log)[1][state.first]
        return not valid or self.journal.descends(oldest, state.published)

    def _work(self, state: State, number: int) -> Iterator[tuple[str, State]]:
        """Fold to the end and publish; append a deletion to the head in memory."""
        name, store, head = f"W{number + 1}", state.store, state.memory[number]
        folded = None if store is None else self._fold(state, store)
        if folded is not None and (folded != store or head != folded.head):
            newest = state.published
            if self.journal[folded.head].commit > self.journal[newest].commit:
                newest = folded.head
            after = _with(state, number, folded.head)._replace(
                store=folded, published=newest, folded=len(state.log)
            )
            yield f"{name} folds to {self.journal.name(folded.head)} and publishes", after
        if not state.appends:
            return
        for row in sorted(self._live(head)):
            digest = self.journal.append(head, row, number, state.appends)
            flight = tuple(sorted((*state.flight, digest)))
            after = state._replace(flight=flight, appends=state.appends - 1)
            yield f"{name} appends {self.journal.name(digest)}", after

    def _fold(self, state: State, store: Store) -> Store | None:
        """Return what a fold makes of the store; None: the model halts."""
        if store.applied < state.first and self.rules.too_old_seen:
            return None
        head, applied = store
        for offset in range(max(store.applied, state.first), len(state.log)):
            record = self.journal[state.log[offset]]
            if record.prev == head:
                head, applied = state.log[offset], offset + 1
            elif record.commit > self.journal[head].commit:
                return None
        return Store(head, len(state.log) if self.rules.voids_passed else applied)

    def _live(self, head: int) -> set[str]:
        """Return the rows that the chain to a head leaves live."""
        live = set(_FILE)
        for request in self.journal.decided(head):
            if request.startswith(_REGISTERS):
                live = set(request.removeprefix(_REGISTERS))
            else:
                live.discard(request)
        return live

    def _register(self, state: State) -> Iterator[tuple[str, State]]:
        """`register --replace` for a store that is too old or was wiped."""
        registrar = state.registrar
        if registrar is None:
            halted = state.store is None or self._fold(state, state.store) is None
            if state.registrations and halted:
                yield from self._send(state)
        elif registrar.sent in state.log:
            offset = state.log.index(registrar.sent)
            if self.journal.accepted(state.log)[1][offset]:
                done = state._replace(
                    store=Store(registrar.sent, offset + 1),
                    published=registrar.sent,
                    folded=max(state.folded, offset + 1),
                    registrar=None,
                    registrations=state.registrations - 1,
                )
                yield "register is acknowledged, applies and publishes", done
            else:
                yield "register is void, and begins again", state._replace(registrar=None)

    def _send(self, state: State) -> Iterator[tuple[str, State]]:
        """Read what is left of the log, stage what its ledger leaves of the file, append."""
        head = self._head_without_base(state)
        if head == NONE:
            return
        left = set(state.log[state.first :]) if self.rules.ledger_retained else set()
        ledger = {
            self.journal[digest].request for digest in self.journal.chain(head) if digest in left
        }
        if state.store is not None:
            ledger |= set(self.journal.decided(state.store.head))
        rows = "".join(row for row in _FILE if row not in ledger)
        if head not in self.journal.bases and head not in self.journal.valid(state.log):
            raise Broken(f"a registration continues the void {self.journal.name(head)}")
        attempt = 90 + len(state.log)
        digest = self.journal.append(head, _REGISTERS + rows, 8, attempt)
        if digest not in state.flight and digest not in state.log:
            flight = tuple(sorted((*state.flight, digest)))
            sent = state._replace(flight=flight, registrar=Registrar(digest, rows))
            yield f"register appends {self.journal.name(digest)}", sent

    def _head_without_base(self, state: State) -> int:
        """Return the newest record that counts to a reader that has no head; NONE: undecided."""
        suffix = state.log[state.first :]
        head = NONE
        if self.rules.digest_published:
            head = state.published
        elif not self.rules.anchor_needed:
            head = self.journal[suffix[0]].prev if suffix else NONE
        else:
            continued = {self.journal[digest].prev for digest in suffix}
            head = next((digest for digest in suffix if digest in continued), NONE)
        for digest in suffix:
            if self.journal[digest].prev == head != NONE:
                head = digest
        return head

    def check(self, state: State) -> None:
        """Raise `Broken` unless what the module promises is true of the state."""
        heads, flags = self.journal.accepted(state.log)
        valid = self.journal.valid(state.log)
        if state.store is not None:
            if state.store.head not in (0, *valid):
                raise Broken(f"the head {self.journal.name(state.store.head)} is void")
            if state.intact and state.store.applied < state.first:
                raise Broken("the store never went back, and is called too old")
        live = self._live(heads[0])
        for offset in range(state.first, len(state.log)):
            record = self.journal[state.log[offset]]
            if flags[offset] and record.request in live:
                raise Broken(f"row {record.request} is live, and its deletion lies in the log")
        waiting = state.store is None and state.first and self.rules.anchor_needed
        if waiting and self._head_without_base(state) == NONE:
            raise Broken("the store was wiped, and nothing says what the log's head is")


def _with(state: State, number: int, head: int) -> State:
    """Put a worker's head in its place."""
    memory = (head, state.memory[1]) if number == 0 else (state.memory[0], head)
    return state._replace(memory=memory)
