"""Step 5, without I/O: compute the step that the accepted requests of a batch make.

Several requests become one batch of k rows and one version. A request whose rows the guards refuse
is deferred to a rebuild without them; its neighbours are applied.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from lethe.consumers.deletions.decide import WAITS, Accepted, Decision, Deferred
from lethe.consumers.versions.certificates import fits, versions_spent
from lethe.engine.deletion.methods import method_named
from lethe.engine.deletion.stream import Stream, at_rest, delete
from lethe.engine.error.attainable import BLAMED, may_matter
from lethe.engine.error.budget import OverBudget
from lethe.engine.error.certified import Ledger, after_deletion
from lethe.engine.error.estimate import published_error
from lethe.engine.errors import IllConditioned
from lethe.engine.fit.classes import class_counts
from lethe.engine.fit.factor import Factor
from lethe.engine.fit.objective import Rows
from lethe.engine.preprocess.live import LivePipeline, RowsMoved
from lethe.engine.refresh.refreshes import complete
from lethe.engine.store.layout.state import ModelState
from lethe.engine.store.layout.stored_rows import read_rows
from lethe.engine.store.lookup import Lookup


@dataclass(frozen=True, slots=True)
class StepResult:
    """The outcome of a batch: decisions in the order of the records, and the new state.

    ``deleted`` are the rows that the step leaves out, in order; without any there is no new
    version. ``class_counts``, ``ledger`` (of a certified model) and ``pipeline`` (of one with
    preprocessing) are those after the step. ``ends_pause``: a row leaves that may be why refreshes
    fail.
    """

    decisions: tuple[Decision, ...]
    deleted: tuple[str, ...]
    stream: Stream
    class_counts: tuple[int, ...] | None
    empty: bool = False
    ledger: Ledger | None = None
    pipeline: LivePipeline | None = None
    ends_pause: bool = False


def compute(
    state: ModelState,
    decisions: Sequence[Decision],
    lookup: Lookup,
    factor: Factor | None = None,
) -> StepResult:
    """Compute (step 5): leave the accepted rows out. Pure. Cost O(K k d + k^2 d).

    ``factor``: of a model with preprocessing. Its statistics forget the rows, too, in
    O(d^2 + K d) a correction (`engine.preprocess.live`).

    Requests that the guards refuse become deferrals: the whole batch is tried first, then each
    request alone, so that only those that the guards refuse wait.
    """
    unchanged = StepResult(
        tuple(decisions),
        (),
        state.stream,
        state.meta.class_counts,
        ledger=state.meta.ledger,
        pipeline=state.pipeline,
    )
    accepted = [d for d in decisions if isinstance(d, Accepted)]
    if not any(request.rows for request in accepted):
        return unchanged
    unchanged = replace(unchanged, ends_pause=_ends_pause(state, accepted, lookup))
    try:
        return _extend(state, unchanged, accepted, lookup, factor)
    except GuardRefusal:
        return _one_by_one(state, unchanged, accepted, lookup, factor)


def _one_by_one(
    state: ModelState,
    batch: StepResult,
    accepted: Sequence[Accepted],
    lookup: Lookup,
    factor: Factor | None,
) -> StepResult:
    deferrals: dict[str, Deferred] = {}
    for request in accepted:
        if request.shares.intersection(deferrals):
            deferrals[request.request_id] = Deferred(request, "AWAITING_REBUILD", WAITS)
            continue
        try:
            batch = _extend(state, batch, [request], lookup, factor) if request.rows else batch
        except GuardRefusal as refusal:
            deferrals[request.request_id] = Deferred(request, refusal.code, str(refusal))
    decisions = tuple(
        deferrals.get(d.request_id, d) if isinstance(d, Accepted) else d for d in batch.decisions
    )
    return replace(batch, decisions=decisions)


class GuardRefusal(Exception):
    """A guard refuses a step. Of a deletion: a rebuild can leave the rows out."""

    def __init__(self, code: str, detail: str) -> None:
        super().__init__(detail)
        self.code = code


def _extend(
    state: ModelState,
    batch: StepResult,
    accepted: Sequence[Accepted],
    lookup: Lookup,
    factor: Factor | None,
) -> StepResult:
    ids = [row for request in accepted for row in request.rows]
    config = state.meta.config
    deleted = (*batch.deleted, *ids)
    if len(deleted) == state.meta.rows_live:
        zero = at_rest(np.zeros((config.d, config.m)), 0.0, config.blocks)
        counts = None if batch.class_counts is None else (0,) * len(batch.class_counts)
        return StepResult(batch.decisions, deleted, zero, counts, empty=True)
    if versions_spent(state):
        detail = f"the terms allow {state.meta.noised} versions, and as many are published"
        raise GuardRefusal("VERSIONS_SPENT", detail)
    limit = config.limits.limits().hard_rows(config.d)
    detail = f"more than {limit} rows would be deleted since the last rebuild"
    full = GuardRefusal("GENERATION_FULL", detail)
    if not lookup.unread.isdisjoint(ids):
        raise full
    what = f"model {config.model_id!r}, rows to delete"
    records = [lookup.records[row] for row in ids]
    decoded = read_rows(config, state.pipeline, records, what)
    rows = decoded.rows
    counts = _class_counts(state, batch, rows)
    if len(batch.stream.V) + len(ids) > limit:
        raise full
    try:
        method = method_named(config.method)
        stream = delete(state.generation, batch.stream, rows, decoded.W, method).stream
        pipeline = batch.pipeline
        if pipeline is not None and decoded.transformed is not None:
            if factor is None:
                raise AssertionError(f"model {state.model_id!r}: its factor was not loaded")
            change = RowsMoved(leaving=decoded.transformed)
            stream, pipeline = pipeline.after(
                state.generation, stream, factor, change, config.method
            )
            pipeline.error(state.generation, stream)  # it can be stated
    except IllConditioned as error:
        raise GuardRefusal(error.code, str(error)) from error
    ledger = _ledger_after(state, batch, stream, rows)
    if config.over_budget is OverBudget.HOLD:
        _check_budget(replace(state, pipeline=pipeline), stream, deleted)
    return StepResult(
        batch.decisions,
        deleted,
        stream,
        counts,
        ledger=ledger,
        pipeline=pipeline,
        ends_pause=batch.ends_pause,
    )


def _ends_pause(state: ModelState, accepted: Sequence[Accepted], lookup: Lookup) -> bool:
    """Return whether a refresh is to be tried at once, although one fails or is about to fail.

    A row so long that no fit with it may be within the budget can be why: without it the next fit
    is another one, and neither its deletion nor the version after it waits for the pause to end.
    """
    meta = state.meta
    if meta.failures is None and meta.pending_job is None:
        return False
    config = meta.config
    if config.exact_sums:  # a rebuild fails only where it is no row's fault, or any row's
        return True
    records = [lookup.records[row] for one in accepted for row in one.rows if row in lookup.records]
    what = f"model {config.model_id!r}, rows to delete"
    rows = read_rows(config, state.pipeline, records, what).rows
    return may_matter(rows, state.generation.smallest, BLAMED * config.error_budget)


def _check_budget(state: ModelState, after: Stream, deleted: Sequence[str]) -> None:
    """Refuse a step whose exact answer is over the error budget: the last version is held."""
    if state.pipeline is not None:
        error = state.pipeline.error(state.generation, complete(after))
    else:
        remain = state.meta.rows_live - len(deleted)
        sentinels = state.sentinels.without(frozenset(deleted))
        error = published_error(state.generation, complete(after), sentinels, remain)
    if error.over(state.meta.config.error_budget):
        detail = "the next version would be over the error budget"
        raise GuardRefusal("OVER_BUDGET", detail)


def _ledger_after(state: ModelState, batch: StepResult, after: Stream, rows: Rows) -> Ledger | None:
    """Return the ledger of a certified model after the step, which must stay within its budget."""
    if batch.ledger is None:
        return None
    ledger = after_deletion(batch.ledger, state.generation, batch.stream, after, rows)
    if not fits(state.meta.config, ledger, state.generation, after):
        detail = "the noise would not hide what the step leaves: the certificate's budget is spent"
        raise GuardRefusal("CERTIFICATE_SPENT", detail)
    return ledger


def _class_counts(state: ModelState, batch: StepResult, rows: Rows) -> tuple[int, ...] | None:
    """Return how many rows each class has left; a class with none needs a penalised intercept."""
    if batch.class_counts is None:
        return None
    deleted = class_counts(rows.y)
    counts = tuple(old - less for old, less in zip(batch.class_counts, deleted, strict=True))
    if min(counts) > 0 or state.generation.objective.penalty.min() > 0:
        return counts
    if len(counts) == 2:
        raise GuardRefusal(
            "ONE_CLASS_LEFT", "only one class would be left: the intercept needs a ridge"
        )
    name = state.meta.config.class_names[counts.index(0)]
    raise GuardRefusal(
        "CLASS_EMPTIED", f"no row of class {name!r} would be left: the intercepts need a ridge"
    )
