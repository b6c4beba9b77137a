"""A halted model beside a busy one (3.2 step 7): `{cNN}:behind`, a pair of cursors.

One partition in which valid records of A and B land in a given order. W1 opens both; W2 cannot open
A's, so A is halted for it, and it goes on with B. A state is how many records have landed, the
store (the partition's apply and published cursor, the pair of A, and how many records of each model
are applied), a backup of it, the two workers in their folds, and what was published.

What is checked in every state, of the store and of its backup: from the cursors that a fresh W1
would begin at, every record that is not applied will be, and every record that is not published
will be. So the partition's cursors may pass a halted model, and nothing is forgotten.

A record may also land that names a model of another partition, F: a copy, or anybody's. Whatever
the store knows of F lies with its own partition, so no fold of this one may halt it: its pair would
stay here for ever, because this partition has none of its records to reach. And the store knows by
its digest the record just below the apply cursor: a log that has another one there lost its end. So
that digest moves with the cursor, whatever the record is that it passes.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

from tests.proof.model.checker import FAULT, Broken, rule

HALTED_MODEL, BUSY_MODEL, FOREIGN_MODEL = "A", "B", "F"


@dataclass(frozen=True, slots=True)
class Rules:
    """The rules of the pair that can be taken away."""

    pair_made: bool = rule("the pair is made before a cursor passes a record of a halted model")
    made_once: bool = rule("a pair that is there already is kept")
    own_rule: bool = rule("each of the pair moves by the rule of its own cursor")
    both_reached: bool = rule("the pair goes when both have reached the partition's cursors")
    own_models: bool = rule("a fold takes up the models of its own partition alone")
    digest_moves: bool = rule("the digest of the record below moves with the apply cursor")


@dataclass(frozen=True, slots=True)
class Bounds:
    """How much may happen: the models of the records in their order, and rollbacks."""

    records: str = "AABA"
    rollbacks: int = 1


class Pair(NamedTuple):
    """An apply and a published cursor."""

    applied: int = 0
    published: int = 0


class Store(NamedTuple):
    """The partition's cursors, A's own, how many records of A and of B are applied, and F's.

    ``below``: the offset of the record whose digest is kept as that below the apply cursor.
    """

    cursors: Pair = Pair()
    behind: Pair | None = None
    applied_a: int = 0
    applied_b: int = 0
    foreign: Pair | None = None
    below: int = -1


class Fold(NamedTuple):
    """A worker in a fold: where it is, its end, and the published cursors that it began at."""

    position: int
    end: int
    publishing: bool
    published: int
    own_published: int


class State(NamedTuple):
    """Everything; see the module."""

    landed: int
    store: Store
    backup: Store
    folds: tuple[Fold | None, Fold | None]
    published: frozenset[int]
    rollbacks: int


class HaltsModel:
    """Two cursors of a partition, and two of a model that is halted for one worker."""

    def __init__(self, bounds: Bounds, rules: Rules | None = None) -> None:
        self.bounds = bounds
        self.rules = rules or Rules()

    def initial(self) -> State:
        """Nothing has landed."""
        return State(0, Store(), Store(), (None, None), frozenset(), self.bounds.rollbacks)

    def steps(self, state: State) -> Iterator[tuple[str, State]]:
        """Yield what may happen next."""
        if state.landed < len(self.bounds.records):
            model = self.bounds.records[state.landed]
            yield f"{model} lands at {state.landed}", state._replace(landed=state.landed + 1)
        if state.rollbacks and state.store != state.backup:
            left = state.rollbacks - 1
            back = state._replace(store=state.backup, rollbacks=left)
            yield f"{FAULT}the store goes back", back
            yield "a backup is taken", state._replace(backup=state.store)
        for number, fold in enumerate(state.folds):
            name = f"W{number + 1}"
            if fold is None:
                yield from self._begin(state, number)
                continue
            yield f"{FAULT}{name} dies", _with(state, number, None)
            if fold.publishing:
                label, after = self._publish(state, number, fold)
            else:
                label, after = self._apply(state, number, fold)
            yield f"{name} {label}", after

    def _begin(self, state: State, number: int) -> Iterator[tuple[str, State]]:
        """Begin a fold at the lowest of the cursors that this worker must look after."""
        cursors, behind = state.store.cursors, state.store.behind
        own = behind if behind is not None and number == 0 else None
        lowest = min(*cursors, *(own or cursors))
        if lowest < state.landed:
            start = min(cursors.applied, (own or cursors).applied)
            both = (cursors.published, (own or cursors).published)
            fold = Fold(
                start, state.landed, publishing=False, published=both[0], own_published=both[1]
            )
            yield f"W{number + 1} folds {start} to {state.landed}", _with(state, number, fold)

    def _apply(self, state: State, number: int, fold: Fold) -> tuple[str, State]:
        """Run the script of the next record, or pass it."""
        store, position = state.store, fold.position
        if position >= fold.end:
            behind = store.behind
            if number == 0 and behind and self._reaches(behind.applied, fold.end):
                store = self._tidy(store._replace(behind=behind._replace(applied=fold.end)))
            first = min(fold.published, fold.own_published)
            done = fold._replace(position=first, publishing=True)
            return "has folded", _with(state._replace(store=store), number, done)
        model = self.bounds.records[position]
        on = fold._replace(position=position + 1)
        cursors = store.cursors
        moved, below, passed = cursors, store.below, store.below
        if cursors.applied == position:
            moved, below = cursors._replace(applied=position + 1), position
            passed = position if self.rules.digest_moves else store.below
        if model == FOREIGN_MODEL:
            foreign = store.foreign if self.rules.own_models else store.cursors
            store = store._replace(cursors=moved, foreign=foreign, below=passed)
            return f"passes F at {position}", _with(state._replace(store=store), number, on)
        if model == HALTED_MODEL and number == 1:
            if moved != cursors:
                store = store._replace(cursors=moved, behind=self._made(store), below=passed)
            after = _with(state._replace(store=store), number, on)
            return f"passes A at {position}", after
        earlier = self.bounds.records[:position].count(model)
        applied = store.applied_a if model == HALTED_MODEL else store.applied_b
        if applied < earlier:
            return f"applies {model} at {position}: refused", _with(state, number, None)
        if applied == earlier and model == HALTED_MODEL:
            store = store._replace(applied_a=applied + 1)
        elif applied == earlier:
            store = store._replace(applied_b=applied + 1)
        store = store._replace(cursors=moved, below=below)
        behind = store.behind
        if model == HALTED_MODEL and behind and self._reaches(behind.applied, position):
            store = store._replace(behind=behind._replace(applied=position + 1))
        after = state._replace(store=self._tidy(store))
        return f"applies {model} at {position}", _with(after, number, on)

    def _made(self, store: Store) -> Pair | None:
        """Return the pair of a model that is about to be passed."""
        if not self.rules.pair_made:
            return None
        if store.behind is not None and self.rules.made_once:
            return store.behind
        return store.cursors

    def _reaches(self, applied: int, offset: int) -> bool:
        """Whether A's apply cursor may move over a record at `offset` (or over none, to there)."""
        if not self.rules.own_rule:
            return True
        records = self.bounds.records[:offset]
        return records.rfind(HALTED_MODEL) + 1 <= applied <= offset

    def _tidy(self, store: Store) -> Store:
        """Drop the pair once it has nothing to say."""
        behind, cursors = store.behind, store.cursors
        if behind is None or behind.applied < cursors.applied:
            return store
        if behind.published < cursors.published and self.rules.both_reached:
            return store
        return store._replace(behind=None)

    def _publish(self, state: State, number: int, fold: Fold) -> tuple[str, State]:
        """Publish the next record if it can be opened; at the end, move the published cursors."""
        position = fold.position
        if position < fold.end:
            on = _with(state, number, fold._replace(position=position + 1))
            model = self.bounds.records[position]
            if model == FOREIGN_MODEL or (model == HALTED_MODEL and number == 1):
                return f"cannot publish {model} at {position}", on
            return f"publishes {position}", on._replace(published=state.published | {position})
        store = state.store
        cursors, behind = store.cursors, store.behind
        to = cursors.published
        if cursors.published >= fold.published:
            to = max(to, fold.end)
        if number == 1 and HALTED_MODEL in self.bounds.records[cursors.published : to]:
            behind = self._made(store)
        mine = behind is not None and behind.published >= fold.own_published
        if number == 0 and behind is not None and (mine or not self.rules.own_rule):
            behind = behind._replace(published=max(behind.published, fold.end))
        store = store._replace(cursors=cursors._replace(published=to), behind=behind)
        after = _with(state._replace(store=self._tidy(store)), number, None)
        return f"moves the published cursor to {to}, A's own is {behind}", after

    def check(self, state: State) -> None:
        """Raise `Broken` if something would never be applied or never be published."""
        self._check_store(state, "store", state.store)
        if state.rollbacks:
            self._check_store(state, "backup", state.backup)

    def _check_store(self, state: State, who: str, store: Store) -> None:
        own = store.behind or store.cursors
        landed = range(state.landed)
        of_a = [offset for offset in landed if self.bounds.records[offset] == HALTED_MODEL]
        if store.below != store.cursors.applied - 1:
            raise Broken(f"{who}: LOG_RESET, and the log has lost nothing, {store}")
        if store.foreign is not None:
            raise Broken(f"{who}: F is halted here, and none of its records will come, {store}")
        applied = min(store.cursors.applied, own.applied)
        for offset in of_a[store.applied_a :][:1]:
            if offset < applied:
                raise Broken(f"{who}: A at {offset} is never applied, {store}")
        published = min(store.cursors.published, own.published)
        for offset in landed:
            first = published if offset in of_a else store.cursors.published
            foreign = self.bounds.records[offset] == FOREIGN_MODEL
            if offset < first and offset not in state.published and not foreign:
                raise Broken(f"{who}: the record at {offset} is never published, {store}")


def _with(state: State, number: int, fold: Fold | None) -> State:
    """Put a worker's fold in its place."""
    folds = (fold, state.folds[1]) if number == 0 else (state.folds[0], fold)
    return state._replace(folds=folds)
