"""Pages 3.3 and 3.5: registration, `--replace`, unregister, refresh swaps, deferrals, row changes.

Two workers decide what they have folded to, `register --replace` stages and appends, a refresh
worker does the pending job; appends land late or never, anyone's memory is gone at any time, the
store goes back to any earlier state, staged generations and row changes outlive their time. A
script runs as a whole and only at its place in the log: that this is so, the commit model shows.

What is checked in every state: a row whose deletion was decided is not live; a request has one
outcome; a fold of the store, and of its backup, ends at the accepted head with the ledger and the
index of the log, and with arrays of exactly the live rows, or it says that they cannot be made;
no features of dead rows stay; and without more faults every request is decided and no job stays
pending for ever.
"""

from __future__ import annotations

from collections.abc import Iterator

from tests.proof.model.checker import FAULT
from tests.proof.model.lifecycle_decide import decidable, decide
from tests.proof.model.lifecycle_invariants import check
from tests.proof.model.lifecycle_state import (
    BASE,
    Bounds,
    Budget,
    History,
    Refresh,
    Registrar,
    Result,
    Row,
    Rules,
    State,
    Store,
    Worker,
)
from tests.proof.model.lifecycle_store import fold_one, script, swept

Step = tuple[str, State]
_INCARNATION = "b"


class LifecycleModel:
    """One model, from registration to registration."""

    def __init__(self, bounds: Bounds, rules: Rules | None = None) -> None:
        self.bounds = bounds
        self.rules = rules or Rules()
        self.history = History(bounds, self.rules)

    def initial(self) -> State:
        """The model is registered; nothing else has happened."""
        bounds = self.bounds
        rows = self.history.meaning(BASE).live
        none: frozenset[Result] = frozenset()
        store = Store(
            head=BASE,
            cursor=0,
            records=rows,
            arrays=None if bounds.awaiting else rows,
            awaiting=bounds.awaiting,
            lost=False,
            staged=none,
            ledger=frozenset(),
            decided=frozenset(),
            registrations=frozenset(),
        )
        budget = Budget(
            bounds.appends,
            bounds.rollbacks,
            bounds.expiries,
            bounds.jobs,
            bounds.registrations,
            bounds.deaths,
        )
        return State(
            log=(),
            flight=(),
            store=store,
            backup=store if bounds.rollbacks else None,
            workers=(None, None),
            registrar=None,
            refresh=None,
            completed=none,
            expired=False,
            budget=budget,
        )

    def check(self, state: State) -> None:
        """Raise `Broken` unless what the module promises is true of the state."""
        check(self.history, self.bounds, state)

    def steps(self, state: State) -> Iterator[Step]:
        """Yield what may happen next."""
        yield from self._landings(state)
        after = fold_one(self.history, state.log, state.store, state.expired)
        if after is not None:
            store = swept(self.history, state.log, after)
            passed = after.head == state.store.head
            what = "a record is passed over" if passed else f"{self._name(after.head)} is applied"
            yield what, state._replace(store=store)
        yield from self._faults(state)
        for number, worker in enumerate(state.workers):
            for label, then in self._work(state, number, worker, caught_up=after is None):
                fault = FAULT if label == "forgets" else ""
                yield f"{fault}W{number + 1} {label}", then
        yield from self._refresh(state)
        yield from self._register(state, caught_up=after is None)

    def _name(self, digest: int) -> str:
        return self.history.name(digest)

    def _landings(self, state: State) -> Iterator[Step]:
        if len(state.log) >= self.bounds.log_length:
            return
        for digest in state.flight:
            flight = tuple(other for other in state.flight if other != digest)
            landed = state._replace(log=(*state.log, digest), flight=flight)
            yield f"{self._name(digest)} lands at {len(state.log)}", landed

    def _faults(self, state: State) -> Iterator[Step]:
        """The store goes back; what has a time to live expires."""
        budget, store = state.budget, state.store
        if budget.rollbacks and state.backup is not None and state.backup != store:
            left = budget.rollbacks - 1
            back = state._replace(
                store=state.backup,
                backup=state.backup if left else None,
                budget=budget._replace(rollbacks=left),
            )
            yield f"{FAULT}the store goes back", back
            yield "a backup is taken", state._replace(backup=store)
        if self._staged_registration_may_go(state):
            expired = store._replace(registrations=frozenset())
            yield f"{FAULT}a staged registration goes", state._replace(store=expired)
        if budget.expiries and store.staged:
            expired = store._replace(staged=frozenset())
            left_budget = budget._replace(expiries=budget.expiries - 1)
            after = state._replace(store=expired, budget=left_budget)
            yield f"{FAULT}a staged generation expires", after
        if self.bounds.row_changes_expire and not state.expired:
            yield f"{FAULT}row changes pass T", state._replace(expired=True)

    def _staged_registration_may_go(self, state: State) -> bool:
        """Whether nobody works on it and, by the rule, none that is on its way can still count."""
        if not self.bounds.registrations_expire or state.registrar is not None:
            return False
        if not state.store.registrations or not self.rules.staged_until_void:
            return bool(state.store.registrations)
        head = state.store.head
        chain = self.history.chain(head)
        for digest in state.flight + state.log:
            record = self.history[digest]
            if record.kind != "register" or record.prev not in chain:
                continue
            if record.commit > self.history[head].commit:
                return False
        return True

    def _work(
        self, state: State, number: int, worker: Worker | None, *, caught_up: bool
    ) -> Iterator[Step]:
        """A worker folds, decides what it can from what it saw then, and appends."""
        store = state.store
        if worker is None:
            if caught_up:
                knows = Worker(store.head, store.awaiting, store.lost, store.staged)
                yield f"folds to {self._name(store.head)}", _with(state, number, knows)
            return
        budget = state.budget
        if budget.appends:
            for request in decidable(self.bounds, state):
                digest = decide(self.history, worker, request, budget.appends)
                if digest is not None:
                    yield self._appended(state, number, digest)
            meaning = self.history.meaning(worker.head)
            if budget.jobs and meaning.registered and meaning.job is None and not worker.lost:
                attempt = budget.appends
                digest = self.history.append(worker.head, "order", orders=attempt, attempt=attempt)
                label, after = self._appended(state, number, digest)
                left = after.budget._replace(jobs=budget.jobs - 1)
                yield label, after._replace(budget=left)
        yield "forgets", _with(state, number, None)

    def _appended(self, state: State, number: int, digest: int) -> Step:
        flight = tuple(sorted((*state.flight, digest)))
        budget = state.budget._replace(appends=state.budget.appends - 1)
        after = _with(state, number, None)._replace(flight=flight, budget=budget)
        return f"appends {self._name(digest)}", after

    def _refresh(self, state: State) -> Iterator[Step]:
        """The refresh worker: snapshot, stage, send the completed event; once a job."""
        refresh, store = state.refresh, state.store
        if refresh is None:
            job = self.history.meaning(self.history.accepted(state.log)[0]).job
            meaning = self.history.meaning(store.head)
            done = any(result.job == job for result in state.completed)
            there = meaning.registered and not store.lost and meaning.live <= store.records
            if job is not None and meaning.job == job and not done and there:
                result = Result(job, store.head, meaning.live)
                begun = state._replace(refresh=Refresh(staged=False, result=result))
                yield f"refresh J{job}: snapshot at {self._name(store.head)}", begun
            return
        result = refresh.result
        if not refresh.staged:
            staged = store._replace(staged=store.staged | {result})
            after = state._replace(store=staged, refresh=Refresh(staged=True, result=result))
            yield f"refresh {result}: staged", after
        else:
            after = state._replace(completed=state.completed | {result}, refresh=None)
            yield f"refresh {result}: completed is sent", after
        if state.budget.deaths:
            budget = state.budget._replace(deaths=state.budget.deaths - 1)
            yield f"{FAULT}the refresh worker dies", state._replace(refresh=None, budget=budget)

    def _register(self, state: State, *, caught_up: bool) -> Iterator[Step]:
        """`register --replace`: read the ledger, stage, append, apply, return."""
        registrar, budget = state.registrar, state.budget
        head = self.history.accepted(state.log)[0]
        if registrar is None:
            if budget.registrations and (caught_up or not self.rules.ledger_of_log):
                of_log = self.history.meaning(head).ledger
                ledger = of_log if self.rules.ledger_of_log else state.store.ledger
                left = budget._replace(registrations=budget.registrations - 1)
                read = state._replace(registrar=Registrar("read", head, ledger), budget=left)
                yield f"register reads the ledger {sorted(ledger)}", read
            return
        if registrar.phase == "read":
            rows = tuple(row for row in self.bounds.file if row not in registrar.ledger)
            incarnation = f"n{budget.registrations + 1}:{len(state.log)}"
            written = frozenset(Row(row, incarnation, _INCARNATION) for row in rows)
            staged = state.store.registrations | {(incarnation, written)}
            ready = registrar._replace(phase="staged", rows=rows, incarnation=incarnation)
            after = state._replace(
                store=state.store._replace(registrations=staged), registrar=ready
            )
            yield f"register stages {list(rows)}", after
        elif registrar.phase == "staged":
            bound = self.rules.ledger_of_log and self.rules.ledger_of_prev
            digest = self.history.append(
                registrar.at if bound else head,
                "register",
                rows=registrar.rows,
                incarnation=registrar.incarnation,
                attempt=90 + budget.registrations,
            )
            if digest not in state.log and digest not in state.flight:
                flight = tuple(sorted((*state.flight, digest)))
                sent = registrar._replace(phase="sent", sent=digest)
                after = state._replace(flight=flight, registrar=sent)
                yield f"register appends {self._name(digest)}", after
        elif registrar.sent in state.log:
            yield from self._registered(state, registrar, head)
        if budget.deaths:
            left = budget._replace(deaths=budget.deaths - 1)
            yield f"{FAULT}register dies", state._replace(registrar=None, budget=left)

    def _registered(self, state: State, registrar: Registrar, head: int) -> Iterator[Step]:
        """The append of a registration is acknowledged: won, or void."""
        place = state.log.index(registrar.sent)
        if self.history.accepted(state.log)[1][place]:
            sent = self.history[registrar.sent]
            if self.history[state.store.head].commit < sent.commit:
                store = script(self.history, state.store, registrar.sent, state.expired)
                yield "register applies over a lower head", state._replace(store=store)
            yield "register returns", state._replace(registrar=None)
        elif self.rules.ledger_of_prev:
            ledger = self.history.meaning(head).ledger
            again = Registrar("read", head, ledger)
            yield f"register is void, and reads {sorted(ledger)}", state._replace(registrar=again)
        else:
            again = registrar._replace(phase="staged")
            yield "register is void, and re-links", state._replace(registrar=again)


def _with(state: State, number: int, worker: Worker | None) -> State:
    """Put a worker in its place."""
    workers = (worker, state.workers[1]) if number == 0 else (state.workers[0], worker)
    return state._replace(workers=workers)
