"""Steps 4 and 5, without I/O: decide each request of a batch, and compute the step they make.

Several requests become one batch of k rows and one version. A request whose rows the guards refuse
is deferred to a rebuild without them; its neighbours are applied.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from lethe.consumers.commits.packed import body_of, unpack
from lethe.consumers.contract import topics
from lethe.consumers.contract.commitment import rows_commitment
from lethe.consumers.contract.events import DeletionRequest, Op, Receipt, RowsChanged, Source
from lethe.consumers.deletions.validate import Refused, Valid
from lethe.consumers.log.base import Record
from lethe.consumers.refresh.lost_rows import DATA_LOST
from lethe.consumers.versions.certificates import fits, versions_spent
from lethe.engine.deletion.methods import method_named
from lethe.engine.deletion.stream import Stream, at_rest, delete
from lethe.engine.error.budget import OverBudget
from lethe.engine.error.certified import Ledger, after_deletion
from lethe.engine.error.estimate import published_error
from lethe.engine.errors import IllConditioned
from lethe.engine.fit.classes import class_counts
from lethe.engine.fit.factor import Factor
from lethe.engine.fit.objective import Array, Rows
from lethe.engine.preprocess.live import LivePipeline, RowsMoved
from lethe.engine.refresh.kinds import complete
from lethe.engine.store.lookup import Lookup
from lethe.engine.store.state import DeferredRequest, ModelState
from lethe.engine.store.stored_rows import read_rows

_WAITS = "its rows wait for a rebuild already"
_LOST = "the store has lost rows of this model; `lethe register --replace` brings it back"


@dataclass(frozen=True, slots=True)
class Rejected:
    """A final refusal: code and detail of its receipt, which is stored with ``body``.

    ``op`` is what was asked for; ``unknown`` are rows to be deleted that are not there.
    """

    source: Source
    request_id: str
    body: bytes
    code: str
    detail: str
    rows_unknown: int = 0
    commitment: str | None = None
    op: Op = "delete"
    unknown: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Duplicate:
    """A request that already has a receipt, which is sent again, byte for byte."""

    request_id: str
    receipt: Receipt


@dataclass(frozen=True, slots=True)
class DuplicateInBatch:
    """The same request twice in one batch: the receipt of the first answers both."""

    request_id: str


@dataclass(frozen=True, slots=True)
class Conflicting:
    """A request id that was used for another body; the first receipt stands."""

    source: Source
    request_id: str
    first: Source
    op: Op = "delete"


@dataclass(frozen=True, slots=True)
class Accepted:
    """An accepted request: rows to delete now (perhaps none), and rows deleted before.

    ``shares`` are earlier requests of the same batch that claimed rows which it names as well.
    ``unknown`` are rows that it names and that are not there.
    ``commitment`` is to all rows that it names. ``subject_id`` is whose rows it names, where it is
    not known which rows these are.
    """

    source: Source
    request_id: str
    body: bytes
    rows: tuple[str, ...]
    rows_unknown: int
    retired: tuple[str, ...] = ()
    shares: frozenset[str] = frozenset()
    commitment: str | None = None
    subject_id: str | None = None
    unknown: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Deferred:
    """A request that waits for a rebuild without its rows."""

    accepted: Accepted
    code: str
    detail: str


Decision = Rejected | Duplicate | DuplicateInBatch | Conflicting | Accepted | Deferred


@dataclass(frozen=True, slots=True)
class StepResult:
    """The outcome of a batch: decisions in the order of the records, and the new state.

    ``deleted`` are the rows that the step leaves out, in order; without any there is no new
    version. ``class_counts``, ``ledger`` (of a certified model) and ``pipeline`` (of one with
    preprocessing) are those after the step.
    """

    decisions: tuple[Decision, ...]
    deleted: tuple[str, ...]
    stream: Stream
    V_rows: Array
    Q_rows: Array
    class_counts: tuple[int, ...] | None
    empty: bool = False
    ledger: Ledger | None = None
    pipeline: LivePipeline | None = None


def source_of(record: Record) -> Source:
    """Return a record's place in the log, as receipts name it."""
    return Source(
        topic=record.partition.topic, partition=record.partition.index, offset=record.offset
    )


def op_of(item: Valid | Refused) -> Op:
    """Return what a record asks for; of one that cannot be read, what its topic is for."""
    if isinstance(item, Valid) and isinstance(item.request, RowsChanged):
        return item.request.op
    if isinstance(item, Refused) and item.record.partition.topic == topics.ROW_CHANGES:
        return "insert"
    return "delete"


def rows_named(
    requests: Sequence[Valid | Refused], subjects: Mapping[str, Sequence[str]]
) -> list[str]:
    """Return all rows that a batch names, without repeats, in order."""
    named: dict[str, None] = {}
    for item in requests:
        if isinstance(item, Valid):
            named |= dict.fromkeys(_rows_of(item, subjects))
    return list(named)


def _rows_of(item: Valid, subjects: Mapping[str, Sequence[str]]) -> tuple[str, ...]:
    request = item.request
    if request.subject_id is not None:
        return tuple(dict.fromkeys(subjects.get(request.subject_id, ())))
    return request.row_ids or ()


@dataclass
class Decider:
    """Decides the requests of one batch in order; knows the rows that earlier ones claimed."""

    state: ModelState
    lookup: Lookup
    subjects: Mapping[str, Sequence[str]]
    lost: bool
    waiting: frozenset[str]
    decisions: list[Decision] = field(default_factory=list)
    claimed: dict[str, str] = field(default_factory=dict)
    bodies: dict[str, tuple[bytes, Source]] = field(default_factory=dict)

    def decide(self, item: Valid | Refused) -> None:
        """Decide the next request for a deletion."""
        if self.decide_known(item) or not isinstance(item, Valid):
            return
        if isinstance(item.request, DeletionRequest):
            source = source_of(item.record)
            self.decisions.append(self._decide_valid(item, item.request, source))

    def decide_known(self, item: Valid | Refused) -> bool:
        """Decide what does not depend on the rows of the request; False for all others.

        These are repeats, records that were refused already, and models that were unregistered.
        """
        request_id = item.request.request_id if isinstance(item, Valid) else item.request_id
        if request_id is None:
            return True
        source, op = source_of(item.record), op_of(item)
        if self._is_repeat(source, request_id, item.body, op):
            return True
        self.bodies[request_id] = (item.body, source)
        if isinstance(item, Refused):
            code, detail = item.code, item.detail
        elif not self.state.registered:
            code = "MODEL_UNREGISTERED"
            detail = f"model {item.request.model_id!r} was unregistered"
        else:
            return False
        self.decisions.append(Rejected(source, request_id, item.body, code, detail, op=op))
        return True

    def _is_repeat(self, source: Source, request_id: str, body: bytes, op: Op) -> bool:
        stored = self.lookup.receipts.get(request_id)
        if stored is not None:
            receipt = unpack(stored, self.state.model_id, request_id).receipt
            if body_of(stored) == body:
                self.decisions.append(Duplicate(request_id, receipt))
            else:
                self.decisions.append(Conflicting(source, request_id, receipt.source, op))
            return True
        if request_id in self.bodies:
            first_body, first = self.bodies[request_id]
            same = first_body == body
            conflict = Conflicting(source, request_id, first, op)
            self.decisions.append(DuplicateInBatch(request_id) if same else conflict)
            return True
        return False

    def _decide_valid(self, item: Valid, request: DeletionRequest, source: Source) -> Decision:
        if self.lost and request.subject_id not in (None, *self.subjects):
            return self._defer_subject(item, source)
        rows = _rows_of(item, self.subjects)
        live, retired, unknown, deleted_before = [], [], [], 0
        shares: set[str] = set()
        for row in rows:
            if row in self.claimed:
                deleted_before += 1
                shares.add(self.claimed[row])
            elif row in self.lookup.ledger:
                deleted_before += 1
            elif row in self.lookup.records or row in self.lookup.unread:
                live.append(row)
            elif row in self.lookup.retired:
                retired.append(row)
            elif self.lost:  # it may be one of the missing rows
                live.append(row)
            else:
                unknown.append(row)
        request_id = request.request_id
        commitment = rows_commitment(self.state.secret, request_id, rows)
        if not live and not retired and not deleted_before:
            # Many can read a receipt, so it names neither rows nor subjects.
            by_subject = request.subject_id is not None
            which = "no row of this subject" if by_subject else "none of these rows"
            detail = f"{which} is or ever was in this model"
            return Rejected(
                source,
                request_id,
                item.body,
                "UNKNOWN_ROWS",
                detail,
                len(unknown),
                commitment,
                unknown=() if request.strict else tuple(unknown),
            )
        if unknown and request.strict:
            missing = len(unknown)
            detail = f"the model never had {missing} of the named rows, and the request is strict"
            return Rejected(
                source, request_id, item.body, "UNKNOWN_ROWS", detail, missing, commitment
            )
        accepted = Accepted(
            source,
            request_id,
            item.body,
            tuple(live),
            len(unknown),
            tuple(retired),
            frozenset(shares),
            commitment,
            unknown=tuple(unknown),
        )
        if live and self.lost:
            return Deferred(accepted, DATA_LOST, _LOST)
        if live and (self.state.awaiting_rebuild or self.waiting.intersection(live)):
            return Deferred(accepted, "AWAITING_REBUILD", _WAITS)
        self.claimed |= dict.fromkeys((*live, *retired), request_id)
        return accepted

    @staticmethod
    def _defer_subject(item: Valid, source: Source) -> Deferred:
        """Defer a request by subject: which rows are the subject's is lost with the rows."""
        request = item.request
        accepted = Accepted(
            source, request.request_id, item.body, (), 0, subject_id=request.subject_id
        )
        return Deferred(accepted, DATA_LOST, _LOST)


def decide(
    state: ModelState,
    items: Sequence[Valid | Refused],
    lookup: Lookup,
    subjects: Mapping[str, Sequence[str]],
    *,
    lost: bool = False,
) -> tuple[Decision, ...]:
    """Decide (step 4) a batch's requests, in order. Pure.

    ``lost``: rows of the model are missing from the store, and it is not known which; every request
    that may name one of them is deferred.
    """
    decider = Decider(state, lookup, subjects, lost, state.deferred_rows)
    for item in items:
        decider.decide(item)
    return tuple(decider.decisions)


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
        *_no_rows(state),
        state.meta.class_counts,
        ledger=state.meta.ledger,
        pipeline=state.pipeline,
    )
    accepted = [d for d in decisions if isinstance(d, Accepted)]
    if not any(request.rows for request in accepted):
        return unchanged
    try:
        return _extend(state, unchanged, accepted, lookup, factor)
    except _GuardRefusal:
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
            deferrals[request.request_id] = Deferred(request, "AWAITING_REBUILD", _WAITS)
            continue
        try:
            batch = _extend(state, batch, [request], lookup, factor) if request.rows else batch
        except _GuardRefusal as refusal:
            deferrals[request.request_id] = Deferred(request, refusal.code, refusal.detail)
    decisions = tuple(
        deferrals.get(d.request_id, d) if isinstance(d, Accepted) else d for d in batch.decisions
    )
    return replace(batch, decisions=decisions)


class _GuardRefusal(Exception):
    """A guard refuses an update; a rebuild can leave the rows out."""

    def __init__(self, code: str, detail: str) -> None:
        super().__init__(detail)
        self.code = code
        self.detail = detail


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
        return StepResult(batch.decisions, deleted, zero, *_no_rows(state), counts, empty=True)
    if versions_spent(state):
        detail = f"the terms allow {state.meta.noised} versions, and as many are published"
        raise _GuardRefusal("VERSIONS_SPENT", detail)
    limit = config.limits.limits().hard_rows(config.d)
    detail = f"more than {limit} rows would be deleted since the last rebuild"
    full = _GuardRefusal("GENERATION_FULL", detail)
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
        step = delete(state.generation, batch.stream, rows, decoded.W, method_named(config.method))
        stream, pipeline = step.stream, batch.pipeline
        if pipeline is not None and decoded.transformed is not None:
            if factor is None:
                raise AssertionError(f"model {state.model_id!r}: its factor was not loaded")
            change = RowsMoved(leaving=decoded.transformed)
            stream, pipeline = pipeline.after(
                state.generation, stream, factor, change, config.method
            )
            pipeline.error(state.generation, stream)  # it can be stated
    except IllConditioned as error:
        raise _GuardRefusal(error.code, str(error)) from error
    ledger = _ledger_after(state, batch, stream, rows)
    if config.over_budget is OverBudget.HOLD:
        _check_budget(replace(state, pipeline=pipeline), stream, deleted)
    return StepResult(
        batch.decisions,
        deleted,
        stream,
        np.vstack([batch.V_rows, step.V_rows]) if batch.deleted else step.V_rows,
        np.vstack([batch.Q_rows, step.Q_rows]) if batch.deleted else step.Q_rows,
        counts,
        ledger=ledger,
        pipeline=pipeline,
    )


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
        raise _GuardRefusal("OVER_BUDGET", detail)


def _ledger_after(state: ModelState, batch: StepResult, after: Stream, rows: Rows) -> Ledger | None:
    """Return the ledger of a certified model after the step, which must stay within its budget."""
    if batch.ledger is None:
        return None
    ledger = after_deletion(batch.ledger, state.generation, batch.stream, after, rows)
    if not fits(state.meta.config, ledger, state.generation, after):
        detail = "the noise would not hide what the step leaves: the certificate's budget is spent"
        raise _GuardRefusal("CERTIFICATE_SPENT", detail)
    return ledger


def _no_rows(state: ModelState) -> tuple[Array, Array]:
    """Return empty arrays: no rows of V, none of Q."""
    config = state.meta.config
    return np.empty((0, config.blocks * config.d)), np.empty((0, config.d))


def _class_counts(state: ModelState, batch: StepResult, rows: Rows) -> tuple[int, ...] | None:
    """Return how many rows each class has left; a class with none needs a penalised intercept."""
    if batch.class_counts is None:
        return None
    deleted = class_counts(rows.y)
    counts = tuple(old - less for old, less in zip(batch.class_counts, deleted, strict=True))
    if min(counts) > 0 or state.generation.objective.penalty.min() > 0:
        return counts
    if len(counts) == 2:
        raise _GuardRefusal(
            "ONE_CLASS_LEFT", "only one class would be left: the intercept needs a ridge"
        )
    name = state.meta.config.class_names[counts.index(0)]
    raise _GuardRefusal(
        "CLASS_EMPTIED", f"no row of class {name!r} would be left: the intercepts need a ridge"
    )


def deferred_record(deferral: Deferred) -> DeferredRequest:
    """Return what the state keeps of a deferred request until its final receipt."""
    accepted = deferral.accepted
    return DeferredRequest(
        request_id=accepted.request_id,
        body=accepted.body.hex(),
        row_ids=accepted.rows,
        retired=accepted.retired,
        rows_unknown=accepted.rows_unknown,
        code=deferral.code,
        source=accepted.source.model_dump(),
        rows_commitment=accepted.commitment,
        subject_id=accepted.subject_id,
    )
