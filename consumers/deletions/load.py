"""Step 3: load what the first records of each model need. Nothing is written here.

Step 3 takes one round trip for all models of a round, if their states are in memory.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence

from lethe.consumers.commits.recovery.follower import Follower
from lethe.consumers.commits.state_cache import StateCache
from lethe.consumers.contract.events import RowsChanged
from lethe.consumers.contract.sealing import SealKeys
from lethe.consumers.deletions.batch_commit import unknown_model
from lethe.consumers.deletions.decide import rows_named, tombstones_of
from lethe.consumers.deletions.rounds import Loaded, Round
from lethe.consumers.deletions.validate import Group, Invalid, Refreshed, Valid, Validated
from lethe.consumers.log.base import Reader
from lethe.consumers.service.loop import TRANSIENT
from lethe.consumers.service.telemetry.steps import AtStep, Step
from lethe.consumers.suppression.marks import DEFAULT_NAMESPACE
from lethe.consumers.suppression.suppressions import Suppressions
from lethe.engine.errors import CorruptState
from lethe.engine.store.layout.state import ModelState
from lethe.engine.store.lookup import Lookup, LookupRequest
from lethe.engine.store.offline.snapshot import with_enough_sentinels
from lethe.engine.store.server.row_keys import no_key
from lethe.engine.store.store import ModelStore

BATCH_BYTES = 2 << 20
"""Bytes of ids in one commit, so that its record fits; a single request has at most 1 MiB."""


class _StateIsBehind(Exception):
    """A model must be folded before its requests are processed."""


class BatchLoader:
    """Loads the first items of each group, and what they name; one thread uses it.

    Parameters
    ----------
    store, states, reader
        The store, the states in memory, and the log, which has the suppression list.
    follower
        Reads the commits partition of an unknown model to its end before the model counts as
        unknown, and knows how far each partition was read.
    seals
        The keys that seal commits; a model whose newest commit they cannot open halts.
    rows
        The most rows that one commit deletes.
    progress
        Called after each state that was read from the store: a batch may name hundreds.
    at_step
        Called with the name of each step as it is reached.
    """

    def __init__(
        self,
        store: ModelStore,
        states: StateCache,
        reader: Reader,
        *,
        follower: Follower,
        seals: SealKeys,
        rows: int,
        progress: Callable[[], None],
        at_step: AtStep,
    ) -> None:
        self._store = store
        self._states = states
        self._follower = follower
        self._seals = seals
        self._rows = rows
        self._progress = progress
        self._at_step = at_step
        self._suppressions = Suppressions(store, reader, seals)

    def _read_state(self, model_id: str) -> ModelState | None:
        """Return a model's state, from memory or from the store; None if it never had one.

        Raises
        ------
        _StateIsBehind
            The store lacks commits that the log had when the model's partition was folded.
        """
        state = self._states.get(model_id)
        if state is None:
            state, applied = self._store.load_as_of(model_id)
            if not self._follower.reaches(model_id, applied):
                raise _StateIsBehind
            if state is not None:
                state = with_enough_sentinels(self._store, state)
                self._states.put(state)
            self._progress()
        return state

    def load(self, groups: Sequence[Group], out: Round) -> list[Loaded]:
        """Load (step 3) what the first requests of each group name, in one round trip.

        Requests by subject take one more, and states that are not in memory are read first.
        Records that the state says are processed already are removed from their groups here.
        """
        self._at_step(Step.LOAD)
        loaded = []
        seen: set[str] = set()
        for group in groups:
            if group.model_id in seen or not group.items:
                continue  # one commit per model and round
            seen.add(group.model_id)
            state = self._state_of(group, out)
            if state is not None and group.items:
                followed = self._follower.followed(group.model_id)
                loaded.append(Loaded(group, state, followed, _leading_items(group.items)))
        self._load_subjects(loaded, out)
        requests, batches = [], []
        for one in loaded:
            if isinstance(one.items, Refreshed) or one.group.model_id in out.failed:
                continue
            one.items, rows = self._first_batch(one, one.items)
            ids = [item.request_id for item in one.items if item.request_id is not None]
            marks = tombstones_of(one.state, rows) if one.changes_rows else []
            requests.append(LookupRequest(one.state, ids, rows, marks))
            batches.append(one)
        for one, lookup in zip(batches, self._look_up(requests, out), strict=True):
            one.lookup = lookup
            if lookup is None:
                continue  # its model halts
            lost = lookup.missing and one.state.model_id not in self._follower.lacking
            if lost or not lookup.is_of(one.state):  # a fold finds out what is left of it
                out.stale.add(one.group.model_id)
            elif lookup.shredded:
                out.failed[one.group.model_id] = no_key(one.group.model_id, lookup.shredded)
        for one in _current(batches, out):  # of others, what the state names may be gone
            self._load_factor(one, out)
            self._load_erased(one, out)
        for one in loaded:
            if self._follower.followed(one.group.model_id) is not one.followed:
                out.stale.add(one.group.model_id)  # folded meanwhile, for another model
        return _current(loaded, out)

    def _load_erased(self, batch: Loaded, out: Round) -> None:
        """Load which subjects of new rows are on the suppression list, as the log has it now.

        Called after the state is read: a decision on a state from which a subject is erased then
        takes the erasure into account.
        """
        subjects = {
            row.subject
            for item in (() if isinstance(batch.items, Refreshed) else batch.items)
            if isinstance(item, Valid) and isinstance(item.request, RowsChanged)
            for row in item.request.rows
            if row.subject is not None
        }
        if subjects:
            namespace = batch.state.meta.config.subject_namespace or DEFAULT_NAMESPACE
            try:
                self._suppressions.catch_up()
                batch.erased = self._suppressions.of(namespace, subjects)
            except CorruptState as error:  # nobody can tell whether they are on it
                out.failed.setdefault(batch.state.model_id, error)

    def _load_factor(self, batch: Loaded, out: Round) -> None:
        """Load L, unless it is in memory, where rows change or statistics forget rows."""
        state = batch.state
        needed = batch.changes_rows or state.pipeline is not None
        needed = needed and not state.meta.config.exact_sums
        if not needed or state.awaiting_rebuild or state.meta.rows_live == 0:
            return
        try:
            batch.factor = self._store.factors.of(state)
        except CorruptState as error:
            self._fail(state, error, out)

    def _fail(self, state: ModelState, error: CorruptState, out: Round) -> None:
        """Halt a model, unless the store has another state now: what this one names may be gone."""
        if self._moved_on(state):
            out.stale.add(state.model_id)
        else:
            out.failed.setdefault(state.model_id, error)

    def _moved_on(self, state: ModelState) -> bool:
        """Return whether the store has another state now: what this one names may be gone."""
        try:
            [lookup] = self._store.look_up([LookupRequest(state, (), ())])
        except CorruptState:
            return False
        return not lookup.is_of(state)

    def _look_up(self, requests: Sequence[LookupRequest], out: Round) -> list[Lookup | None]:
        """Look everything up in one round trip; None for a model whose stored data is damaged."""
        try:
            return [*self._store.look_up(requests)]
        except CorruptState as error:
            if len(requests) == 1:
                out.failed[requests[0].state.model_id] = error
                return [None]
            return [found for request in requests for found in self._look_up([request], out)]

    def _state_of(self, group: Group, out: Round) -> ModelState | None:
        """Return the state that a group is processed on; answer requests from before the model.

        None: the model is unknown, stale or halts.
        """
        try:
            self._follower.follow_model(group.model_id)
            state = self._read_state(group.model_id)
            if state is None or not state.registered:
                self._follower.read_on(group.model_id)
                state = self._read_state(group.model_id)
            if state is not None:
                self._seals.check(group.model_id, state.seal)
        except TRANSIENT:
            raise
        except _StateIsBehind:
            out.stale.add(group.model_id)
            return None
        except Exception as error:
            out.failed[group.model_id] = error
            return None
        # A model that is registered but not opened yet is opened by the first worker that loads it
        # (`BatchProcessor`).
        place = str(group.partition)
        opening = 0 if state is None else (state.opening or {}).get(place, 0)
        for item in group.items:
            if state is None or item.record.offset < opening:
                receipt = None if isinstance(item, Refreshed) else unknown_model(item)
                if receipt is not None:
                    out.unknown.append(receipt)
        if state is None:
            group.items = []
            return None
        begin = max(opening, state.offsets.get(place, 0))
        group.items = [item for item in group.items if item.record.offset >= begin]
        return state

    def _load_subjects(self, loaded: Sequence[Loaded], out: Round) -> None:
        """Load the rows of all subjects that requests name."""
        by_subject = []
        for batch in loaded:
            if isinstance(batch.items, Refreshed):
                continue
            named = [item.request.subject_id for item in batch.items if isinstance(item, Valid)]
            subject_ids = [name for name in named if name is not None]
            if subject_ids:
                by_subject.append((batch, subject_ids))
        if not by_subject:
            return
        try:
            rows = self._store.subjects([(batch.state, ids) for batch, ids in by_subject])
            for (batch, _), subjects in zip(by_subject, rows, strict=True):
                batch.subjects = subjects
        except CorruptState as error:
            if len(by_subject) == 1:
                self._fail(by_subject[0][0].state, error, out)
                return
            for batch, _ in by_subject:
                self._load_subjects([batch], out)

    def _first_batch(
        self, loaded: Loaded, items: Sequence[Valid | Invalid]
    ) -> tuple[Sequence[Valid | Invalid], list[str]]:
        """Return the first items, at least one, whose rows and ids fit into one commit; and rows.

        Only here is it known how many rows a request by subject names.
        """
        if loaded.changes_rows:
            items = items[: _distinct_rows(items)]
        row_limit = min(self._rows, loaded.state.meta.config.hard_rows)
        rows: dict[str, None] = {}
        number = size = 0
        for index, item in enumerate(items):
            named = rows_named(item, loaded.subjects)
            number += len(named)
            by_subject = isinstance(item, Valid) and item.request.subject_id is not None
            ids = json.dumps(named, ensure_ascii=False).encode() if by_subject else None
            size += len(ids or item.record.value or b"")
            if index and (number > row_limit or size > BATCH_BYTES):
                return items[:index], list(rows)
            rows |= dict.fromkeys(named)
        return items, list(rows)


def _current(loaded: Sequence[Loaded], out: Round) -> list[Loaded]:
    """Return the groups whose models are neither stale nor halted."""
    known = out.stale | out.failed.keys()
    return [one for one in loaded if one.group.model_id not in known]


def _leading_items(items: Sequence[Validated]) -> list[Valid | Invalid] | Refreshed:
    """Return the requests at the front of a group, or its first refresh alone."""
    first = items[0]
    if isinstance(first, Refreshed):
        return first
    requests: list[Valid | Invalid] = []
    for item in items:
        if isinstance(item, Refreshed):
            break
        requests.append(item)
    return requests


def _distinct_rows(items: Sequence[Valid | Invalid]) -> int:
    """Return how many of the first items, at least one, name no row twice among them.

    What one request does to a row decides whether the next may change it: that one is decided on
    the state afterwards.
    """
    seen: set[str] = set()
    for index, item in enumerate(items):
        rows = item.request.row_ids or () if isinstance(item, Valid) else ()
        if index and not seen.isdisjoint(rows):
            return index
        seen.update(rows)
    return len(items)
