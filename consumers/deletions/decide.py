"""Step 4, without I/O: decide each request of a batch, in the order of the log."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace

from lethe.consumers.commits.commit import RowChange
from lethe.consumers.commits.packed_receipt import body_of, unpack
from lethe.consumers.commits.recovery.change_requests import digest_of
from lethe.consumers.commits.recovery.changed_rows import check_values, old_weights
from lethe.consumers.contract import codes, topics
from lethe.consumers.contract.commitment import rows_commitment, tombstone_of
from lethe.consumers.contract.events import DeletionRequest, RowsChanged, Source
from lethe.consumers.contract.receipt import Op
from lethe.consumers.contract.requests import is_of_erasure, source_of
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
from lethe.consumers.versions.receipts import Asked
from lethe.engine.errors import InvalidData
from lethe.engine.store.layout.state import ModelState
from lethe.engine.store.lookup import Lookup

WAITS = "its rows wait for a rebuild already"
OTHER_PEOPLE = "the subjects of this model are of another namespace"
_STRICT = "the model never had {} of the named rows, and the request is strict"
_LOST = "the store has lost rows of this model; `lethe register --replace` brings it back"


@dataclass(frozen=True, slots=True)
class BatchFacts:
    """What a batch is decided on, beside the state of its model.

    Attributes
    ----------
    lookup
        What the store has of requests and rows.
    subjects
        The rows of each subject that a request names.
    lost
        Whether rows of the model are missing from the store, and it is not known which.
    encrypted
        Whether the store keeps its row records encrypted.
    erased
        Which subjects of new rows are on the suppression list.
    """

    lookup: Lookup
    subjects: Mapping[str, Sequence[str]] = field(default_factory=dict)
    lost: bool = False
    encrypted: bool = False
    erased: Collection[str] = ()


def decide(
    state: ModelState, items: Sequence[Valid | Invalid], facts: BatchFacts
) -> tuple[Decision, ...]:
    """Decide (step 4) a batch's requests, in order. Pure."""
    decider = _Decider(state, facts)
    decisions = (decider.decide(item) for item in items)
    return tuple(decision for decision in decisions if decision is not None)


def op_of(item: Valid | Invalid) -> Op:
    """Return what a record asks for; of one that cannot be read, what its topic is for."""
    if isinstance(item, Valid) and isinstance(item.request, RowsChanged):
        return item.request.op
    if isinstance(item, Invalid) and item.record.partition.topic == topics.ROW_CHANGES:
        return "insert"
    return "delete"


def rows_named(item: Valid | Invalid, subjects: Mapping[str, Sequence[str]]) -> tuple[str, ...]:
    """Return all rows that a request names, without repeats, in order."""
    if isinstance(item, Invalid):
        return ()
    if item.request.subject_id is not None:
        return tuple(dict.fromkeys(subjects.get(item.request.subject_id, ())))
    return item.request.row_ids or ()


def rows_of_erasures(
    requests: Sequence[Valid | Invalid],
    decisions: Sequence[Decision],
    subjects: Mapping[str, Sequence[str]],
) -> list[str]:
    """Return the rows of people whom a batch erases, also those that were deleted before."""
    accepted = (d.accepted if isinstance(d, Deferred) else d for d in decisions)
    ids = {d.asked.request_id for d in accepted if isinstance(d, AcceptedDeletion)}
    erasures = [
        item for item in requests if item.request_id in ids and is_of_erasure(item.request_id)
    ]
    return list(dict.fromkeys(row for one in erasures for row in rows_named(one, subjects)))


def tombstones_of(state: ModelState, rows: Sequence[str]) -> list[str]:
    """Return the tombstones that a deletion leaves of these rows if the model has none of them."""
    return [] if state.secret is None else [tombstone_of(state.secret, row) for row in rows]


@dataclass(slots=True)
class _Found:
    """Rows that a request to delete names, by what is known of them."""

    live: list[str] = field(default_factory=list)
    retired: list[str] = field(default_factory=list)
    unknown: list[str] = field(default_factory=list)
    perhaps: list[str] = field(default_factory=list)
    shares: set[str] = field(default_factory=set)
    deleted_before: int = 0


@dataclass
class _Decider:
    """Decides the requests of one batch in order; knows the rows that earlier ones claimed."""

    state: ModelState
    facts: BatchFacts
    claimed: dict[str, str] = field(default_factory=dict)
    bodies: dict[str, tuple[bytes, Source]] = field(default_factory=dict)

    def decide(self, item: Valid | Invalid) -> Decision | None:
        """Decide the next request; None: it has no id, and becomes only a dead letter."""
        if item.request_id is None:
            return None
        asked = Asked(source_of(item.record), item.request_id, item.body, op_of(item))
        repeat = self._repeat(asked)
        if repeat is not None:
            return repeat
        self.bodies[asked.request_id] = (asked.body, asked.source)
        if isinstance(item, Invalid):
            return Rejected(asked, item.code, item.detail)
        if not self.state.registered:
            detail = f"model {self.state.model_id!r} was unregistered"
            return Rejected(asked, codes.MODEL_UNREGISTERED, detail)
        if isinstance(item.request, RowsChanged):
            return self._change(asked, item, item.request)
        return self._deletion(asked, item, item.request)

    def _repeat(self, asked: Asked) -> Decision | None:
        """Decide a request whose id was used before."""
        request_id = asked.request_id
        stored = self.facts.lookup.receipts.get(request_id)
        if stored is not None:
            receipt = unpack(stored, self.state.model_id, request_id).receipt
            same = body_of(stored) == asked.body
            return Duplicate(receipt) if same else Conflicting(asked, receipt.source)
        if request_id in self.bodies:
            body, first = self.bodies[request_id]
            return DuplicateInBatch(request_id) if body == asked.body else Conflicting(asked, first)
        return None

    # -- deletions ------------------------------------------------------------------------------

    def _deletion(self, asked: Asked, item: Valid, request: DeletionRequest) -> Decision:
        facts, state = self.facts, self.state
        if not state.meta.config.has_subjects_of(request.namespace):
            # The model was replaced while the request was on its way: these are other people's.
            asked = self._bound(asked, request.row_ids or (), len(request.row_ids or ()))
            return Rejected(asked, codes.UNKNOWN_ROWS, OTHER_PEOPLE)
        if facts.lost and request.subject_id not in (None, *facts.subjects):
            # Which rows are the subject's is lost with the rows.
            accepted = AcceptedDeletion(
                asked, (), subject_id=request.subject_id, namespace=request.namespace
            )
            return Deferred(accepted, codes.DATA_LOST, _LOST)
        rows = rows_named(item, facts.subjects)
        found = self._find(rows)
        asked = self._bound(asked, rows, len(found.unknown))
        if not (found.live or found.retired or found.deleted_before):
            # Many can read a receipt, so it names neither rows nor subjects.
            by_subject = request.subject_id is not None
            which = "no row of this subject" if by_subject else "none of these rows"
            kept_out = () if request.strict else tuple(found.unknown)
            detail = f"{which} is or ever was in this model"
            return Rejected(asked, codes.UNKNOWN_ROWS, detail, kept_out)
        if found.unknown and request.strict:
            return Rejected(asked, codes.UNKNOWN_ROWS, _STRICT.format(len(found.unknown)))
        accepted = AcceptedDeletion(
            asked,
            tuple(found.live),
            tuple(found.retired),
            frozenset(found.shares),
            unknown=(*found.unknown, *found.perhaps),
            namespace=request.namespace,
        )
        waits = state.awaiting_rebuild or not state.deferred_rows.isdisjoint(found.live)
        if found.live and (facts.lost or waits):
            why = (codes.DATA_LOST, _LOST) if facts.lost else (codes.AWAITING_REBUILD, WAITS)
            return Deferred(accepted, *why)
        self.claimed |= dict.fromkeys((*found.live, *found.retired), asked.request_id)
        return accepted

    def _find(self, rows: Sequence[str]) -> _Found:
        """Return what is known of rows that a request names."""
        lookup, found = self.facts.lookup, _Found()
        for row in rows:
            if row in self.claimed:
                found.deleted_before += 1
                found.shares.add(self.claimed[row])
            elif row in lookup.ledger:
                found.deleted_before += 1
            elif row in lookup.records or row in lookup.unread:
                found.live.append(row)
            elif row in lookup.retired:
                found.retired.append(row)
            elif self.facts.lost:  # it may be one of the missing rows, or unknown
                found.live.append(row)
                found.perhaps.append(row)
            else:
                found.unknown.append(row)
        return found

    def _bound(self, asked: Asked, rows: Sequence[str], unknown: int) -> Asked:
        """Return a request whose receipt is bound to the rows that it names."""
        commitment = rows_commitment(self.state.secret, asked.request_id, rows)
        return replace(asked, rows_unknown=unknown, commitment=commitment)

    # -- inserts and corrections ------------------------------------------------------------------

    def _change(self, asked: Asked, item: Valid, request: RowsChanged) -> Decision:
        """Decide a request that names no row that another of the batch names."""
        asked = self._bound(asked, request.row_ids, 0)
        refusal = (
            self._model_refuses()
            or self._subjects_refuse(request)
            or self._tombstones_refuse(request)
            or self._rows_refuse(request)
            or self._values_refuse(request)
        )
        if refusal is not None:
            return Rejected(asked, *refusal)
        place = item.record.partition
        kept = RowChange(
            request.op == "insert",
            request.row_ids,
            str(place),
            item.record.offset,
            digest_of(item.record),
        )
        return AcceptedChange(asked, request, kept)

    def _model_refuses(self) -> tuple[str, str] | None:
        """Return code and detail of why no row of the model can change now, or None."""
        state = self.state
        if state.meta.config.certify is not None:
            return codes.UNSUPPORTED, "rows of a certified model cannot be inserted or corrected"
        if self.facts.encrypted:
            return codes.UNSUPPORTED, "encrypted row records cannot be inserted or corrected yet"
        if state.meta.rows_live == 0:
            return (
                codes.MODEL_EMPTY,
                "the model has no rows; `lethe register --replace` begins again",
            )
        if self.facts.lost:
            return (
                codes.DATA_LOST,
                "the store has lost rows of this model; send the request again once they are back",
            )
        if state.awaiting_rebuild or state.deferred:
            return (
                codes.AWAITING_REBUILD,
                "the model waits for a rebuild; send the request again afterwards",
            )
        return None

    def _subjects_refuse(self, request: RowsChanged) -> tuple[str, str] | None:
        """Return code and detail if rows may not become those of their subjects, or None."""
        meta, owned = self.state.meta, any(row.subject is not None for row in request.rows)
        if owned and meta.row_files is not None and meta.config.subject_namespace is None:
            detail = "the model was registered without subjects, and its rows are in files"
            return codes.UNSUPPORTED, f"{detail}: give none, or register it anew with --subject"
        theirs = sum(
            row.subject in self.facts.erased for row in request.rows if row.subject is not None
        )
        if not theirs:
            return None
        return codes.SUBJECT_ERASED, f"{theirs} of the rows belong to subjects that were erased"

    def _tombstones_refuse(self, request: RowsChanged) -> tuple[str, str] | None:
        """Return code and detail if the deletion of an inserted row came before it, or None."""
        if request.op != "insert":
            return None
        lookup, marks = self.facts.lookup, tombstones_of(self.state, request.row_ids)
        waiting = sum(lookup.tombstones.get(mark, 0.0) > lookup.clock for mark in marks)
        if not waiting:
            return None
        return (
            codes.ROW_DELETED,
            f"a deletion of {waiting} of the rows arrived up to a day before them",
        )

    def _rows_refuse(self, request: RowsChanged) -> tuple[str, str] | None:
        """Return code and detail of why these rows cannot change, or None.

        Many can read a receipt, so it counts rows and does not name them.
        """
        lookup, rows = self.facts.lookup, request.row_ids
        live = lookup.records.keys() | lookup.unread
        deleted = sum(row in lookup.ledger for row in rows)
        if deleted:
            return codes.ROW_DELETED, f"{deleted} of the rows were deleted, and never come back"
        if request.op == "insert":
            known = live.intersection(rows)
            if known:
                detail = f"{len(known)} of the rows are in the model; correct them instead"
                return codes.ROW_EXISTS, detail
            return None
        unknown = sum(row not in live for row in rows)
        if unknown:
            return codes.ROW_UNKNOWN, f"{unknown} of the rows are not in the model"
        if any(row.subject is not None for row in request.rows):
            return codes.SCHEMA, "a corrected row keeps its subject; give none"
        return None

    def _values_refuse(self, request: RowsChanged) -> tuple[str, str] | None:
        """Return code and detail of why the values do not fit the model, or None."""
        try:
            config = self.state.meta.config
            check_values(request, config, old_weights(self.facts.lookup.records, config))
        except InvalidData as error:
            return codes.SCHEMA, str(error)
        return None
