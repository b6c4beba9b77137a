"""Steps 4 and 5 for what was loaded: decide, compute. Nothing is written here."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from datetime import datetime

from lethe.consumers.commits.journal import read_opening
from lethe.consumers.commits.recovery.follower import Follower
from lethe.consumers.deletions.batch_commit import origin_of, requests_transition
from lethe.consumers.deletions.batching import Batching
from lethe.consumers.deletions.compute import compute
from lethe.consumers.deletions.decide import BatchFacts, decide, rows_of_erasures
from lethe.consumers.deletions.rounds import Loaded, Prepared, Round
from lethe.consumers.deletions.validate import Invalid, Refreshed, Valid
from lethe.consumers.log.base import Reader
from lethe.consumers.refresh.swap import swap
from lethe.consumers.service.loop import TRANSIENT
from lethe.consumers.service.telemetry.steps import AtStep, Step
from lethe.consumers.versions.disclosures import with_disclosures
from lethe.consumers.versions.draft import opening_transition
from lethe.engine.store.store import ModelStore


class BatchProcessor:
    """Turns what was loaded into commits; one thread uses it.

    Parameters
    ----------
    store, reader
        Where the results of refreshes lie, and the log, which tells where partitions end.
    follower
        Knows which models have rows missing.
    batching
        When a batch is large enough, or old enough, to be processed.
    now
        The clock of receipts and versions.
    progress
        Called often: a batch of many models takes long.
    at_step
        Called with the name of each step as it is reached.
    """

    def __init__(
        self,
        store: ModelStore,
        reader: Reader,
        *,
        follower: Follower,
        batching: Batching,
        now: Callable[[], datetime],
        progress: Callable[[], None],
        at_step: AtStep,
    ) -> None:
        self._store = store
        self._reader = reader
        self._follower = follower
        self._batching = batching
        self._now = now
        self._progress = progress
        self._at_step = at_step

    def process(self, loaded: Sequence[Loaded], out: Round) -> None:
        """Decide (step 4) and compute (step 5) what was loaded; only a model that fails halts."""
        if loaded:
            self._at_step(Step.DECIDE)
        for batch in loaded:
            self._progress()
            prepared: Prepared | None
            try:
                if batch.state.registered and batch.state.opening is None:
                    prepared = self._open(batch)
                elif isinstance(batch.items, Refreshed):
                    prepared = self._refresh(batch, batch.items, out)
                else:
                    prepared = self._requests(batch, batch.items, out)
            except TRANSIENT:
                raise
            except Exception as error:
                out.failed[batch.group.model_id] = error
                continue
            if prepared is not None:
                out.prepared.append(prepared)

    def _open(self, batch: Loaded) -> Prepared:
        """Return the opening of a model whose registration died before it: `read_opening`."""
        transition = opening_transition(batch.state, read_opening(self._reader))
        return Prepared(batch.group, batch.state, transition, 0, message="opened")

    def _refresh(self, batch: Loaded, item: Refreshed, out: Round) -> Prepared | None:
        self._at_step(Step.REFRESH_SWAP)
        origin = origin_of([item.record])
        outcome = swap(self._store, batch.state, item.event.job_id, origin, self._now())
        if outcome.transition is None:
            self._drop(batch, outcome.message, out)
            return None
        return Prepared(batch.group, batch.state, outcome.transition, 1, message=outcome.message)

    def _drop(self, batch: Loaded, message: str, out: Round) -> None:
        """Drop a refresh result that changes nothing: no commit needs to say so.

        No append finds out here whether others have committed meanwhile, for example that the job
        is the pending one; so the log is read to an end that is asked for after the poll.
        """
        group, head = batch.group, batch.state.head
        self._follower.read_on(group.model_id)
        followed = self._follower.followed(group.model_id)
        if followed is None or followed.heads.get(group.model_id) != head:
            out.stale.add(group.model_id)
            return
        group.items = group.items[1:]
        out.dropped.append((group.model_id, batch.state.version, message))

    def _requests(
        self, batch: Loaded, items: Sequence[Valid | Invalid], out: Round
    ) -> Prepared | None:
        if batch.lookup is None:
            raise AssertionError("nothing was looked up")
        group, state, lookup = batch.group, batch.state, batch.lookup
        begin = time.perf_counter()
        facts = BatchFacts(
            lookup,
            batch.subjects,
            lost=group.model_id in self._follower.lacking,
            encrypted=self._store.row_keys is not None,
            erased=batch.erased,
        )
        decisions = decide(state, items, facts)
        self._at_step(Step.COMPUTE)
        step = compute(state, decisions, lookup, batch.factor)
        now, rows = self._now(), len(step.deleted)
        waits = not batch.changes_rows and self._batching.must_wait(
            rows, group.since[items[0].record.offset], now
        )
        if waits:
            out.rest.append((group, rows))
            return None
        origin = origin_of([item.record for item in items])
        transition = requests_transition(state, step, origin, now=now, clock=lookup.clock)
        if state.meta.disclosure is not None:
            erased = rows_of_erasures(items, step.decisions, batch.subjects)
            transition = with_disclosures(transition, state, lookup.records, erased=erased)
        return Prepared(group, state, transition, len(items), time.perf_counter() - begin)
