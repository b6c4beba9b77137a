"""Steps 4 and 5 for inserts and corrections, without I/O: decide each request, compute the step.

A request applies whole or is rejected: nothing of it waits, because no commit keeps its values and
the log keeps them for T only. So where a deletion would wait for a rebuild, it is rejected with the
reason, and can be sent again under another id.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace

import numpy as np

from lethe.consumers.commits.commit import RowChange
from lethe.consumers.commits.recovery.change_requests import digest_of
from lethe.consumers.commits.recovery.changed_rows import (
    ChangedRows,
    changed_rows,
    changed_sentinels,
    changed_stream,
    check_values,
    old_weights,
    rows_before,
)
from lethe.consumers.contract.commitment import rows_commitment, tombstone_of
from lethe.consumers.contract.events import RowsChanged, Source
from lethe.consumers.contract.requests import source_of
from lethe.consumers.deletions.compute import GuardRefusal
from lethe.consumers.deletions.decide import Decider, Decision, Rejected
from lethe.consumers.deletions.out_of_range import (
    OUT_OF_RANGE,
    check_least,
    check_version,
    least_error_of,
)
from lethe.consumers.deletions.validate import Refused, Valid
from lethe.consumers.refresh.lost_rows import DATA_LOST
from lethe.engine.deletion.stream import Stream
from lethe.engine.error.budget import OverBudget
from lethe.engine.error.estimate import PublishedError, published_error
from lethe.engine.errors import IllConditioned, InvalidData
from lethe.engine.exact.digits import OutOfRange
from lethe.engine.fit.classes import class_counts
from lethe.engine.fit.factor import Factor
from lethe.engine.fit.objective import Kind
from lethe.engine.preprocess.live import LivePipeline
from lethe.engine.preprocess.transformation.statistics import StatisticsMoved
from lethe.engine.refresh.refreshes import complete
from lethe.engine.store.layout.state import ModelState
from lethe.engine.store.lookup import Lookup


@dataclass(frozen=True, slots=True)
class Change:
    """An accepted request, and what its commit keeps of it."""

    source: Source
    request_id: str
    body: bytes
    request: RowsChanged
    kept: RowChange
    commitment: str | None


ChangeDecision = Decision | Change


@dataclass(frozen=True, slots=True)
class ChangeStep:
    """The outcome of a batch: decisions in the order of the records, and the stream after them.

    ``changed`` is None if no request is applied: then there is no new version. ``class_counts`` are
    those after the step.
    """

    decisions: tuple[ChangeDecision, ...]
    stream: Stream
    changed: ChangedRows | None = None
    pipeline: LivePipeline | None = None
    class_counts: tuple[int, ...] | None = None

    @property
    def applied(self) -> list[Change]:
        """The requests that are applied."""
        return [decision for decision in self.decisions if isinstance(decision, Change)]


def distinct_rows(items: Sequence[Valid | Refused]) -> int:
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


def decide_changes(
    state: ModelState,
    items: Sequence[Valid | Refused],
    lookup: Lookup,
    *,
    lost: bool = False,
    encrypted: bool = False,
    erased: Collection[str] = (),
) -> tuple[ChangeDecision, ...]:
    """Decide (step 4) a batch's requests, which name no row twice, in order. Pure.

    ``lost``: rows of the model are missing from the store; ``encrypted``: it keeps them encrypted.
    ``erased``: subjects on the suppression list.
    """
    repeats = Decider(state, lookup, {}, lost, frozenset())
    decisions: list[ChangeDecision] = []
    for item in items:
        decided = len(repeats.decisions)
        if repeats.decide_known(item, source_of(item.record)):
            decisions += repeats.decisions[decided:]
        elif isinstance(item, Valid) and isinstance(item.request, RowsChanged):
            refusal = _of_model(state, lost=lost, encrypted=encrypted)
            refusal = refusal or _of_subjects(item.request, erased)
            refusal = refusal or _of_tombstones(state, item.request, lookup)
            decisions.append(_decide(state, item, item.request, lookup, refusal))
    return tuple(decisions)


def _decide(
    state: ModelState,
    item: Valid,
    request: RowsChanged,
    lookup: Lookup,
    refusal: tuple[str, str] | None,
) -> ChangeDecision:
    place = item.record.partition
    source = Source(topic=place.topic, partition=place.index, offset=item.record.offset)
    commitment = rows_commitment(state.secret, request.request_id, request.row_ids)
    refusal = refusal or _of_rows(request, lookup) or _of_values(state, request, lookup)
    if refusal is not None:
        code, detail = refusal
        return Rejected(
            source, request.request_id, item.body, code, detail, 0, commitment, request.op
        )
    kept = RowChange(
        request.op == "insert",
        request.row_ids,
        str(place),
        item.record.offset,
        digest_of(item.record),
    )
    return Change(source, request.request_id, item.body, request, kept, commitment)


def _of_model(state: ModelState, *, lost: bool, encrypted: bool) -> tuple[str, str] | None:
    """Return code and detail of why no row of the model can change now, or None."""
    config = state.meta.config
    reasons = {
        ("UNSUPPORTED", "rows of a certified model cannot be inserted or corrected"): (
            config.certify is not None
        ),
        ("UNSUPPORTED", "encrypted row records cannot be inserted or corrected yet"): encrypted,
        ("MODEL_EMPTY", "the model has no rows; `lethe register --replace` begins again"): (
            state.meta.rows_live == 0
        ),
        (
            DATA_LOST,
            "the store has lost rows of this model; send it again once they are back",
        ): lost,
        ("AWAITING_REBUILD", "the model waits for a rebuild; send it again afterwards"): (
            state.awaiting_rebuild or bool(state.deferred)
        ),
    }
    return next((reason for reason, holds in reasons.items() if holds), None)


def _of_subjects(request: RowsChanged, erased: Collection[str]) -> tuple[str, str] | None:
    """Return code and detail if rows would become those of erased subjects, or None."""
    theirs = sum(row.subject in erased for row in request.rows if row.subject is not None)
    if not theirs:
        return None
    return "SUBJECT_ERASED", f"{theirs} of the rows belong to subjects that were erased"


def tombstones_of(state: ModelState, rows: Sequence[str]) -> list[str]:
    """Return what a deletion that found none of these rows has left of them."""
    return [] if state.secret is None else [tombstone_of(state.secret, row) for row in rows]


def _of_tombstones(
    state: ModelState, request: RowsChanged, lookup: Lookup
) -> tuple[str, str] | None:
    """Return code and detail if the deletion of an inserted row came before the row, or None."""
    if request.op != "insert":
        return None
    ends = (lookup.tombstones.get(mark, 0.0) for mark in tombstones_of(state, request.row_ids))
    waiting = sum(end > lookup.clock for end in ends)
    if not waiting:
        return None
    return "ROW_DELETED", f"a deletion of {waiting} of the rows came before them, within a day"


def _of_rows(request: RowsChanged, lookup: Lookup) -> tuple[str, str] | None:
    """Return code and detail of why these rows cannot change, or None.

    Many can read a receipt, so it counts rows and does not name them.
    """
    rows = request.row_ids
    live = lookup.records.keys() | lookup.unread
    deleted = [row for row in rows if row in lookup.ledger]
    if deleted:
        return "ROW_DELETED", f"{len(deleted)} of the rows were deleted, and never come back"
    if request.op == "insert":
        known = live.intersection(rows)
        if known:
            return "ROW_EXISTS", f"{len(known)} of the rows are in the model; correct them instead"
        return None
    unknown = [row for row in rows if row not in live]
    if unknown:
        return "ROW_UNKNOWN", f"{len(unknown)} of the rows are not in the model"
    if any(row.subject is not None for row in request.rows):
        return "SCHEMA", "a corrected row keeps its subject; give none"
    return None


def _of_values(state: ModelState, request: RowsChanged, lookup: Lookup) -> tuple[str, str] | None:
    """Return code and detail of why the values do not fit the model, or None."""
    try:
        check_values(request, state.meta.config, old_weights(lookup.records))
    except InvalidData as error:
        return "SCHEMA", str(error)
    return None


@np.errstate(over="ignore", invalid="ignore")  # detected in the results: no warning
def compute_changes(
    state: ModelState,
    decisions: Sequence[ChangeDecision],
    lookup: Lookup,
    factor: Factor | None,
) -> ChangeStep:
    """Compute (step 5): insert and correct the rows of the accepted requests. Pure.

    The whole batch is tried first, then each request alone, so that only those that a guard refuses
    are rejected. Cost O(k d^2 + K k d).
    """
    accepted = [decision for decision in decisions if isinstance(decision, Change)]
    nothing = ChangeStep(tuple(decisions), state.stream, class_counts=state.meta.class_counts)
    if not accepted:
        return nothing
    try:
        return _stepped(state, nothing, accepted, lookup, factor)
    except GuardRefusal:
        return _largest_prefix(state, nothing, accepted, lookup, factor)


def _largest_prefix(
    state: ModelState,
    nothing: ChangeStep,
    accepted: Sequence[Change],
    lookup: Lookup,
    factor: Factor | None,
) -> ChangeStep:
    """Add one request after the other; those that a guard refuses are rejected."""
    taken: list[Change] = []
    refused: dict[str, Rejected] = {}
    step = nothing
    for change in accepted:
        try:
            step = _stepped(state, nothing, [*taken, change], lookup, factor)
            taken.append(change)
        except GuardRefusal as refusal:
            refused[change.request_id] = Rejected(
                change.source,
                change.request_id,
                change.body,
                refusal.code,
                str(refusal),
                0,
                change.commitment,
                change.request.op,
            )
    decisions = tuple(
        refused.get(d.request_id, d) if isinstance(d, Change) else d for d in nothing.decisions
    )
    return replace(step, decisions=decisions)


def _stepped(
    state: ModelState,
    nothing: ChangeStep,
    accepted: Sequence[Change],
    lookup: Lookup,
    factor: Factor | None,
) -> ChangeStep:
    config = state.meta.config
    limit = config.limits.limits().hard_rows(config.d)
    rows = sum(len(change.kept.row_ids) * (1 if change.kept.inserts else 2) for change in accepted)
    if len(state.stream.V) + rows > limit:
        raise GuardRefusal(
            "GENERATION_FULL",
            f"more than {limit} rows would be changed since the last rebuild; send it again "
            "afterwards, in parts",
        )
    changed = changed_rows(state, [change.request for change in accepted], lookup.records, factor)
    if state.stream.solution is not None:
        return _summed(state, nothing, changed, lookup)
    if factor is None:
        raise AssertionError(f"model {state.model_id!r}: its factor was not loaded")
    least = least_error_of(state, changed, factor)
    check_least(state, changed, factor, least)
    try:
        counts = _class_counts(state, changed, lookup)
        stream, moved = changed_stream(state, changed, lookup.records)
        pipeline = state.pipeline
        if pipeline is not None:
            stream, pipeline = pipeline.after(
                state.generation, stream, factor, moved, config.method
            )
            pipeline.error(state.generation, stream)  # it can be stated
    except StatisticsMoved as error:
        detail = f"{error}; change fewer rows at once, or register the new table with --replace"
        raise GuardRefusal(error.code, detail) from error
    except IllConditioned as error:
        check_version(state, changed, factor, least, None)
        raise GuardRefusal(error.code, str(error)) from error
    if not (np.isfinite(stream.theta_exact).all() and np.isfinite(stream.published).all()):
        check_version(state, changed, factor, least, None)
        raise GuardRefusal(IllConditioned.code, "the step is not a finite number")
    holds = config.over_budget is OverBudget.HOLD
    if holds or config.kind is Kind.LINEAR or pipeline is not None:
        left = _error_after(replace(state, pipeline=pipeline), stream, changed)
        check_version(state, changed, factor, least, left)
        if holds and left.over(config.error_budget):
            raise GuardRefusal("OVER_BUDGET", "the next version would be over the error budget")
    return replace(nothing, stream=stream, changed=changed, pipeline=pipeline, class_counts=counts)


def _summed(
    state: ModelState, nothing: ChangeStep, changed: ChangedRows, lookup: Lookup
) -> ChangeStep:
    """Add rows to exact sums: whatever these can hold is a row like any other."""
    try:
        stream, _ = changed_stream(state, changed, lookup.records)
        left = _error_after(state, stream, changed)
    except OutOfRange as error:
        config = state.meta.config
        columns = () if config.preprocess else (*config.coefficient_names, *config.target_names)
        named = error.named(tuple(changed.written.changed), columns)
        raise GuardRefusal(OUT_OF_RANGE, str(named)) from error
    except InvalidData as error:
        raise GuardRefusal(OUT_OF_RANGE, str(error)) from error
    except IllConditioned as error:
        raise GuardRefusal(error.code, str(error)) from error
    config = state.meta.config
    if config.over_budget is OverBudget.HOLD and left.over(config.error_budget):
        raise GuardRefusal("OVER_BUDGET", "the next version would be over the error budget")
    return replace(nothing, stream=stream, changed=changed)


def _class_counts(
    state: ModelState, changed: ChangedRows, lookup: Lookup
) -> tuple[int, ...] | None:
    """Return how many rows each class has afterwards; a free intercept needs one of each."""
    before = state.meta.class_counts
    if before is None:
        return None
    came = class_counts(changed.rows.y)
    went = class_counts(rows_before(state, changed, lookup.records).rows.y)
    counts = tuple(b + c - w for b, c, w in zip(before, came, went, strict=True))
    if min(counts) > 0 or state.generation.objective.penalty.min() > 0:
        return counts
    detail = "a class would be left without a row: the intercept would need a ridge"
    raise GuardRefusal("ONE_CLASS_LEFT" if len(counts) == 2 else "CLASS_EMPTIED", detail)


def _error_after(state: ModelState, after: Stream, changed: ChangedRows) -> PublishedError:
    """Return the error of a step's exact answer."""
    if state.pipeline is not None:
        return state.pipeline.error(state.generation, complete(after))
    live = state.meta.rows_live + len(changed.written.inserted)
    sentinels = changed_sentinels(state, changed)
    return published_error(state.generation, complete(after), sentinels, live)
