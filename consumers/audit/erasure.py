"""Gathering the evidence of one erasure from the log and the store (`lethe erasures --bundle`).

Of each model that was asked: its receipts, the versions that they are in, and the proofs that they
are in its receipt log; up to the first version from there on that a trusted key signed. It costs
one pass over the receipts and the versions of the log, whatever the number of models. What cannot
be read any more is left out, and the audit of the file says so.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime

from lethe.consumers.audit.published.bundle import (
    STORED,
    Cosigned,
    Header,
    InclusionProof,
    Item,
    Opening,
    Part,
)
from lethe.consumers.commits.packed_receipt import Indexed, unpack
from lethe.consumers.commits.receipt_index import leaves_of
from lethe.consumers.contract import topics
from lethe.consumers.contract.erasure_events import SubjectErasureCompleted
from lethe.consumers.contract.events import Version, rfc3339
from lethe.consumers.contract.receipt import Receipt
from lethe.consumers.contract.sealing import SealKeys
from lethe.consumers.contract.signatures import TrustedKeys
from lethe.consumers.contract.signed_log import is_believed
from lethe.consumers.contract.tlog import of_log, read_head
from lethe.consumers.erasures.known import KnownErasures, UnknownErasure
from lethe.consumers.log.base import Partition, Reader, Record
from lethe.consumers.log.scan import scan_topic
from lethe.consumers.service.telemetry.progress import Progress, no_progress
from lethe.consumers.suppression.marks import DEFAULT_NAMESPACE, opening_salt
from lethe.engine.errors import CorruptState, InvalidRequest
from lethe.engine.merkle import inclusion_proof, leaf_hash, verify_inclusion
from lethe.engine.store.layout.keys import ModelKeys
from lethe.engine.store.store import ModelStore


@dataclass(frozen=True, slots=True)
class ErasureEvidence:
    """The evidence of an erasure, as the lines of its file (`published.bundle.bundle_lines`)."""

    header: Header
    receipt: SubjectErasureCompleted
    items: Iterable[Item]


def evidence_of(
    store: ModelStore,
    reader: Reader,
    erasure_id: str,
    *,
    trusted: TrustedKeys | None,
    seals: SealKeys | None = None,
    subject_id: str | None = None,
    cosigned: Sequence[str] = (),
    progress: Progress = no_progress,
) -> ErasureEvidence:
    """Return the evidence of an erasure as it is now.

    Parameters
    ----------
    trusted
        The keys whose signatures count. A receipt that none of them vouches for is none.
    seals, subject_id
        For the person's own copy: what opens the commitment to them, and who they are said to be.
        Without, the file names nobody.
    cosigned
        Checkpoints that witnesses have cosigned: the file also has proofs for their tree heads.

    Raises
    ------
    UnknownErasure
        There is no receipt of it.
    InvalidRequest
        The erasure is not of this person, or it cannot be opened here.
    """
    record = KnownErasures(store.client, reader, trusted).record_of(erasure_id)
    if record is None:
        raise UnknownErasure(
            f"erasure {erasure_id!r} has no receipt: it is not processed yet, was never sent, or "
            f"{topics.ERASURE_RECEIPTS} no longer keeps it (`lethe erasures` lists them)"
        )
    receipt = SubjectErasureCompleted.read(record.value or b"")
    items: list[Item] = [record, *_of_models(store, reader, receipt, trusted, cosigned, progress)]
    if subject_id is not None:
        items.append(_opening(seals, receipt, subject_id))
    keys = () if trusted is None else trusted.texts
    header = Header("", rfc3339(datetime.now(UTC)), keys, erasure_id=erasure_id)
    return ErasureEvidence(header, receipt, items)


def _opening(seals: SealKeys | None, receipt: SubjectErasureCompleted, subject_id: str) -> Opening:
    what = f"erasure {receipt.erasure_id!r}"
    if seals is None:
        raise InvalidRequest(
            f"{what} cannot be opened: this process has no seal key (LETHE_SEAL_KEY_FILE)"
        )
    subject = (receipt.namespace or DEFAULT_NAMESPACE, subject_id)
    commitment = receipt.subject_commitment
    salt = opening_salt(seals, receipt.erasure_id, receipt.op, commitment, subject)
    if salt is None:
        raise InvalidRequest(
            f"{what} does not concern this subject, or its receipt was made by an older release "
            "or under a seal key that this process lacks: its commitment cannot be opened for "
            "this subject"
        )
    return Opening(subject_id, salt)


# -- the models -----------------------------------------------------------------------------------


@dataclass(slots=True)
class _Answers:
    """What one model answered.

    Attributes
    ----------
    requests
        What it was asked.
    kept
        What the store has of these requests.
    cosigned
        Checkpoints of its receipt log that witnesses have cosigned.
    receipts
        Their receipts by value, each where it is signed, if it is.
    versions
        By value, those that the receipts are in, and all up to the first that is signed.
    numbers, places
        The versions that receipts name, and where final receipts are in the receipt log.
    complete
        Whether there are enough versions.
    """

    model_id: str
    requests: frozenset[str]
    kept: Mapping[str, Indexed]
    cosigned: Sequence[str]
    receipts: dict[bytes, Record] = field(default_factory=dict)
    versions: dict[bytes, tuple[Version, Record]] = field(default_factory=dict)
    numbers: frozenset[int] = frozenset()
    places: frozenset[int] = frozenset()
    complete: bool = False

    @property
    def seen(self) -> int:
        """The size of the first log that witnesses have seen with all receipts; 0: of none."""
        sizes = sorted(read_head(note).size for note in self.cosigned)
        return next((size for size in sizes if size > max(self.places, default=-1)), 0)


def _of_models(
    store: ModelStore,
    reader: Reader,
    receipt: SubjectErasureCompleted,
    trusted: TrustedKeys | None,
    cosigned: Sequence[str],
    progress: Progress,
) -> Iterator[Item]:
    models = {
        one.model_id.encode(): _Answers(
            one.model_id,
            frozenset(one.request_ids),
            _kept(store, one.model_id, one.request_ids),
            of_log(cosigned, one.model_id),
        )
        for one in receipt.models
        if one.request_ids
    }
    if not models:
        return
    for record in scan_topic(reader, topics.RECEIPTS, progress):
        if (model := models.get(record.key or b"")) is not None:
            _add_receipt(model, record, trusted)
    for model in models.values():
        _add_stored(model)
    for record in scan_topic(reader, topics.VERSIONS, progress):
        if (model := models.get(record.key or b"")) is not None:
            _add_version(model, record, trusted)
    for model in models.values():
        yield Part(model.model_id)
        yield from (record for _, record in model.versions.values())
        yield from model.receipts.values()
        yield from _proofs(store, model)
        yield from map(Cosigned, model.cosigned)


def _kept(store: ModelStore, model_id: str, requests: Iterable[str]) -> dict[str, Indexed]:
    """Return what the store has of requests; a receipt that cannot be read is none."""
    kept: dict[str, Indexed] = {}
    for request in requests:
        with suppress(CorruptState):
            if (stored := store.receipt(model_id, request)) is not None:
                kept[request] = unpack(stored, model_id, request)
    return kept


def _add_receipt(model: _Answers, record: Record, trusted: TrustedKeys | None) -> None:
    """Keep a receipt of one of the requests: the first that is signed of those with its value."""
    value = record.value or b""
    try:
        receipt = Receipt.read(value)
    except ValueError:
        return
    if receipt.request_id not in model.requests:
        return
    kept = model.kept.get(receipt.request_id)
    believed = is_believed(record, trusted)
    if believed or (kept is not None and kept.receipt.value() == value):
        known = model.receipts.get(value)
        if known is None or (believed and not is_believed(known, trusted)):
            model.receipts[value] = record


def _add_stored(model: _Answers) -> None:
    """Add the final receipts that the log has removed; note where receipts must be found."""
    finals = [one for one in model.kept.values() if one.final]
    for one in finals:
        value = one.receipt.value()
        if value not in model.receipts:
            place = Partition(topics.RECEIPTS, "", STORED)
            model.receipts[value] = Record(place, STORED, model.model_id.encode(), value)
    found = (Receipt.read(value) for value in model.receipts)
    named = (one.version for one in found if one.status == "APPLIED")
    model.numbers = frozenset(number for number in named if number is not None)
    model.places = frozenset(one.place for one in finals if one.place >= 0)


def _add_version(model: _Answers, record: Record, trusted: TrustedKeys | None) -> None:
    """Keep a version from the first one that has a receipt on, until one after the last is signed.

    Versions of a model are in the order of their numbers, but for repeats.
    """
    value, believed = record.value or b"", is_believed(record, trusted)
    if model.complete and value not in model.versions:
        return
    try:
        version = Version.read(value)
    except ValueError:
        return
    size = 0 if version.receipt_log is None else version.receipt_log.size
    reached = [number <= version.version for number in model.numbers]
    reached += [place < size for place in model.places]
    if not any(reached):
        return
    reached.append(size >= model.seen)
    if value not in model.versions or (
        believed and not is_believed(model.versions[value][1], trusted)
    ):
        model.versions[value] = (version, record)
    model.complete |= all(reached) and believed


def _proofs(store: ModelStore, model: _Answers) -> Iterator[InclusionProof]:
    """Yield the proofs of each final receipt.

    In the log of the first version that has it, and in one whose tree head witnesses have seen.
    """
    heads = [
        (version.version, version.receipt_log)
        for version, _ in model.versions.values()
        if version.receipt_log is not None
    ]
    most = max((head.size for _, head in heads), default=0)
    try:
        leaves = leaves_of(store, ModelKeys(model.model_id), most)
    except CorruptState:
        return  # `lethe audit` reports what is missing
    for one in model.kept.values():
        leaf, place = leaf_hash(one.receipt.value()), one.place
        having = [(number, head) for number, head in heads if 0 <= place < head.size]
        seen = [(number, head) for number, head in having if head.size == model.seen]
        for number, head in dict([*having[:1], *seen[:1]]).items() if one.final else ():
            path = inclusion_proof(leaves[: head.size], place)
            if verify_inclusion(leaf, place, head.size, path, bytes.fromhex(head.root)):
                yield InclusionProof(leaf, number, place, path)
