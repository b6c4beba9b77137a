"""The commit that a batch of requests makes, and the receipts of its requests. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime

from lethe.consumers.commits.apply import NOTHING, LiveGeneration, arrays_of
from lethe.consumers.commits.commit import CommitKind, Tombstones
from lethe.consumers.contract import codes
from lethe.consumers.contract.commitment import tombstone_of
from lethe.consumers.contract.events import SourceRange
from lethe.consumers.contract.receipt import Receipt
from lethe.consumers.contract.requests import source_of
from lethe.consumers.deletions.compute import BatchStep
from lethe.consumers.deletions.decide import op_of
from lethe.consumers.deletions.decisions import (
    AcceptedChange,
    AcceptedDeletion,
    Conflicting,
    Decision,
    Deferred,
    Duplicate,
    DuplicateInBatch,
    Rejected,
)
from lethe.consumers.deletions.validate import Invalid, Valid
from lethe.consumers.log.base import Record
from lethe.consumers.versions.draft import Draft, Origin, Transition
from lethe.consumers.versions.receipts import Asked
from lethe.engine.store.layout.meta import with_meta
from lethe.engine.store.layout.state import ModelState
from lethe.engine.store.server.rewrite import ERASURE_SECONDS


def unknown_model(item: Valid | Invalid) -> Receipt | None:
    """Return the receipt of a request for a model that is not registered.

    It follows from the record and its timestamp in the log alone, so it is not stored: when the
    record is read again it gets the same receipt, byte for byte. None: it names no request.
    """
    if item.request_id is None or item.model_id is None:
        return None
    if isinstance(item, Valid):
        code, detail = codes.UNKNOWN_MODEL, f"model {item.model_id!r} is not registered"
    else:
        code, detail = item.code, item.detail
    asked = Asked(source_of(item.record), item.request_id, item.body, op_of(item))
    now = item.record.logged_at
    return asked.receipt(item.model_id, "REJECTED", now, code=code, detail=detail)


def requests_transition(
    before: ModelState, step: BatchStep, origin: Origin, *, now: datetime, clock: float
) -> Transition:
    """Return the commit of a batch, and the state after it; ``clock`` is the store's time (s).

    Without a row that changes there is no version. A refresh is ordered all the same for requests
    that wait, and for changes that were rejected because the generation is used up.
    """
    decisions = step.decisions
    deferrals = [d for d in decisions if isinstance(d, Deferred)]
    retired = [row for d in decisions if isinstance(d, AcceptedDeletion) for row in d.retired]
    changes = [d for d in decisions if isinstance(d, AcceptedChange)]
    waiting = {one.accepted.asked.request_id: one.stored() for one in deferrals}
    meta, moves = step.after.meta, step.moves
    empties = moves and meta.rows_live == 0
    first = meta.first_deletion_at or now if moves and not empties else meta.first_deletion_at
    logged = meta.deletions_logged + len(retired)
    draft = Draft(before, CommitKind.REQUESTS, now, origin)
    draft.state = replace(
        step.after,
        meta=with_meta(meta, deletions_logged=logged, first_deletion_at=first),
        deferred={**before.deferred, **waiting},
    )
    if moves:
        draft.number_version()
    elif deferrals or _changes_rows(decisions):
        draft.order_refresh()
    sent = [_answer(draft, decision) for decision in decisions]
    arrays, live = None, None
    if empties:
        arrays, live = NOTHING, LiveGeneration(draft.state.generation_keys, ())
    elif moves:
        arrays = arrays_of(before, draft.state)
    made = [
        d
        for d in decisions
        if isinstance(d, AcceptedChange) or (isinstance(d, AcceptedDeletion) and d.rows)
    ]
    return draft.finish(
        request_ids=[decision.asked.request_id for decision in made],
        repeats=[receipt for receipt in sent if receipt is not None],
        arrays=arrays,
        live=live,
        written=step.written,
        deleted=(*step.deleted, *retired),
        erased=step.deleted,
        changes=tuple(change.kept for change in changes),
        tombstones=_tombstones(before, decisions, clock),
        deferred=waiting,
        empties=empties,
    )


def _changes_rows(decisions: Sequence[Decision]) -> bool:
    """Return whether a batch is one of inserts and corrections, of which none is applied."""
    return any(isinstance(d, Rejected) and d.asked.op != "delete" for d in decisions)


def _answer(draft: Draft, decision: Decision) -> bytes | str | None:
    """Give a request its receipt, or return one that is only sent.

    That is its bytes, or the id of a request of the same batch, whose receipt it is.
    """
    match decision:
        case AcceptedDeletion(asked=asked):
            draft.answer_applied(asked, rows_deleted=len(decision.rows))
        case AcceptedChange(asked=asked, kept=kept):
            which = "rows_inserted" if kept.inserts else "rows_corrected"
            draft.answer_applied(asked, **{which: len(kept.row_ids)})
        case Rejected(asked=asked):
            draft.answer_rejected(asked, decision.code, decision.detail)
        case Deferred(accepted=AcceptedDeletion(asked=asked), code=code):
            after = draft.state
            spent = code == codes.VERSIONS_SPENT
            waits = "`lethe register --replace`" if spent else "a rebuild without its rows"
            receipt = asked.receipt(
                after.model_id,
                "DEFERRED",
                draft.now,
                code=code,
                detail=f"{decision.detail}; it waits for {waits}",
                version=after.version,
                generation=after.meta.generation,
            )
            draft.answer(asked, receipt)
        case Conflicting(asked=asked, first=first):
            detail = "this request id was used before for another body; the first receipt stands"
            return asked.receipt(
                draft.before.model_id,
                "REJECTED",
                draft.now,
                code=codes.REQUEST_ID_CONFLICT,
                detail=detail,
                conflicts_with=first,
            ).value()
        case Duplicate(receipt=receipt):
            return receipt.value()
        case DuplicateInBatch(request_id=request_id):
            return request_id
    return None


def _tombstones(
    before: ModelState, decisions: Sequence[Decision], clock: float
) -> Tombstones | None:
    """Return what keeps inserts from bringing rows that these requests should have deleted.

    Its end is by the store's clock, which all workers share, and which then forgets it.
    """
    requests = [d.accepted if isinstance(d, Deferred) else d for d in decisions]
    unknown = {
        row
        for request in requests
        if isinstance(request, AcceptedDeletion | Rejected)
        for row in request.unknown
    }
    if not unknown or before.secret is None:
        return None
    marks = tuple(sorted(tombstone_of(before.secret, row) for row in unknown))
    return Tombstones(int(clock + ERASURE_SECONDS), marks)


def origin_of(records: Sequence[Record]) -> Origin:
    """Return the origin of a commit that processes these records (one partition, in order)."""
    first, last = records[0], records[-1]
    return Origin(
        str(first.partition),
        last.offset + 1,
        SourceRange(
            topic=first.partition.topic,
            partition=first.partition.index,
            first_offset=first.offset,
            last_offset=last.offset,
        ),
    )
