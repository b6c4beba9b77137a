"""When a refresh is scheduled, and which size the policy chooses.

One rule prevents needless work: a refresh that could not improve anything is not scheduled. The
exception is a request that waits for a rebuild: it waits until one succeeds.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterable, Mapping
from dataclasses import replace
from datetime import datetime

from lethe.consumers.contract.events import RefreshRequested
from lethe.consumers.versions.certificates import (
    budget_fraction,
    versions_spent,
    with_certificate_refresh,
)
from lethe.engine.error.certified import REFRESH_AT
from lethe.engine.error.estimate import believed_estimate, scale
from lethe.engine.errors import IllConditioned
from lethe.engine.preprocess.live import LivePipeline
from lethe.engine.refresh.policy import Choice, RefreshFacts, choose, facts_of, used_up
from lethe.engine.refresh.refreshes import complete
from lethe.engine.refresh.size import RefreshSize
from lethe.engine.store.layout.meta import Failures, Meta, PendingJob
from lethe.engine.store.layout.state import DeferredRequest, ModelState
from lethe.engine.store.offline.staging import TIME_TO_LIVE

ORDERED = "ordered"
SCHEDULED = "scheduled"
AT_LEAST = (ORDERED, SCHEDULED)
"""Reasons given by people and schedules: the refresh is of the size that they name, or larger."""

_FIRST_PAUSE = 60.0
_LONGEST_PAUSE = 3600.0
"""Seconds to wait after a failed refresh; doubled each time that it fails again."""


def order_refresh(
    state: ModelState, now: datetime, *, over_budget: bool = False
) -> tuple[ModelState, RefreshRequested | None]:
    """Schedule a refresh if one is needed, none is pending, and the last has not just failed.

    ``over_budget``: the error was over the budget before the version was completed.
    """
    meta = state.meta
    job, failures = meta.pending_job, meta.failures
    if job is not None and (now - job.ordered_at).total_seconds() < TIME_TO_LIVE:
        return state, None  # one whose result would have expired by now is lost
    if failures is not None:
        pause = min(_FIRST_PAUSE * 2.0 ** min(failures.times - 1, 16), _LONGEST_PAUSE)
        if (now - failures.newest_at).total_seconds() < pause:
            return state, None
    reason = refresh_reason(state, now, over_budget=over_budget)
    if reason is None:
        return state, None
    seed = f"{meta.config.model_id}\n{state.version}\n{state.head.commit}"
    job_id = hashlib.sha256(seed.encode()).hexdigest()[:32]
    pending = PendingJob(job_id=job_id, reason=reason, ordered_at=now)
    order = RefreshRequested(
        job_id=job_id,
        model_id=meta.config.model_id,
        generation=meta.generation,
        version=state.version,
        reason=reason,
    )
    return replace(state, meta=meta.model_copy(update={"pending_job": pending})), order


def one_more_failure(meta: Meta, now: datetime) -> Failures:
    """Return the failures of a model after another one."""
    times = 0 if meta.failures is None else meta.failures.times
    return Failures(times=times + 1, newest_at=now)


def refresh_reason(state: ModelState, now: datetime, *, over_budget: bool = False) -> str | None:
    """Return why a refresh is needed now, or None."""
    meta = state.meta
    if resolvable(state):
        return "deferred"
    if state.awaiting_rebuild:
        return "lost_writes"
    if meta.rows_live == 0:
        return None
    # The sentinels' estimate is not needed here: the stored error includes it, and whether a
    # generation is used up does not depend on it.
    facts = _facts(state, now, estimate=0.0)
    over = over_budget or (meta.error.over and meta.config.output_noise is None)
    if over and not facts.fresh:
        return "error_budget"
    if used_up(facts, meta.config.limits.limits()) is not None:
        return "generation"
    return "certificate" if budget_fraction(state) > REFRESH_AT and not facts.fresh else None


def resolvable(state: ModelState) -> Mapping[str, DeferredRequest]:
    """Return the deferred requests that a rebuild may resolve: none, if no version is left."""
    return {} if versions_spent(state) else state.deferred


def in_turn(deferred: Iterable[DeferredRequest]) -> list[DeferredRequest]:
    """Return deferred requests in the order in which rebuilds resolve them: the log's."""
    return sorted(
        deferred, key=lambda request: (str(request.source["partition"]), request.source["offset"])
    )


def is_stuck(state: ModelState) -> bool:
    """Return whether requests wait for a rebuild and none is pending: the last one failed."""
    requests_wait = bool(resolvable(state)) or state.awaiting_rebuild
    return requests_wait and state.meta.pending_job is None


def choose_size(state: ModelState, event: RefreshRequested, now: datetime) -> Choice:
    """Return the smallest size that is enough, but no smaller than what a person ordered."""
    meta = state.meta
    if state.awaiting_rebuild:
        return Choice(RefreshSize.REBUILD, "the store had lost writes")
    estimate: float | None = 0.0
    if state.pipeline is not None:
        estimate = _left_by_completing(state, state.pipeline)
    elif meta.certified_bound is None:
        estimate = believed_estimate(
            state.generation, state.stream, state.sentinels, meta.rows_live
        )
    at_least = event.size if event.reason in AT_LEAST else None
    choice = choose(_facts(state, now, estimate), meta.config.limits.limits(), at_least)
    return with_certificate_refresh(state, choice)


def _left_by_completing(state: ModelState, pipeline: LivePipeline) -> float:
    """Return the error of theta_exact of a model with preprocessing, as a part of theta's scale."""
    try:
        relative = pipeline.error(state.generation, complete(state.stream)).relative
    except IllConditioned:
        relative = None
    return math.inf if relative is None else relative * scale(state.generation, state.stream)


def _facts(state: ModelState, now: datetime, estimate: float | None) -> RefreshFacts:
    first = state.meta.first_deletion_at
    return facts_of(
        state.generation,
        state.stream,
        rows_live=state.meta.rows_live,
        estimate=estimate,
        budget_relative=state.meta.config.error_budget,
        v_age_seconds=0.0 if first is None else (now - first).total_seconds(),
        deferred=len(resolvable(state)),
        audited=state.meta.certified_bound is not None,
        stored=True,
    )
