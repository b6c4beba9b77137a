"""What became of one request: how it was sent, processed and published, with the evidence.

The report draws on the log and the store, each as far as it still has the facts: requests expire
from the log first, receipts later, and the state keeps final receipts for ever.
`consumers.audit.request_rows` reports on the rows.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from lethe.consumers.audit.checks import chain_finding
from lethe.consumers.audit.finding import Finding
from lethe.consumers.audit.history import CONFLICT, History, VersionFact
from lethe.consumers.audit.reading import extent_of, records_of_model
from lethe.consumers.audit.request_commit import Decided, decided_by
from lethe.consumers.commits.packed import Indexed, unpack
from lethe.consumers.commits.receipt_index import leaves_of
from lethe.consumers.contract import topics
from lethe.consumers.contract.events import DELETION_RECEIPT, MODEL_VERSION, Receipt
from lethe.consumers.contract.sealing import SealKeys
from lethe.consumers.contract.signatures import HEADER, TrustedKeys
from lethe.consumers.deletions.validate import Refused, Valid, validate
from lethe.consumers.log.base import Partition, Reader, Record
from lethe.consumers.service.progress import Progress, no_progress
from lethe.engine.errors import CorruptState, LetheError, Unauthenticated
from lethe.engine.merkle import inclusion_proof, leaf_hash, verify_inclusion
from lethe.engine.store.connection import reachable
from lethe.engine.store.keys import ModelKeys
from lethe.engine.store.membership import every_model
from lethe.engine.store.state import ModelState
from lethe.engine.store.store import ModelStore

_READ_SECONDS = 5.0
_READ_RECORDS = 1000


class UnknownRequest(LetheError):
    """Neither the store nor the log has a receipt of the request."""

    code = "UNKNOWN_REQUEST"
    exit_code = 1


class SeveralModels(LetheError):
    """Several models have a request with this id: say which one is meant."""

    code = "SEVERAL_MODELS"


@dataclass(frozen=True, slots=True)
class Signature:
    """The signature of a record. ``valid`` None: no key is trusted, so it was not checked.

    ``key_id`` is the one that the record names, checked or not.
    """

    key_id: str | None
    valid: bool | None
    detail: str


@dataclass(frozen=True, slots=True)
class FoundReceipt:
    """A receipt: its bytes, its place (None: only the state has it) and its signature."""

    receipt: Receipt
    value: bytes
    place: str | None
    signature: Signature


@dataclass(frozen=True, slots=True)
class FoundRequest:
    """The request as it stands in the log."""

    record: Record
    item: Valid | Refused


@dataclass(frozen=True, slots=True)
class Inclusion:
    """The proof that the final receipt is in the receipt log of a version."""

    version: int
    index: int
    size: int
    root: bytes
    leaf: bytes
    proof: tuple[bytes, ...]
    verified: bool


@dataclass(frozen=True, slots=True)
class RequestReport:
    """What became of a request. ``receipts`` are distinct and in log order, without conflicts."""

    request_id: str
    model_id: str
    receipts: Sequence[FoundReceipt]
    conflicts: Sequence[FoundReceipt]
    request: FoundRequest | None
    state: ModelState | None
    chain: Finding
    version: VersionFact | None
    version_signature: Signature | None
    newest: VersionFact | None
    inclusion: Inclusion | None
    signed: tuple[int, int] | None
    decided: Decided | None = None

    def vouched(self, receipt: FoundReceipt | None) -> bool:
        """Return whether a receipt, or the version (None), may be unsigned.

        A signed version vouches for those before it through the chain, and for the receipts in its
        log. What is older than the first signature was never signed.
        """
        if self.signed is None:
            return False
        first, last = self.signed
        if receipt is None:
            return self.version is not None and self.version.event.version < first
        proof = self.inclusion
        if receipt is self.last and proof is not None and proof.verified:
            return proof.version <= last
        return not receipt.receipt.final and (receipt.receipt.version or 0) < first

    @property
    def last(self) -> FoundReceipt:
        """The final receipt, or the newest pending one."""
        final = [receipt for receipt in self.receipts if receipt.receipt.final]
        return (final or list(self.receipts))[-1]


# -- which model ----------------------------------------------------------------------------------


def models_with(store: ModelStore, reader: Reader, request_id: str) -> list[str]:
    """Return the models that have a request with this id, by the store or else by the receipts."""
    names = every_model(store.client)
    pipeline = store.client.pipeline(transaction=False)
    for name in names:
        pipeline.hexists(ModelKeys(name).requests, request_id)
    with reachable(store.client):
        answers = pipeline.execute()
    models = [name for name, exists in zip(names, answers, strict=True) if exists]
    if models:
        return models
    receipts = (receipt for _, receipt in _logged_receipts(reader, None))
    return sorted({receipt.model_id for receipt in receipts if receipt.request_id == request_id})


def _logged_receipts(reader: Reader, model_id: str | None) -> Iterator[tuple[Record, Receipt]]:
    """Yield the receipts in the log, of one model or of all; other records are skipped."""
    key = None if model_id is None else model_id.encode()
    for partition, bounds in extent_of(reader, [topics.RECEIPTS]).bounds.items():
        offset = bounds.begin
        while offset < bounds.end:
            records, onward = reader.read(partition, offset, _READ_SECONDS, _READ_RECORDS)
            for record in records:
                receipt = _receipt(record) if key in (None, record.key) else None
                if receipt is not None:
                    yield record, receipt
            if onward == offset:
                break
            offset = onward


def _receipt(record: Record) -> Receipt | None:
    try:
        return Receipt.model_validate_json(record.value or b"")
    except ValueError:
        return None


# -- the report -----------------------------------------------------------------------------------


def story_of(
    store: ModelStore,
    reader: Reader,
    request_id: str,
    model_id: str | None,
    trusted: TrustedKeys | None,
    progress: Progress = no_progress,
    *,
    seals: SealKeys | None = None,
) -> RequestReport:
    """Return what became of a request; ``seals`` opens the commit that processed it.

    Raises
    ------
    UnknownRequest
        Neither store nor log has a receipt of it.
    SeveralModels
        ``model_id`` is None, and several models have one.
    """
    if model_id is None:
        progress("looking for the request", 0, 0)
        models = models_with(store, reader, request_id)
        if len(models) > 1:
            names = ", ".join(models)
            raise SeveralModels(
                f"{len(models)} models have a request {request_id!r}: {names}; choose one with "
                "--model"
            )
        if not models:
            raise _unknown(request_id, None)
        model_id = models[0]
    state = store.load(model_id)
    progress("reading receipts", 0, 0)
    receipts, conflicts = _receipts_of(store, reader, request_id, model_id, trusted)
    if not receipts:
        raise _unknown(request_id, model_id)
    history, signatures = _versions(reader, model_id, trusted, progress)
    last = next((one for one in reversed(receipts) if one.receipt.final), receipts[-1])
    number = last.receipt.version
    signed = [n for n, signature in signatures.items() if signature.valid]
    return RequestReport(
        request_id=request_id,
        model_id=model_id,
        receipts=receipts,
        conflicts=conflicts,
        request=_request_of(reader, receipts[0].receipt),
        state=state,
        chain=chain_finding(history)
        if history.versions or state is not None
        else Finding.passed_over("chain", "the model has no version"),
        version=None if number is None else history.versions.get(number),
        version_signature=None if number is None else signatures.get(number),
        newest=history.tip,
        inclusion=None if state is None else _inclusion(store, state, history, last),
        signed=(min(signed), max(signed)) if signed else None,
        decided=decided_by(reader, history, last.value, state, seals),
    )


def _unknown(request_id: str, model_id: str | None) -> UnknownRequest:
    model = "any model" if model_id is None else f"model {model_id!r}"
    return UnknownRequest(
        f"no receipt of request {request_id!r} for {model}: it was never sent, is not processed "
        "yet (`lethe status` shows the lag), or named a model that was never registered"
    )


def _receipts_of(
    store: ModelStore, reader: Reader, request_id: str, model_id: str, trusted: TrustedKeys | None
) -> tuple[list[FoundReceipt], list[FoundReceipt]]:
    """Return the receipts of a request without repeats, and those of conflicting requests."""
    receipts: dict[bytes, FoundReceipt] = {}
    conflicts: list[FoundReceipt] = []
    for record, receipt in _logged_receipts(reader, model_id):
        value = record.value or b""
        if (receipt.model_id, receipt.request_id) != (model_id, request_id) or value in receipts:
            continue
        place = f"{record.partition.topic}/{record.partition.index} at offset {record.offset}"
        signature = signature_of(record, DELETION_RECEIPT, trusted)
        if receipt.code == CONFLICT:
            conflicts.append(FoundReceipt(receipt, value, place, signature))
        else:
            receipts[value] = FoundReceipt(receipt, value, place, signature)
    indexed = _indexed(store, model_id, request_id)
    stored = None if indexed is None else indexed.receipt.value()
    if indexed is not None and stored is not None and stored not in receipts:
        unsigned = Signature(None, None, "the state keeps receipts without their signatures")
        receipts[stored] = FoundReceipt(indexed.receipt, stored, None, unsigned)
    return list(receipts.values()), conflicts


def _indexed(store: ModelStore, model_id: str, request_id: str) -> Indexed | None:
    stored = store.receipt(model_id, request_id)
    return None if stored is None else unpack(stored, model_id, request_id)


def signature_of(record: Record, event_type: str, trusted: TrustedKeys | None) -> Signature:
    """Return a record's signature, checked if keys are trusted."""
    named = [value for name, value in record.headers if name.lower() == HEADER]
    if not named:
        return Signature(None, None if trusted is None else False, "not signed")
    key_id = named[0].decode("utf-8", errors="replace").split(":")[1:2]
    key = key_id[0][:16] if key_id else None
    if trusted is None:
        return Signature(key, None, f"signed by key {key}; name the keys you trust with --trust")
    try:
        return Signature(trusted.check(event_type, record.value or b"", record.headers), True,
                         f"signed by trusted key {key}")  # fmt: skip
    except Unauthenticated as error:
        return Signature(key, False, str(error))


def _versions(
    reader: Reader, model_id: str, trusted: TrustedKeys | None, progress: Progress
) -> tuple[History, dict[int, Signature]]:
    history = History(model_id, None)
    signatures: dict[int, Signature] = {}
    for record in records_of_model(
        reader, model_id, extent_of(reader, [topics.VERSIONS]), progress
    ):
        before = len(history.versions)
        history.add(record)
        if len(history.versions) > before:
            number = next(reversed(history.versions))
            signatures[number] = signature_of(record, MODEL_VERSION, trusted)
    return history, signatures


def _request_of(reader: Reader, receipt: Receipt) -> FoundRequest | None:
    """Return the request that a receipt names, if the log still holds it."""
    source = receipt.source
    for partition in reader.partitions(source.topic):
        record = None
        if partition.index == source.partition:
            record = _record_at(reader, partition, source.offset)
        item = None if record is None else validate(record)
        if record is None or not isinstance(item, Valid | Refused):
            continue
        if _names(item) == (receipt.model_id, receipt.request_id):
            return FoundRequest(record, item)
    return None


def _names(item: Valid | Refused) -> tuple[str | None, str | None]:
    """Return the model and the id of a request."""
    if isinstance(item, Valid):
        return item.request.model_id, item.request.request_id
    return item.model_id, item.request_id


def _record_at(reader: Reader, partition: Partition, offset: int) -> Record | None:
    bounds = reader.bounds(partition)
    if not bounds.begin <= offset < bounds.end:
        return None
    records, _ = reader.read(partition, offset, _READ_SECONDS, 1)
    return next((record for record in records if record.offset == offset), None)


def _inclusion(
    store: ModelStore, state: ModelState, history: History, last: FoundReceipt
) -> Inclusion | None:
    """Prove that a final receipt is in the log of the first version that has it."""
    indexed = _indexed(store, state.model_id, last.receipt.request_id)
    if indexed is None or not indexed.final or indexed.receipt.value() != last.value:
        return None
    log, leaf, index = state.meta.receipt_log, leaf_hash(last.value), indexed.place
    try:
        leaves = leaves_of(store, state.keys, 0 if log is None else log.size)
    except CorruptState:
        return None  # `lethe audit` reports what is missing
    for number, fact in sorted(history.versions.items()):
        head = fact.head
        if head is not None and index < head.size <= len(leaves):
            proof = inclusion_proof(leaves[: head.size], index)
            verified = verify_inclusion(leaf, index, head.size, proof, head.root)
            return Inclusion(number, index, head.size, head.root, leaf, proof, verified)
    return None
