"""Steps 2 to 6 for the records of one poll: validate, load, compute, commit, durable.

A `Decider` keeps states of models in memory (`consumers.held_states`); each is checked against the
stored commit_seq whenever it is used, and the commit's compare-and-set is the last word.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TypeVar

from consumers.batching import Batching, Rest
from consumers.decide import Decision, Rejected, compute, decide, rows_named, status_of
from consumers.deletion_transition import (
    deletion_transition,
    log_time,
    origin_of,
    unregistered_transition,
)
from consumers.events import Receipt
from consumers.grouping import Group
from consumers.held_states import HeldStates
from consumers.log.base import Partition
from consumers.metrics import Metrics
from consumers.refresh_swap import swap
from consumers.request_keys import UNAUTHENTICATED
from consumers.steps import AtStep, Step
from consumers.telemetry import Logger
from consumers.validate import Refreshed, Refused, Valid, Validated
from engine.errors import CommitConflict, StoreUnavailable
from engine.store.commit import Commit
from engine.store.keys import ModelKeys
from engine.store.resample import with_enough_sentinels
from engine.store.row_keys import no_key
from engine.store.state import ModelState, State, Unregistered
from engine.store.store import Lookup, ModelStore

_TRIES = 5

Item = TypeVar("Item", bound=Validated)


@dataclass(frozen=True, slots=True)
class _Found:
    """Undecided items that are decided together, and what was loaded for them."""

    state: State
    items: Sequence[Valid | Refused]
    lookup: Lookup
    subjects: Mapping[str, Sequence[str]]


class Decider:
    """Decides groups; one thread uses it.

    Parameters
    ----------
    store
        Where the state is.
    metrics, logger
        What is measured and said.
    rows
        Rows of a batch at most; a larger group makes several commits.
    now
        The clock of receipts and versions.
    at_step
        Called with the name of each step as it is reached.
    batching
        When a batch is large enough, or old enough, to be decided.
    settle
        Called with the id of a model before its state is first used; compares it with the log
        where nobody did yet, and returns whether it had to.
    """

    def __init__(
        self,
        store: ModelStore,
        *,
        metrics: Metrics,
        logger: Logger,
        rows: int,
        now: Callable[[], datetime],
        at_step: AtStep,
        batching: Batching,
        settle: Callable[[str], bool],
    ) -> None:
        self._store = store
        self._metrics = metrics
        self._logger = logger
        self._rows = rows
        self._now = now
        self._at_step = at_step
        self._batching = batching
        self._settle = settle
        self._answers: dict[str, Sequence[Receipt]] = {}
        self._states = HeldStates()
        self._seen: dict[ModelKeys, int] = {}

    def forget(self) -> None:
        """Forget all states: something went wrong, or a partition moved."""
        self._states.clear()
        self._seen.clear()

    def know_answers(self, answers: Mapping[str, Sequence[Receipt]], *, beside: bool) -> None:
        """Take the published receipts of models that are not registered.

        ``beside`` those that are known for other partitions, or instead of all.
        """
        if not beside:
            self._answers = dict(answers)
            return
        for model, found in answers.items():
            known = self._answers.get(model, ())
            names = {receipt.request_id for receipt in known}
            self._answers[model] = [*known, *(r for r in found if r.request_id not in names)]

    def remember(self, state: ModelState) -> ModelState:
        """Take a state that was just loaded or committed."""
        state = with_enough_sentinels(self._store, state)
        self._states.put(state)
        self._seen[state.keys] = state.commit_seq
        self._report(state)
        return state

    def decide(self, group: Group) -> Rest | None:
        """Decide a group's records; after another's commit, read again.

        Returns what has to wait: the first batch that is too small yet, and all that follows it.

        Raises
        ------
        CommitConflict
            Others keep committing: give up this turn.
        CorruptState
            The model cannot be worked on.
        StoreUnavailable, NotDurable
            Unknown outcome: forget everything and read again.
        """
        for attempt in range(1, _TRIES + 1):
            try:
                for run in self._runs(group):
                    rest = self._decide_run(group, run)
                    if rest is not None:
                        return rest
            except CommitConflict as conflict:
                self._metrics.commits.labels("conflict").inc()
                self._states.drop(group.keys)
                if attempt == _TRIES:
                    raise
                self._logger.warning(
                    "reading again", action="conflict", model=group.model_id, reason=str(conflict)
                )
            else:
                return None
        return None

    def _runs(self, group: Group) -> list[list[Validated]]:
        """Return runs of requests of bounded size, and refreshes alone, in order."""
        runs: list[list[Validated]] = []
        rows = 0
        for item in group.items:
            size = len(item.request.row_ids or ()) if isinstance(item, Valid) else 0
            alone = isinstance(item, Refreshed)
            after_refresh = bool(runs) and isinstance(runs[-1][0], Refreshed)
            if not runs or alone or after_refresh or rows + size > self._rows:
                runs.append([])
                rows = 0
            runs[-1].append(item)
            rows += size
        return runs

    def _decide_run(self, group: Group, run: Sequence[Validated]) -> Rest | None:
        state = self._load(group)
        items = _undecided(state, group.partition, run)
        if items and isinstance(items[0], Refreshed):
            self._decide_refresh(state, items[0])
        elif items:
            requests = [item for item in items if not isinstance(item, Refreshed)]
            return self._decide_requests(group, requests)
        return None

    def _load(self, group: Group) -> State:
        """Load (step 3) the state, from memory or from the store.

        Raises
        ------
        StoreUnavailable
            The store has gone back: take over anew, which compares it with the log.
        """
        held = self._states.get(group.keys)
        if held is not None:
            return held
        self._at_step(Step.LOAD)
        state = self._store.load(group.keys, group.model_id)
        if state.commit_seq < self._seen.get(group.keys, 0):
            raise StoreUnavailable(
                f"model {group.model_id!r}: its stored state has gone back to commit "
                f"{state.commit_seq}; the store lost writes"
            )
        if isinstance(state, Unregistered):  # it may be registered at any moment
            return state
        if group.keys not in self._seen and self._settle(group.model_id):
            state = self._store.load_model(group.model_id)
        return self.remember(state)

    def _look_up(self, group: Group, items: Sequence[Valid | Refused]) -> _Found:
        """Load (step 3) what a batch names, as of one state.

        One round trip, and another one where requests name subjects.
        """
        named = [item.request.subject_id for item in items if isinstance(item, Valid)]
        subject_ids = [name for name in named if name is not None]
        for _ in range(_TRIES):
            state = self._load(group)
            subjects: Mapping[str, Sequence[str]] = {}
            if isinstance(state, ModelState):
                subjects = self._store.subjects(state, subject_ids)
            first = self._first(state, _undecided(state, group.partition, items), subjects)
            request_ids = [name for item in first if (name := _request_id(item)) is not None]
            lookup = self._store.look_up(state, request_ids, rows_named(first, subjects))
            if lookup.commit_seq == state.commit_seq:
                if lookup.shredded:
                    raise no_key(group.keys.tag, lookup.shredded)
                return _Found(state, first, lookup, subjects)
            self._states.drop(group.keys)
        raise CommitConflict(f"model {group.model_id!r}: its state changes while it is read")

    def _first(
        self,
        state: State,
        items: Sequence[Valid | Refused],
        subjects: Mapping[str, Sequence[str]],
    ) -> Sequence[Valid | Refused]:
        """Return the first items, at least one, that name no more rows than one step takes.

        How many rows a request by subject names is known only here.
        """
        most = self._rows
        if isinstance(state, ModelState):
            config = state.meta.config
            most = min(most, config.limits.limits().hard_rows(config.d))
        rows = 0
        for at, item in enumerate(items):
            rows += len(rows_named([item], subjects))
            if at and rows > most:
                return items[:at]
        return items

    def _decide_requests(self, group: Group, items: Sequence[Valid | Refused]) -> Rest | None:
        while items:
            found = self._look_up(group, items)
            if not found.items:
                return None
            waiting = self._decide_found(group, found)
            if waiting:
                first = found.items[0].record.offset
                rest = [item for item in group.items if item.record.offset >= first]
                return Rest(rest, waiting)
            last = found.items[-1].record.offset
            items = [item for item in items if item.record.offset > last]
        return None

    def _decide_found(self, group: Group, found: _Found) -> int:
        """Decide a batch and return 0; or how many rows it would delete, where it has to wait."""
        state, items, lookup, subjects = found.state, found.items, found.lookup, found.subjects
        origin = origin_of([item.record for item in items])
        refused = [item for item in items if isinstance(item, Refused)]
        if isinstance(state, Unregistered):
            decisions = decide(None, items, lookup, subjects)
            now = self._now()
            arrived = {item.record.offset: log_time(item.record, now) for item in items}
            answers = self._answers.get(group.model_id, ())
            fresh = {d.request_id for d in decisions if isinstance(d, Rejected)}
            if fresh.intersection(answer.request_id for answer in answers):
                self._logger.warning(
                    "the store lost answers that were published; they stand",
                    action="adopt_answers",
                    model=group.model_id,
                )
            self._commit(
                unregistered_transition(
                    state, group.model_id, decisions, refused, origin, now=now, arrived=arrived,
                    published=answers,
                )
            )  # fmt: skip
            self._states.drop(group.keys)
        else:
            self._at_step(Step.COMPUTE)
            begin = time.perf_counter()
            batch = compute(state, decide(state, items, lookup, subjects), lookup)
            now = self._now()
            if self._batching.holds(len(batch.deleted), group.since[items[0].record.offset], now):
                return len(batch.deleted)
            transition = deletion_transition(state, batch, refused, origin, now=now)
            self._metrics.step_seconds.observe(time.perf_counter() - begin)
            self._commit(transition.commit)
            decisions = batch.decisions
            self.remember(transition.after)
            if batch.deleted:
                self._metrics.batch_rows.observe(len(batch.deleted))
                self._metrics.rows_deleted.labels(group.model_id).inc(len(batch.deleted))
        self._metrics.dead_letters.inc(sum(item.dead_letter for item in refused))
        self._metrics.unauthenticated.inc(sum(map(_is_unauthenticated, refused)))
        self._say(group, items, decisions)
        return 0

    def _decide_refresh(self, state: State, item: Refreshed) -> None:
        """Decide a refresh event (steps 3 to 6); for an unknown model it changes nothing."""
        if isinstance(state, Unregistered):
            return
        outcome = swap(self._store, state, item.event.job_id, origin_of([item.record]), self._now())
        self._at_step(Step.REFRESH_SWAP)
        self._commit(outcome.transition.commit)
        self.remember(outcome.transition.after)
        self._logger.info(
            outcome.message,
            action="swap" if outcome.swapped else "drop_result",
            model=state.model_id,
            job=item.event.job_id,
            version=outcome.transition.after.version,
        )

    def _commit(self, commit: Commit) -> None:
        """Commit (step 5) and wait until it is on disk (step 6)."""
        self._at_step(Step.COMMIT)
        begin = time.perf_counter()
        self._store.commit(commit, lambda: self._at_step(Step.BARRIER))
        self._metrics.commit_seconds.observe(time.perf_counter() - begin)
        self._metrics.commits.labels("done").inc()
        self._at_step(Step.DURABLE)

    def _report(self, state: ModelState) -> None:
        model, meta = state.model_id, state.meta
        relative = meta.error.relative
        # +Inf and not NaN: what alerts on more than the budget alerts on it.
        self._metrics.error.labels(model).set(math.inf if relative is None else relative)
        self._metrics.budget.labels(model).set(meta.error.budget)
        self._metrics.version.labels(model).set(state.version)
        self._metrics.rows_live.labels(model).set(meta.rows_live)

    def _say(
        self,
        group: Group,
        items: Sequence[Valid | Refused],
        decisions: Sequence[Decision],
    ) -> None:
        for decision in decisions:
            self._metrics.requests.labels(status_of(decision)).inc()
        state = self._states.get(group.keys)
        version = None if state is None else state.version
        statuses = iter(decisions)
        for item in items:
            request_id = _request_id(item)
            if request_id is not None:
                status = status_of(next(statuses))
            else:
                status = UNAUTHENTICATED if _is_unauthenticated(item) else "UNREADABLE"
            self._logger.info(
                "record decided",
                action="decide",
                request_id=request_id,
                status=status,
                model=group.model_id,
                version=version,
                partition=group.partition.index,
                offset=item.record.offset,
            )


def _undecided(state: State, partition: Partition, items: Sequence[Item]) -> list[Item]:
    """Return the items that the state has not decided yet."""
    first = state.offsets.get(str(partition), 0)
    return [item for item in items if item.record.offset >= first]


def _is_unauthenticated(item: Valid | Refused) -> bool:
    return isinstance(item, Refused) and item.code == UNAUTHENTICATED


def _request_id(item: Valid | Refused) -> str | None:
    return item.request.request_id if isinstance(item, Valid) else item.request_id
