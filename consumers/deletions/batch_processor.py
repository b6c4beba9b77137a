"""Steps 3 to 5 for the records of one poll: load, decide, compute. Nothing is written here.

Each model gets at most one commit per round: its first requests that fit together, or one refresh.
The rest of its records are processed in the next round, from the state after that commit.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime

from lethe.consumers.commits.follower import Follower
from lethe.consumers.commits.journal import Followed, read_opening
from lethe.consumers.commits.state_cache import StateCache
from lethe.consumers.contract import topics
from lethe.consumers.contract.events import Receipt, RowsChanged
from lethe.consumers.contract.sealing import SealKeys
from lethe.consumers.deletions.batching import Batching, Remainder
from lethe.consumers.deletions.change_transition import change_transition
from lethe.consumers.deletions.compute import compute
from lethe.consumers.deletions.decide import decide, rows_named
from lethe.consumers.deletions.grouping import Group
from lethe.consumers.deletions.row_changes import (
    compute_changes,
    decide_changes,
    distinct_rows,
    tombstones_of,
)
from lethe.consumers.deletions.transition import deletion_transition, origin_of, unknown_model
from lethe.consumers.deletions.validate import Refreshed, Refused, Valid, Validated
from lethe.consumers.log.base import Reader
from lethe.consumers.refresh.swap import swap
from lethe.consumers.service.logs import Logger
from lethe.consumers.service.loop import TRANSIENT
from lethe.consumers.service.metrics import Metrics
from lethe.consumers.service.steps import AtStep, Step
from lethe.consumers.suppression.marks import DEFAULT_NAMESPACE
from lethe.consumers.suppression.suppressions import Suppressions
from lethe.consumers.versions.transition import Transition, opened
from lethe.engine.errors import CorruptState
from lethe.engine.fit.factor import Factor
from lethe.engine.store.layout.state import ModelState
from lethe.engine.store.lookup import Lookup, LookupRequest
from lethe.engine.store.offline.snapshot import load_factor, with_enough_sentinels
from lethe.engine.store.server.row_keys import no_key
from lethe.engine.store.store import ModelStore

BATCH_BYTES = 2 << 20
"""Bytes of ids in one commit, so that its record fits; a single request has at most 1 MiB."""


class _StateIsBehind(Exception):
    """A model must be folded before its requests are processed."""


@dataclass(slots=True)
class Loaded:
    """The first items of a group, processed together, and what was loaded for them."""

    group: Group
    state: ModelState
    followed: Followed | None
    items: Sequence[Valid | Refused] | Refreshed
    lookup: Lookup | None = None
    subjects: Mapping[str, Sequence[str]] = field(default_factory=dict)
    factor: Factor | None = None
    erased: Collection[str] = ()

    @property
    def changes_rows(self) -> bool:
        """Whether its requests insert or correct rows."""
        return self.group.partition.topic == topics.ROW_CHANGES


@dataclass(frozen=True, slots=True)
class Prepared:
    """A commit ready to be appended, the state before it, and how many records it processes."""

    group: Group
    before: ModelState
    transition: Transition
    records: int
    seconds: float = 0.0
    message: str = ""


@dataclass(slots=True)
class Round:
    """The result of one round of a poll.

    Attributes
    ----------
    prepared
        Commits to append, of different models.
    rest
        Groups whose items have to wait to be batched, and those items.
    unknown
        Answers to requests for models that are not registered.
    failed
        By model: the error that halts it.
    stale
        Models whose stored state is not the one in memory: they are folded and processed again.
    """

    prepared: list[Prepared] = field(default_factory=list)
    rest: list[tuple[Group, Remainder]] = field(default_factory=list)
    unknown: list[Receipt] = field(default_factory=list)
    failed: dict[str, Exception] = field(default_factory=dict)
    stale: set[str] = field(default_factory=set)


class BatchProcessor:
    """Turns groups of records into commits; one thread uses it.

    Parameters
    ----------
    store, states, reader
        The store, the states in memory, and the log, which tells where partitions end.
    metrics, logger
        Where measurements and log lines go.
    rows
        The most rows that one commit deletes.
    now
        The clock of receipts and versions.
    at_step
        Called with the name of each step as it is reached.
    batching
        When a batch is large enough, or old enough, to be processed.
    follower
        Reads the commits partition of an unknown model to its end before the model counts as
        unknown, and knows which models have rows missing.
    seals
        The keys that seal commits; a model whose newest commit they cannot open halts.
    """

    def __init__(
        self,
        store: ModelStore,
        states: StateCache,
        reader: Reader,
        *,
        metrics: Metrics,
        logger: Logger,
        rows: int,
        now: Callable[[], datetime],
        at_step: AtStep,
        batching: Batching,
        follower: Follower,
        seals: SealKeys,
    ) -> None:
        self._store = store
        self._states = states
        self._reader = reader
        self._metrics = metrics
        self._logger = logger
        self._rows = rows
        self._now = now
        self._at_step = at_step
        self._batching = batching
        self._follower = follower
        self._seals = seals
        self._suppressions = Suppressions(store, reader, seals)

    # -- step 3 -------------------------------------------------------------------------------

    def state(self, model_id: str) -> ModelState | None:
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
            one.items = self._first_batch(one, one.items)
            ids = [name for item in one.items if (name := _request_id(item)) is not None]
            rows = rows_named(one.items, one.subjects)
            marks = tombstones_of(one.state, rows) if one.changes_rows else []
            requests.append(LookupRequest(one.state, ids, rows, marks))
            batches.append(one)
        for one, lookup in zip(batches, self._look_up(requests, out), strict=True):
            one.lookup = lookup
            if lookup is None:
                continue  # its model halts
            if not lookup.is_of(one.state):
                out.stale.add(one.group.model_id)
            elif lookup.shredded:
                out.failed[one.group.model_id] = no_key(one.group.model_id, lookup.shredded)
        for one in batches:
            self._load_factor(one, out)
            self._load_erased(one, out)
        for one in loaded:
            if self._follower.followed(one.group.model_id) is not one.followed:
                out.stale.add(one.group.model_id)  # folded meanwhile, for another model
        return [
            one
            for one in loaded
            if one.group.model_id not in out.stale and one.group.model_id not in out.failed
        ]

    def _load_erased(self, batch: Loaded, out: Round) -> None:
        """Load which subjects of new rows are on the suppression list, as the log has it now.

        After the state: what is decided on a state from which a subject is erased knows of it.
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
        if not needed or state.awaiting_rebuild or state.meta.rows_live == 0:
            return
        batch.factor = self._states.factor(state)
        if batch.factor is not None:
            return
        try:
            batch.factor = load_factor(self._store, state)
        except CorruptState as error:
            out.failed.setdefault(state.model_id, error)
            return
        self._states.put_factor(state, batch.factor)

    def _look_up(self, requests: Sequence[LookupRequest], out: Round) -> list[Lookup | None]:
        """Look everything up in one round trip; None for a model whose stored data is damaged."""
        if not requests:
            return []
        try:
            return [*self._store.look_up(requests)]
        except CorruptState:
            return [self._look_up_alone(request, out) for request in requests]

    def _look_up_alone(self, request: LookupRequest, out: Round) -> Lookup | None:
        try:
            return self._store.look_up([request])[0]
        except CorruptState as error:
            out.failed[request.state.model_id] = error
            return None

    def _state_of(self, group: Group, out: Round) -> ModelState | None:
        """Return the state that a group is processed on; answer requests from before the model.

        None: the model is unknown, stale or halts.
        """
        try:
            self._follower.follow_model(group.model_id)
            state = self.state(group.model_id)
            if state is None or not state.registered:
                self._follower.read_on(group.model_id)
                state = self.state(group.model_id)
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
        opening = 0 if state is None else self._opening(state, group)
        decided = 0 if state is None else state.offsets.get(str(group.partition), 0)
        for item in group.items:
            if state is None or item.record.offset < opening:
                receipt = None if isinstance(item, Refreshed) else unknown_model(item)
                if receipt is not None:
                    out.unknown.append(receipt)
        if state is None:
            group.items = []
            return None
        group.items = [i for i in group.items if i.record.offset >= max(opening, decided)]
        return state

    def _opening(self, state: ModelState, group: Group) -> int:
        """Return the offset from which a partition's requests are the model's.

        A model that is registered but not opened yet is opened by the first worker that loads it
        (`_open`).
        """
        if state.opening is None:
            return 0
        return state.opening.get(str(group.partition), 0)

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
                out.failed[by_subject[0][0].group.model_id] = error
                return
            for batch, _ in by_subject:
                self._load_subjects([batch], out)

    def _first_batch(
        self, loaded: Loaded, items: Sequence[Valid | Refused]
    ) -> Sequence[Valid | Refused]:
        """Return the first items, at least one, whose rows and ids fit into one commit.

        Only here is it known how many rows a request by subject names.
        """
        if loaded.changes_rows:
            items = items[: distinct_rows(items)]
        config = loaded.state.meta.config
        row_limit = min(self._rows, config.limits.limits().hard_rows(config.d))
        rows = size = 0
        for index, item in enumerate(items):
            named = rows_named([item], loaded.subjects)
            rows += len(named)
            size += _size(item, named)
            if index and (rows > row_limit or size > BATCH_BYTES):
                return items[:index]
        return items

    # -- steps 4 and 5 ------------------------------------------------------------------------

    def process(self, loaded: Sequence[Loaded], out: Round) -> None:
        """Decide (step 4) and compute (step 5) what was loaded; only a model that fails halts."""
        if loaded:
            self._at_step(Step.DECIDE)
        for batch in loaded:
            model_id = batch.group.model_id
            try:
                prepared = self._process(batch, out)
            except TRANSIENT:
                raise
            except Exception as error:
                out.failed[model_id] = error
                continue
            if prepared is not None:
                out.prepared.append(prepared)

    def _process(self, batch: Loaded, out: Round) -> Prepared | None:
        if batch.state.registered and batch.state.opening is None:
            return self._open(batch)
        if isinstance(batch.items, Refreshed):
            return self._refresh(batch, batch.items)
        return self._requests(batch, batch.items, out)

    def _open(self, batch: Loaded) -> Prepared:
        """Return the opening of a model whose registration died before it: `read_opening`."""
        transition = opened(batch.state, read_opening(self._reader))
        return Prepared(batch.group, batch.state, transition, 0, message="opened")

    def _refresh(self, batch: Loaded, item: Refreshed) -> Prepared:
        self._at_step(Step.REFRESH_SWAP)
        origin = origin_of([item.record])
        outcome = swap(self._store, batch.state, item.event.job_id, origin, self._now())
        return Prepared(batch.group, batch.state, outcome.transition, 1, message=outcome.message)

    def _requests(
        self, batch: Loaded, items: Sequence[Valid | Refused], out: Round
    ) -> Prepared | None:
        if batch.lookup is None:
            raise AssertionError("nothing was looked up")
        group, state = batch.group, batch.state
        begin = time.perf_counter()
        lost = group.model_id in self._follower.lost
        if batch.changes_rows:
            return self._changes(batch, items, batch.lookup, lost=lost)
        decisions = decide(state, items, batch.lookup, batch.subjects, lost=lost)
        self._at_step(Step.COMPUTE)
        step = compute(state, decisions, batch.lookup, batch.factor)
        now = self._now()
        if self._batching.must_wait(len(step.deleted), group.since[items[0].record.offset], now):
            out.rest.append((group, Remainder(list(group.items), len(step.deleted))))
            group.items = []
            return None
        origin = origin_of([item.record for item in items])
        transition = deletion_transition(state, step, origin, now=now)
        return Prepared(group, state, transition, len(items), time.perf_counter() - begin)

    def _changes(
        self, batch: Loaded, items: Sequence[Valid | Refused], lookup: Lookup, *, lost: bool
    ) -> Prepared:
        """Decide and compute inserts and corrections."""
        group, state, begin = batch.group, batch.state, time.perf_counter()
        encrypted = self._store.row_keys is not None
        decisions = decide_changes(
            state,
            items,
            lookup,
            now=self._now(),
            lost=lost,
            encrypted=encrypted,
            erased=batch.erased,
        )
        self._at_step(Step.COMPUTE)
        step = compute_changes(state, decisions, lookup, batch.factor)
        origin = origin_of([item.record for item in items])
        transition = change_transition(state, step, origin, now=self._now())
        return Prepared(group, state, transition, len(items), time.perf_counter() - begin)


def _leading_items(items: Sequence[Validated]) -> list[Valid | Refused] | Refreshed:
    """Return the requests at the front of a group, or its first refresh alone."""
    first = items[0]
    if isinstance(first, Refreshed):
        return first
    requests: list[Valid | Refused] = []
    for item in items:
        if isinstance(item, Refreshed):
            break
        requests.append(item)
    return requests


def _size(item: Valid | Refused, named: Sequence[str]) -> int:
    """Return the most bytes that a request adds to a commit: its ids as JSON."""
    if isinstance(item, Valid) and item.request.subject_id is not None:
        return len(json.dumps(named, ensure_ascii=False).encode())
    return len(item.record.value or b"")


def _request_id(item: Valid | Refused) -> str | None:
    return item.request.request_id if isinstance(item, Valid) else item.request_id
