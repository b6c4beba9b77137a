"""When a refresh is ordered, and which size the policy takes.

One rule stops needless work: a refresh that could not better what there is, is not ordered. A
request that waits for a rebuild is the exception: it waits until one succeeds.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from dataclasses import replace
from datetime import datetime

from lethe.consumers.contract.events import RefreshRequested
from lethe.consumers.versions.certificates import budget_fraction, with_certificate_refresh
from lethe.engine.error.certified import REFRESH_AT
from lethe.engine.error.estimate import believed_estimate
from lethe.engine.refresh.kind import RefreshKind
from lethe.engine.refresh.policy import Choice, Facts, choose, facts_of, used_up
from lethe.engine.store.head import Failures, Meta, PendingJob
from lethe.engine.store.staging import TIME_TO_LIVE
from lethe.engine.store.state import DeferredRequest, ModelState

ORDERED = "ordered"
SCHEDULED = "scheduled"
AT_LEAST = (ORDERED, SCHEDULED)
"""Reasons of people and schedules: the size that they name is done at the least."""

_FIRST_PAUSE = 60.0
_LONGEST_PAUSE = 3600.0
"""Seconds after a refresh that failed; doubled each time that it fails again."""


def order_refresh(
    state: ModelState, version: int, now: datetime
) -> tuple[ModelState, RefreshRequested | None]:
    """Order a refresh if one is needed, none is pending, and the last has not just failed."""
    meta = state.meta
    waits = _is_pending(meta, now) or _backs_off(meta, now)
    reason = None if waits else refresh_reason(state, now)
    if reason is None:
        return state, None
    seed = f"{meta.config.model_id}\n{version}\n{state.head.commit}"
    job_id = hashlib.sha256(seed.encode()).hexdigest()[:32]
    pending = PendingJob(job_id=job_id, reason=reason, ordered_at=now)
    job = RefreshRequested(
        job_id=job_id,
        model_id=meta.config.model_id,
        generation=meta.generation,
        version=version,
        reason=reason,
    )
    return replace(state, meta=meta.model_copy(update={"pending_job": pending})), job


def _is_pending(meta: Meta, now: datetime) -> bool:
    """Return whether a job is under way; one whose result would have expired by now is lost."""
    job = meta.pending_job
    return job is not None and (now - job.ordered_at).total_seconds() < TIME_TO_LIVE


def one_more_failure(meta: Meta, now: datetime) -> Failures:
    """Return the failures of a model after another one."""
    times = 0 if meta.failures is None else meta.failures.times
    return Failures(times=times + 1, newest_at=now)


def _backs_off(meta: Meta, now: datetime) -> bool:
    """Return whether a refresh has failed so lately that no commit orders it again yet."""
    if meta.failures is None:
        return False
    pause = min(_FIRST_PAUSE * 2.0 ** min(meta.failures.times - 1, 16), _LONGEST_PAUSE)
    return (now - meta.failures.newest_at).total_seconds() < pause


def refresh_reason(state: ModelState, now: datetime) -> str | None:
    """Return why a refresh is needed now, or None."""
    meta = state.meta
    if state.deferred:
        return "deferred"
    if state.awaiting_rebuild:
        return "lost_writes"
    if meta.rows_live == 0:
        return None
    # Neither question needs the sentinels' estimate: the stored error has it, and whether a
    # generation is used up does not depend on it.
    facts = _facts(state, now, estimate=0.0)
    if meta.error.over and not facts.fresh:
        return "error_budget"
    if used_up(facts, meta.config.limits.limits()) is not None:
        return "generation"
    return "certificate" if budget_fraction(state) > REFRESH_AT and not facts.fresh else None


def in_turn(deferred: Iterable[DeferredRequest]) -> list[DeferredRequest]:
    """Return deferred requests in the order in which rebuilds resolve them: that of the log."""
    return sorted(deferred, key=lambda one: (str(one.source["partition"]), one.source["offset"]))


def is_stuck(state: ModelState) -> bool:
    """Return whether requests wait for a rebuild and none is on its way: the last one failed."""
    waits = bool(state.deferred) or state.awaiting_rebuild
    return waits and state.meta.pending_job is None


def choose_size(state: ModelState, event: RefreshRequested, now: datetime) -> Choice:
    """Return the smallest size that does; what a person ordered is done at the least."""
    meta = state.meta
    if state.awaiting_rebuild:
        return Choice(RefreshKind.REBUILD, "the store had lost writes")
    estimate = (
        believed_estimate(state.generation, state.stream, state.sentinels, meta.rows_live)
        if meta.certified is None
        else 0.0
    )
    ordered = event.size if event.reason in AT_LEAST else None
    choice = choose(_facts(state, now, estimate), meta.config.limits.limits(), ordered)
    return with_certificate_refresh(state, choice)


def _facts(state: ModelState, now: datetime, estimate: float | None) -> Facts:
    return facts_of(
        state.generation,
        state.stream,
        rows_live=state.meta.rows_live,
        estimate=estimate,
        budget_relative=state.meta.config.error_budget,
        v_age_seconds=_v_age(state.meta, now),
        deferred=len(state.deferred),
        audited=state.meta.certified is not None,
        stored=True,
    )


def _v_age(meta: Meta, now: datetime) -> float:
    """Return the age of the oldest row of V in seconds."""
    if meta.first_deletion_at is None:
        return 0.0
    return (now - meta.first_deletion_at).total_seconds()
