"""Step 4, without I/O: decide each request of a batch, in the order of the log."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from lethe.consumers.commits.packed_receipt import body_of, unpack
from lethe.consumers.contract import topics
from lethe.consumers.contract.commitment import rows_commitment
from lethe.consumers.contract.events import DeletionRequest, RowsChanged, Source
from lethe.consumers.contract.receipt import Op, Receipt
from lethe.consumers.contract.requests import is_of_erasure, source_of
from lethe.consumers.deletions.validate import Refused, Valid
from lethe.consumers.refresh.lost_rows import DATA_LOST
from lethe.engine.store.layout.state import DeferredRequest, ModelState
from lethe.engine.store.lookup import Lookup

WAITS = "its rows wait for a rebuild already"
OTHER_PEOPLE = "the subjects of this model are of another namespace"
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
    ``unknown`` are rows that it names and that are not there, or, while rows of the model are lost,
    may never have been: no insert brings them. ``commitment`` is to all rows that it names.
    ``subject_id`` is whose rows it names, where it is not known which rows these are.
    ``namespace`` is that of the people whom it is about, if it says so.
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
    namespace: str | None = None


@dataclass(frozen=True, slots=True)
class Deferred:
    """A request that waits for a rebuild without its rows."""

    accepted: Accepted
    code: str
    detail: str


Decision = Rejected | Duplicate | DuplicateInBatch | Conflicting | Accepted | Deferred


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


def rows_of_erasures(
    requests: Sequence[Valid | Refused],
    decisions: Sequence[object],
    subjects: Mapping[str, Sequence[str]],
) -> list[str]:
    """Return the rows of people whom a batch erases, also those that were deleted before."""
    accepted = (d.accepted if isinstance(d, Deferred) else d for d in decisions)
    erasures = {
        decision.request_id
        for decision in accepted
        if isinstance(decision, Accepted) and is_of_erasure(decision.request_id)
    }
    return rows_named(
        [r for r in requests if isinstance(r, Valid) and r.request.request_id in erasures], subjects
    )


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
        source = source_of(item.record)
        if self.decide_known(item, source) or not isinstance(item, Valid):
            return
        request = item.request
        if isinstance(request, DeletionRequest):
            ours = self.state.meta.config.has_subjects_of(request.namespace)
            decided = self._decide_valid if ours else self._of_others
            self.decisions.append(decided(item, request, source))

    def decide_known(self, item: Valid | Refused, source: Source) -> bool:
        """Decide what does not depend on the rows of the request; False for all others.

        These are repeats, records that were refused already, and models that were unregistered.
        """
        request_id = item.request.request_id if isinstance(item, Valid) else item.request_id
        if request_id is None:
            return True
        if self._is_repeat(item, source, request_id):
            return True
        self.bodies[request_id] = (item.body, source)
        if isinstance(item, Refused):
            code, detail = item.code, item.detail
        elif not self.state.registered:
            code = "MODEL_UNREGISTERED"
            detail = f"model {item.request.model_id!r} was unregistered"
        else:
            return False
        op = op_of(item)
        self.decisions.append(Rejected(source, request_id, item.body, code, detail, op=op))
        return True

    def _is_repeat(self, item: Valid | Refused, source: Source, request_id: str) -> bool:
        stored = self.lookup.receipts.get(request_id)
        if stored is not None:
            receipt = unpack(stored, self.state.model_id, request_id).receipt
            same = body_of(stored) == item.body
            conflict = Conflicting(source, request_id, receipt.source, op_of(item))
            self.decisions.append(Duplicate(receipt) if same else conflict)
            return True
        if request_id in self.bodies:
            first_body, first = self.bodies[request_id]
            same = first_body == item.body
            conflict = Conflicting(source, request_id, first, op_of(item))
            self.decisions.append(DuplicateInBatch(request_id) if same else conflict)
            return True
        return False

    def _decide_valid(self, item: Valid, request: DeletionRequest, source: Source) -> Decision:
        if self.lost and request.subject_id not in (None, *self.subjects):
            return self._defer_subject(item, request, source)
        rows = _rows_of(item, self.subjects)
        live, retired, unknown, perhaps, deleted_before = [], [], [], [], 0
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
            elif self.lost:  # it may be one of the missing rows, or unknown
                live.append(row)
                perhaps.append(row)
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
            unknown=(*unknown, *perhaps),
            namespace=request.namespace,
        )
        if live and self.lost:
            return Deferred(accepted, DATA_LOST, _LOST)
        if live and (self.state.awaiting_rebuild or self.waiting.intersection(live)):
            return Deferred(accepted, "AWAITING_REBUILD", WAITS)
        self.claimed |= dict.fromkeys((*live, *retired), request_id)
        return accepted

    def _of_others(self, item: Valid, request: DeletionRequest, source: Source) -> Rejected:
        """Reject a request about subjects of another namespace than the model's.

        The model was replaced while the request was on its way: the same ids are other people's.
        """
        rows = request.row_ids or ()
        commitment = rows_commitment(self.state.secret, request.request_id, rows)
        return Rejected(
            source,
            request.request_id,
            item.body,
            "UNKNOWN_ROWS",
            OTHER_PEOPLE,
            len(rows),
            commitment,
        )

    @staticmethod
    def _defer_subject(item: Valid, request: DeletionRequest, source: Source) -> Deferred:
        """Defer a request by subject: which rows are the subject's is lost with the rows."""
        accepted = Accepted(
            source,
            request.request_id,
            item.body,
            (),
            0,
            subject_id=request.subject_id,
            namespace=request.namespace,
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
        namespace=accepted.namespace,
    )
