"""Adopting published parameters as they are: a lost refresh whose result is gone.

What the state lost cannot be computed again. The newest published parameters become the running
answer, with their published error carried; the rows that were deleted meanwhile go to the ledger;
and a rebuild from the live rows is ordered. Until it is there the stored factor does not fit the
live rows, so requests wait for it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from consumers import chain
from consumers.certificates import adopted_ledger
from consumers.decide import Accepted, Deferral, decide, deferred_record, rows_named
from consumers.events import Receipt, Version
from consumers.log.base import Reader
from consumers.lost_history import Lost, fork, items_of, origin_of_version, partition_of
from consumers.refresh_order import order_refresh
from consumers.transition import (
    Origin,
    Transition,
    advanced,
    entries_in_order,
    head_fields,
    job_entry,
    leaves_of,
    scalars_of,
    step,
    stored_receipt,
    with_leaves,
    with_meta,
    without_rows,
)
from consumers.validate import Valid
from engine.objective import Array
from engine.store.state import ModelState
from engine.store.store import ModelStore
from engine.stream import at_rest


@dataclass(frozen=True, slots=True)
class _Fate:
    """What became of a request: its receipt, and the rows that it deleted."""

    receipt: Receipt
    body: str
    rows: tuple[str, ...] = ()
    retired: tuple[str, ...] = ()
    deferral: Deferral | None = None


def adopt_refresh(
    store: ModelStore, reader: Reader, lost: Lost, state: ModelState, versions: Sequence[Version]
) -> Transition:
    """Return the transition from ``state`` past all of ``versions``, to the newest parameters.

    Raises
    ------
    VersionFork
        The parameters are not in the log, or its requests do not account for its versions.
    """
    newest = versions[-1]
    parameters = lost.parameters
    if parameters is None or parameters.digest != newest.digest or parameters.theta is None:
        raise fork(state, newest, "its parameters are not in the log")
    theta = chain.theta_of(parameters)
    chain.check_parameters(parameters, newest, theta)
    fates = [_fate(store, reader, state, r) for r in _answers(lost, state, newest.version)]
    gone = tuple(dict.fromkeys(row for fate in fates for row in fate.rows))
    retired = tuple(dict.fromkeys(row for fate in fates for row in fate.retired))
    if state.meta.rows_deleted + len(gone) != newest.rows_deleted:
        raise fork(state, newest, "the requests in the log do not account for its rows")
    after = _adopted(state, newest, theta, fates, len(gone) + len(retired))
    after, leaves = _logged(after, newest, lost.leaves(state), fates)
    after, job = order_refresh(after, after.version, newest.created_at)
    made_by = origin_of_version(reader, newest)
    if made_by is None:
        raise fork(state, newest, "no record of the log made it")
    decided = max(made_by.next_offset, state.offsets.get(made_by.partition, 0))
    origin = Origin(made_by.partition, decided, made_by.range)
    empty = after.meta.rows_live == 0
    commit = replace(
        step(state, after, origin),
        head=head_fields(after, None),
        v_before=0 if empty else state.meta.K,
        q_before=0 if empty else state.meta.r,
        clear_Q=not empty,
        deleted=[*gone, *retired],
        deleted_version=newest.version,
        deleted_versions={
            row: fate.receipt.version
            for fate in reversed(fates)
            for row in (*fate.rows, *fate.retired)
            if fate.receipt.version is not None
        },
        erase=[f"{state.meta.generation_key}/{row}" for row in gone],
        receipt_log=leaves,
        requests={
            fate.receipt.request_id: stored_receipt(fate.receipt, fate.body)
            for fate in fates
            if fate.receipt.request_id not in state.answered
        },
        deferred={
            name: request.model_dump_json()
            for name, request in after.deferred.items()
            if name not in state.deferred
        },
        undeferred=[name for name in state.deferred if name not in after.deferred],
        outbox=entries_in_order([] if job is None else [job_entry(job, newest.created_at)]),
        parameters=parameters.value(),
        discarded=[f"gen:{state.meta.generation_key}"] if empty else [],
    )
    return Transition(commit, advanced(after, origin))


def _logged(
    state: ModelState, newest: Version, published: Sequence[Receipt], fates: Sequence[_Fate]
) -> tuple[ModelState, list[bytes]]:
    """Return the state with the receipts that it takes in its log, and what they add to it.

    The first of them are those that the newest version's log names; the others came after it.
    """
    if newest.receipt_log is None:
        check_log(state, newest)
        return state, []
    taken = {(f.receipt.source, f.receipt.request_id) for f in fates if f.receipt.final}
    leaves = leaves_of([r for r in published if (r.source, r.request_id) in taken])
    known = state.meta.receipt_log
    named = newest.receipt_log.size - (0 if known is None else known.size)
    check_log(with_leaves(state, leaves[: max(named, 0)]), newest)
    return with_leaves(state, leaves), leaves


def check_log(state: ModelState, version: Version) -> None:
    """Check that a state's log of receipts is the one that a published version names.

    Raises
    ------
    VersionFork
        It is another one.
    """
    log = state.meta.receipt_log
    if version.receipt_log != (None if log is None else log.head()):
        raise fork(state, version, "the published receipts are not those of its log of receipts")


def _answers(lost: Lost, state: ModelState, newest: int) -> list[Receipt]:
    """Return the last receipt of each request that was answered after the state."""
    undecided = {
        (receipt.source, receipt.request_id)
        for partition, receipts in lost.receipts.items()
        for receipt in receipts
        if receipt.source.offset >= state.offsets.get(str(partition), 0)
    }
    last: dict[str, Receipt] = {}
    for receipt in lost.all_receipts:
        name = receipt.request_id
        resolved = name in state.deferred and receipt.final
        if receipt.code == "REQUEST_ID_CONFLICT" or (receipt.version or 0) > newest:
            continue  # one that is ahead: see `Lost.answers`
        if (receipt.source, name) not in undecided and not resolved:
            continue
        if name not in last or not last[name].final:
            last[name] = receipt
    return list(last.values())


def _fate(store: ModelStore, reader: Reader, state: ModelState, receipt: Receipt) -> _Fate:
    """Return what a lost receipt says became of its request."""
    waiting = state.deferred.get(receipt.request_id)
    if waiting is not None:
        rows = _unledgered(store, state, waiting.row_ids) if receipt.rows_deleted else ()
        retired = _unledgered(store, state, waiting.retired)
        return _Fate(receipt, waiting.body, rows, retired)
    partition = partition_of(reader, receipt.source)
    offset = receipt.source.offset
    [item] = items_of(reader, partition, range(offset, offset + 1), state.model_id)
    if receipt.status == "REJECTED" or not isinstance(item, Valid):
        return _Fate(receipt, item.body)
    subject = item.request.subject_id
    subjects: Mapping[str, Sequence[str]] = store.subjects(
        state, [] if subject is None else [subject]
    )
    lookup = store.look_up(state, [], rows_named([item], subjects))
    accepted = [
        decision.accepted if isinstance(decision, Deferral) else decision
        for decision in decide(state, [item], lookup, subjects)
        if isinstance(decision, Accepted | Deferral)
    ]
    if receipt.status == "DEFERRED":
        deferrals = [
            Deferral(
                replace(one, rows_unknown=receipt.rows_unknown),
                receipt.code or "AWAITING_REBUILD",
                "",
            )
            for one in accepted
        ]
        return _Fate(receipt, item.body, deferral=deferrals[0] if deferrals else None)
    rows = tuple(row for one in accepted for row in one.rows) if receipt.rows_deleted else ()
    if len(rows) < receipt.rows_deleted:
        # Their records are erased already; which names were rows, the data set tells.
        members = store.row_ids(state)
        named = [row for row in rows_named([item], subjects) if row in members]
        rows = _unledgered(store, state, named)
    return _Fate(receipt, item.body, rows, tuple(row for one in accepted for row in one.retired))


def _unledgered(store: ModelStore, state: ModelState, rows: Sequence[str]) -> tuple[str, ...]:
    ledgered = store.ledgered(state.keys, rows)
    return tuple(row for row in rows if row not in ledgered)


def _adopted(
    state: ModelState, newest: Version, theta: Array, fates: Sequence[_Fate], logged: int
) -> ModelState:
    """Return the state at the newest version's parameters, waiting for a rebuild."""
    known = newest.error.value
    resting = replace(
        at_rest(theta, 0.0 if known is None else known),
        V=state.stream.V,
        v_trace=state.stream.v_trace,
        least_pivot=state.stream.least_pivot if known is not None else 0.0,
    )
    answered = {fate.receipt.request_id for fate in fates if fate.receipt.final}
    waiting = {name: d for name, d in state.deferred.items() if name not in answered}
    waiting |= {
        fate.receipt.request_id: deferred_record(fate.deferral)
        for fate in fates
        if fate.deferral is not None
    }
    meta = with_meta(
        state.meta,
        **scalars_of(resting),
        generation=newest.generation,
        status=newest.status,
        reference_epoch=state.meta.reference_epoch + 1,
        rows_live=newest.rows_live,
        rows_deleted=newest.rows_deleted,
        deletions_logged=state.meta.deletions_logged + logged,
        first_deletion_at=state.meta.first_deletion_at or newest.created_at,
        certified=None,
        pending_job=None,
        failures=None,
        awaiting_rebuild=newest.rows_live > 0,
        error=newest.error,
        ledger=adopted_ledger(newest.certificate),
    )
    gone = frozenset(row for fate in fates for row in fate.rows)
    after = replace(
        state,
        version=newest.version,
        digest=newest.digest,
        meta=meta,
        stream=resting,
        generation=replace(state.generation, number=newest.generation),
        sentinels=state.sentinels.without(gone),
        deferred=waiting,
    )
    if newest.rows_live:
        return after
    nothing = without_rows(after)
    return replace(nothing, meta=with_meta(nothing.meta, generation=newest.generation))
