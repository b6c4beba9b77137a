"""Step 5, without I/O: compute the step that the accepted requests of a batch make.

Several requests become one batch of k rows and one version. Requests that a guard refuses are left
out of it, a deletion for a rebuild without its rows; their neighbours are applied.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

import numpy as np

from lethe.consumers.commits.recovery.changed_rows import (
    ChangedRows,
    changed_rows,
    changed_sentinels,
    rows_moved,
)
from lethe.consumers.contract import codes
from lethe.consumers.deletions.decide import WAITS
from lethe.consumers.deletions.decisions import (
    AcceptedChange,
    AcceptedDeletion,
    Decision,
    Deferred,
    GuardRefusal,
    Rejected,
)
from lethe.consumers.deletions.out_of_range import (
    check_least,
    check_means,
    check_version,
    least_error_of,
)
from lethe.consumers.versions.certificates import fits, versions_spent
from lethe.consumers.versions.draft import without_rows
from lethe.engine.deletion.change import RowMoves
from lethe.engine.error.attainable import BLAMED, may_matter
from lethe.engine.error.budget import OverBudget
from lethe.engine.error.certified import after_deletion
from lethe.engine.error.estimate import PublishedError, published_error
from lethe.engine.error.sentinels import Sentinels
from lethe.engine.errors import IllConditioned, InvalidData, StatisticsMoved
from lethe.engine.exact.digits import OutOfRange
from lethe.engine.fit.classes import unbounded
from lethe.engine.fit.factor import Factor
from lethe.engine.fit.objective import Kind
from lethe.engine.preprocess.live import change_model
from lethe.engine.refresh.refreshes import complete
from lethe.engine.store.apply import RowsWritten
from lethe.engine.store.generation import scalars_of
from lethe.engine.store.layout.meta import with_meta
from lethe.engine.store.layout.state import ModelState
from lethe.engine.store.layout.stored_rows import read_rows
from lethe.engine.store.lookup import Lookup

R = TypeVar("R", AcceptedDeletion, AcceptedChange)


@dataclass(frozen=True, slots=True)
class BatchStep:
    """The outcome of a batch: decisions in the order of the records, and the state after it.

    Attributes
    ----------
    decisions
        Those of step 4, but for requests that a guard has refused.
    after
        The model with the rows of the others changed; its version has no number yet.
    deleted
        The rows that the step leaves out, in order.
    written
        The rows that it brings in; None if there are none.
    """

    decisions: tuple[Decision, ...]
    after: ModelState
    deleted: tuple[str, ...] = ()
    written: RowsWritten | None = None

    @property
    def moves(self) -> bool:
        """Whether rows change: then there is a new version."""
        return bool(self.deleted) or self.written is not None


@np.errstate(over="ignore", invalid="ignore")  # detected in the results: no warning
def compute(
    state: ModelState,
    decisions: Sequence[Decision],
    lookup: Lookup,
    factor: Factor | None = None,
) -> BatchStep:
    """Compute (step 5): change the rows of the accepted requests. Pure.

    ``factor`` is needed for rows that are brought in, and by a model with preprocessing.

    The whole batch is tried first, then each request alone, so that only those that a guard refuses
    are left out.

    Notes
    -----
    Cost O(K k d + k^2 d); O(k d^2) more for rows that are brought in, and O(d^2 + K d) a correction
    with preprocessing (`engine.preprocess.live`).
    """
    deletions = [d for d in decisions if isinstance(d, AcceptedDeletion)]
    changes = [d for d in decisions if isinstance(d, AcceptedChange)]
    if _ends_pause(state, deletions, lookup):  # what the pending job staged expires
        state = replace(state, meta=with_meta(state.meta, failures=None, pending_job=None))
    step = BatchStep(tuple(decisions), state)
    if changes:
        return _largest(step, changes, lambda so_far, one: _change(so_far, one, lookup, factor))
    if any(request.rows for request in deletions):
        return _largest(step, deletions, lambda so_far, one: _delete(so_far, one, lookup, factor))
    return step


def _largest(
    step: BatchStep,
    requests: Sequence[R],
    extend: Callable[[BatchStep, Sequence[R]], BatchStep],
) -> BatchStep:
    """Return the step with all requests but those that a guard refuses."""
    try:
        return extend(step, requests)
    except GuardRefusal:
        pass
    refused: dict[str, Decision] = {}
    for request in requests:
        request_id = request.asked.request_id
        if isinstance(request, AcceptedDeletion) and request.shares.intersection(refused):
            refused[request_id] = Deferred(request, codes.AWAITING_REBUILD, WAITS)
            continue
        try:
            step = extend(step, [request])
        except GuardRefusal as refusal:
            refused[request_id] = (
                Deferred(request, refusal.code, str(refusal))
                if isinstance(request, AcceptedDeletion)
                else Rejected(request.asked, refusal.code, str(refusal))
            )
    decisions = tuple(
        refused.get(d.asked.request_id, d)
        if isinstance(d, AcceptedDeletion | AcceptedChange)
        else d
        for d in step.decisions
    )
    return replace(step, decisions=decisions)


# -- deletions ------------------------------------------------------------------------------------


def _delete(
    step: BatchStep, requests: Sequence[AcceptedDeletion], lookup: Lookup, factor: Factor | None
) -> BatchStep:
    at = step.after
    ids = [row for request in requests for row in request.rows]
    if not ids:
        return step
    config, meta = at.meta.config, at.meta
    counted = {
        "rows_live": meta.rows_live - len(ids),
        "rows_deleted": meta.rows_deleted + len(ids),
        "deletions_logged": meta.deletions_logged + len(ids),
        **_in_store(at, -len(set(ids) - lookup.in_files)),
    }
    deleted = (*step.deleted, *ids)
    if len(ids) == meta.rows_live:
        empty = without_rows(replace(at, meta=with_meta(meta, **counted)))
        return replace(step, after=empty, deleted=deleted)
    if versions_spent(at):
        detail = f"the terms allow {meta.noised} versions, and all of them are published"
        raise GuardRefusal(codes.VERSIONS_SPENT, detail)
    limit = config.hard_rows
    full = f"more than {limit} rows would be deleted since the last rebuild"
    if not lookup.unread.isdisjoint(ids):
        raise GuardRefusal(codes.GENERATION_FULL, full)
    what = f"model {config.model_id!r}, rows to delete"
    leaving = read_rows(config, at.pipeline, [lookup.records[row] for row in ids], what).moved
    moved, kept = RowMoves(leaving=leaving), at.sentinels.without(frozenset(ids))
    counts = _class_counts(at, moved)
    if len(at.stream.V) // config.rank + len(ids) > limit:
        raise GuardRefusal(codes.GENERATION_FULL, full)
    if at.pipeline is not None and factor is None:
        raise AssertionError(f"model {at.model_id!r}: its factor was not loaded")
    try:
        after = _changed(at, moved, factor, kept, class_counts=counts, **counted)
        if after.pipeline is not None:
            after.pipeline.error(at.generation, after.stream)  # it can be stated
    except IllConditioned as error:
        raise GuardRefusal(error.code, str(error)) from error
    if meta.ledger is not None:
        ledger = after_deletion(meta.ledger, at.generation, at.stream, after.stream, leaving.rows)
        if not fits(config, ledger, at.generation, after.stream):
            detail = (
                "the noise would not hide what the step leaves: the certificate's budget is spent"
            )
            raise GuardRefusal(codes.CERTIFICATE_SPENT, detail)
        after = replace(after, meta=with_meta(after.meta, ledger=ledger))
    if config.over_budget is OverBudget.HOLD:
        _check_budget(after, _exact_error(after))
    return replace(step, after=after, deleted=deleted)


def _ends_pause(state: ModelState, requests: Sequence[AcceptedDeletion], lookup: Lookup) -> bool:
    """Return whether to try a refresh at once, despite failures, or one that is about to fail.

    A row so long that no fit with it may be within the budget can be why: without it the next fit
    is another one, and neither its deletion nor the version after it waits for the pause to end.
    """
    meta, config = state.meta, state.meta.config
    if meta.failures is None and meta.pending_job is None:
        return False
    rows = [row for request in requests for row in request.rows]
    if not rows:
        return False
    # With sums a rebuild fails only where it is no row's fault, or any row's; and how much a row
    # adds to the Hessian of counts, or of coupled classes, is not known without its prediction.
    if config.exact_sums or config.kind in (Kind.POISSON, Kind.SOFTMAX):
        return True
    records = [lookup.records[row] for row in rows if row in lookup.records]
    what = f"model {config.model_id!r}, rows to delete"
    leaving = read_rows(config, state.pipeline, records, what).rows
    return may_matter(leaving, state.generation.smallest, BLAMED * config.error_budget)


# -- inserts and corrections ----------------------------------------------------------------------


def _change(
    step: BatchStep, requests: Sequence[AcceptedChange], lookup: Lookup, factor: Factor | None
) -> BatchStep:
    at, config = step.after, step.after.meta.config
    limit = config.hard_rows
    rows = sum(len(change.kept.row_ids) * (1 if change.kept.inserts else 2) for change in requests)
    if len(at.stream.V) // config.rank + rows > limit:
        raise GuardRefusal(
            codes.GENERATION_FULL,
            f"more than {limit} rows would be changed since the last rebuild; send the request "
            "again after one, in parts",
        )
    changed = changed_rows(at, [change.request for change in requests], lookup.records, factor)
    moved = rows_moved(at, changed, lookup.records)
    if at.stream.solution is not None:
        after = _added_to_sums(at, changed, moved, lookup)
    elif factor is not None:
        after = _linearised(at, changed, moved, factor, lookup)
    else:
        raise AssertionError(f"model {at.model_id!r}: its factor was not loaded")
    return replace(step, after=after, written=changed.written.after(step.written))


def _added_to_sums(
    at: ModelState, changed: ChangedRows, moved: RowMoves, lookup: Lookup
) -> ModelState:
    """Add rows to exact sums: whatever these can hold is a row like any other."""
    config = at.meta.config
    try:
        after = _brought_in(at, changed, moved, None, lookup)
        left = _exact_error(after)
    except OutOfRange as error:
        columns = () if config.preprocess else (*config.coefficient_names, *config.target_names)
        named = error.named(tuple(changed.written.changed), columns)
        raise GuardRefusal(codes.OUT_OF_RANGE, str(named)) from error
    except InvalidData as error:
        raise GuardRefusal(codes.OUT_OF_RANGE, str(error)) from error
    except IllConditioned as error:
        raise GuardRefusal(error.code, str(error)) from error
    if config.over_budget is OverBudget.HOLD:
        _check_budget(after, left)
    return after


def _linearised(
    at: ModelState, changed: ChangedRows, moved: RowMoves, factor: Factor, lookup: Lookup
) -> ModelState:
    """Bring rows into the linearised model, where a version with them is within the budget."""
    config = at.meta.config
    if config.kind is Kind.POISSON:
        check_means(at, changed)
    least = least_error_of(at, changed, factor)
    check_least(at, changed, factor, least)
    try:
        after = _brought_in(at, changed, moved, factor, lookup)
        if after.pipeline is not None:
            after.pipeline.error(at.generation, after.stream)  # it can be stated
    except StatisticsMoved as error:
        detail = f"{error}; change fewer rows at once, or register the new table with --replace"
        raise GuardRefusal(error.code, detail) from error
    except IllConditioned as error:
        check_version(at, changed, factor, least, None)
        raise GuardRefusal(error.code, str(error)) from error
    stream = after.stream
    if not (np.isfinite(stream.theta_exact).all() and np.isfinite(stream.published).all()):
        check_version(at, changed, factor, least, None)
        raise GuardRefusal(IllConditioned.code, "the step is not a finite number")
    holds = config.over_budget is OverBudget.HOLD
    if holds or config.kind is Kind.LINEAR or after.pipeline is not None:
        left = _exact_error(after)
        check_version(at, changed, factor, least, left)
        if holds:
            _check_budget(after, left)
    return after


def _brought_in(
    at: ModelState, changed: ChangedRows, moved: RowMoves, factor: Factor | None, lookup: Lookup
) -> ModelState:
    """Return the state with rows inserted, and others in place of those that they correct."""
    meta, inserted, corrected = at.meta, len(changed.written.inserted), len(changed.corrected)
    came_to_store = inserted + len(lookup.in_files.intersection(changed.corrected))
    return _changed(
        at,
        moved,
        factor,
        changed_sentinels(at, changed),
        rows_live=meta.rows_live + inserted,
        rows_inserted=meta.rows_inserted + inserted,
        rows_corrected=meta.rows_corrected + corrected,
        class_counts=_class_counts(at, moved),
        **_in_store(at, came_to_store),
    )


# -- what both have -------------------------------------------------------------------------------


def _changed(
    at: ModelState, moved: RowMoves, factor: Factor | None, sentinels: Sentinels, **counts: object
) -> ModelState:
    """Return the state after a change of rows; ``counts`` are those of meta."""
    stream, pipeline = change_model(
        at.generation, at.stream, at.pipeline, moved, at.meta.config.method, factor
    )
    meta = with_meta(at.meta, **scalars_of(stream), **counts, certified_bound=None)
    return replace(at, stream=stream, pipeline=pipeline, sentinels=sentinels, meta=meta)


def _in_store(at: ModelState, more: int) -> dict[str, object]:
    """Return what changes in meta once the store has so many more rows of a model in files."""
    files = at.meta.row_files
    return {} if files is None else {"row_files": files.with_in_store(more)}


def _class_counts(at: ModelState, moved: RowMoves) -> tuple[int, ...] | None:
    """Return how many rows each class has left; a class with none needs a penalised intercept."""
    counts = moved.class_counts(at.meta.class_counts)
    kind, penalised = at.meta.config.kind, at.generation.objective.penalty.min() > 0
    if counts is None or penalised or not unbounded(kind, counts):
        return counts
    if kind is Kind.POISSON:
        raise GuardRefusal(
            codes.ONE_CLASS_LEFT, "only counts of 0 would be left: the intercept needs a ridge"
        )
    if len(counts) == 2:
        raise GuardRefusal(
            codes.ONE_CLASS_LEFT, "only one class would be left: the intercept needs a ridge"
        )
    name = at.meta.config.class_names[counts.index(0)]
    raise GuardRefusal(
        codes.CLASS_EMPTIED, f"no row of class {name!r} would be left: the intercepts need a ridge"
    )


def _exact_error(after: ModelState) -> PublishedError:
    """Return the error of a step's exact answer."""
    exact = complete(after.stream)
    if after.pipeline is not None:
        return after.pipeline.error(after.generation, exact)
    return published_error(after.generation, exact, after.sentinels, after.meta.rows_live)


def _check_budget(after: ModelState, error: PublishedError) -> None:
    """Refuse a step whose exact answer is over the error budget: the last version is held."""
    if error.over(after.meta.config.error_budget):
        raise GuardRefusal(codes.OVER_BUDGET, "the next version would be over the error budget")
