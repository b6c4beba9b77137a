"""What became of one request: how it was sent, processed and published, with the evidence.

The report draws on the log and the store, each as far as it still has the facts: requests expire
from the log first, receipts later, and the state keeps final receipts for ever.
`consumers.audit.request.rows` reports on the rows.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from lethe.consumers.audit.commits import CommitOpener, RequestCommit, commit_of
from lethe.consumers.audit.published.checks import chain_finding
from lethe.consumers.audit.published.finding import Finding, Result
from lethe.consumers.audit.published.history import (
    History,
    Signature,
    VersionFact,
    signature_of,
)
from lethe.consumers.audit.reading import records_of_model
from lethe.consumers.commits.packed_receipt import Indexed, unpack
from lethe.consumers.commits.receipt_index import leaves_of
from lethe.consumers.contract import topics
from lethe.consumers.contract.codes import REQUEST_ID_CONFLICT
from lethe.consumers.contract.events import DELETION_RECEIPT, rfc3339
from lethe.consumers.contract.receipt import Receipt
from lethe.consumers.contract.sealing import SealKeys
from lethe.consumers.contract.signatures import TrustedKeys
from lethe.consumers.contract.signed_log import is_believed
from lethe.consumers.deletions.validate import Invalid, Valid, request_at
from lethe.consumers.log.base import Reader, Record
from lethe.consumers.log.scan import extent_of, scan_topic
from lethe.consumers.service.telemetry.progress import Progress, no_progress
from lethe.engine.errors import CorruptState, LetheError
from lethe.engine.merkle import inclusion_proof, leaf_hash, verify_inclusion
from lethe.engine.store.layout.keys import ModelKeys
from lethe.engine.store.layout.state import ModelState
from lethe.engine.store.membership import every_model
from lethe.engine.store.server.pipeline import run_pipeline
from lethe.engine.store.store import ModelStore


class UnknownRequest(LetheError):
    """Neither the store nor the log has a receipt of the request."""

    code = "UNKNOWN_REQUEST"
    exit_code = 1


class SeveralModels(LetheError):
    """Several models have a request with this id: say which one is meant."""

    code = "SEVERAL_MODELS"


@dataclass(frozen=True, slots=True)
class FoundReceipt:
    """A receipt: its bytes, its place (None: only the state has it) and its signature.

    Where it lies more than once, the place and the signature are those of the first record that is
    signed, or else of the first.
    """

    receipt: Receipt
    value: bytes
    place: str | None
    signature: Signature


@dataclass(frozen=True, slots=True)
class FoundRequest:
    """The request as it stands in the log."""

    record: Record
    item: Valid | Invalid

    @property
    def sent_at(self) -> str | None:
        """When the log took it, as RFC 3339; None if the log does not say."""
        seconds = self.record.timestamp_ms / 1000
        return rfc3339(datetime.fromtimestamp(seconds, UTC)) if seconds > 0 else None


@dataclass(frozen=True, slots=True)
class Inclusion:
    """The proof that the final receipt is in the receipt log of a version, in hexadecimal."""

    version: int
    index: int
    size: int
    root: str
    leaf: str
    proof: tuple[str, ...]
    verified: bool


@dataclass(frozen=True, slots=True)
class RequestReport:
    """What became of a request. ``receipts`` are distinct and in log order, without conflicts.

    ``unsigned`` are those that no trusted key signed and the store does not keep: they answer
    nothing. ``history`` has all versions, and ``version`` is that of the request.
    """

    request_id: str
    model_id: str
    receipts: Sequence[FoundReceipt]
    conflicts: Sequence[FoundReceipt]
    unsigned: Sequence[FoundReceipt]
    request: FoundRequest | None
    state: ModelState | None
    history: History
    chain: Finding
    version: VersionFact | None
    inclusion: Inclusion | None
    commit: RequestCommit | None

    @property
    def last(self) -> FoundReceipt:
        """The final receipt, or the newest pending one."""
        return _last(self.receipts)

    def faults(self) -> list[str]:
        """Return the checks that failed."""
        faults, last, version = [], self.last.receipt, self.version
        if self.chain.result is Result.FAILED:
            faults.append(f"chain: {self.chain.detail}")
        signed: list[tuple[FoundReceipt | None, str | None, Signature]] = [
            (receipt, receipt.place, receipt.signature)
            for receipt in (*self.receipts, *self.unsigned)
        ]
        if version is not None:
            signed.append((None, "the version", version.signature))
        for receipt, place, signature in signed:
            vouched = signature.key_id is None and self._vouched(receipt)
            if signature.valid is False and not vouched:
                faults.append(f"{place}: {signature.detail}")
        if self.inclusion is not None and not self.inclusion.verified:
            faults.append("the receipt is not in the receipt log that the version names")
        if last.status == "APPLIED":
            if version is None:
                faults.append(f"version {last.version} is not in the log")
            elif self.request_id not in version.event.request_ids:
                faults.append(f"version {last.version} does not list this request")
        return faults

    def _vouched(self, receipt: FoundReceipt | None) -> bool:
        """Return whether a receipt, or the version (None), may be unsigned.

        A signed version vouches for those before it through the chain, and for the receipts in its
        log. What is older than the first signature was never signed.
        """
        if self.history.signed is None:
            return False
        first, last = self.history.signed
        if receipt is None:
            return self.version is not None and self.version.event.version < first
        proof = self.inclusion
        if receipt is self.last and proof is not None and proof.verified:
            return proof.version <= last
        return not receipt.receipt.final and (receipt.receipt.version or 0) < first


# -- which model ----------------------------------------------------------------------------------


def models_with(
    store: ModelStore, reader: Reader, request_id: str, trusted: TrustedKeys | None
) -> list[str]:
    """Return the models that have a request with this id, by the store or else by the receipts."""
    names = every_model(store.client)
    keys = [ModelKeys(name).requests for name in names]
    answers = run_pipeline(
        store.client, (), lambda pipe: [pipe.hexists(key, request_id) for key in keys]
    )
    models = [name for name, exists in zip(names, answers, strict=True) if exists]
    if models:
        return models
    records = (one for one in scan_topic(reader, topics.RECEIPTS) if is_believed(one, trusted))
    logged = _receipts_in(records, request_id)
    return sorted({receipt.model_id for _, receipt in logged})


def _receipts_in(records: Iterable[Record], request_id: str) -> Iterator[tuple[Record, Receipt]]:
    """Yield the receipts of requests with this id; other records are skipped."""
    for record in records:
        try:
            receipt = Receipt.model_validate_json(record.value or b"")
        except ValueError:
            continue
        if receipt.request_id == request_id:
            yield record, receipt


# -- the report -----------------------------------------------------------------------------------


def report_of(
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
        models = models_with(store, reader, request_id, trusted)
        if len(models) > 1:
            names = ", ".join(models)
            raise SeveralModels(
                f"{len(models)} models have a request {request_id!r}: {names}; choose one with "
                "--model"
            )
        if not models:
            raise _unknown(store, request_id, None)
        model_id = models[0]
    state = store.load(model_id)
    receipts, conflicts, unsigned = _receipts_of(
        store, reader, request_id, model_id, trusted, progress
    )
    if not receipts:
        raise _unknown(store, request_id, model_id, unsigned)
    history = History(model_id, trusted)
    history.read(records_of_model(reader, model_id, extent_of(reader, topics.VERSIONS), progress))
    registered = history.versions or state is not None
    last = _last(receipts)
    number = last.receipt.version
    return RequestReport(
        request_id=request_id,
        model_id=model_id,
        receipts=receipts,
        conflicts=conflicts,
        unsigned=unsigned,
        request=_request_of(reader, receipts[0].receipt),
        state=state,
        history=history,
        chain=chain_finding(history)
        if registered
        else Finding.passed_over("chain", "the model has no version"),
        version=None if number is None else history.versions.get(number),
        inclusion=None if state is None else _inclusion(store, state, history, last),
        commit=commit_of(
            reader, history, state, last.receipt, last.value, CommitOpener.of(seals, state)
        ),
    )


def _unknown(
    store: ModelStore,
    request_id: str,
    model_id: str | None,
    unsigned: Sequence[FoundReceipt] = (),
) -> UnknownRequest:
    model = "any model" if model_id is None else f"model {model_id!r}"
    if unsigned:
        return UnknownRequest(
            f"no receipt of request {request_id!r} for {model} that a trusted key signed. Find out "
            f"who wrote {unsigned[0].place}: {unsigned[0].signature.detail}"
        )
    losses = store.topics.losses((topics.DELETIONS, topics.ROW_CHANGES))
    return UnknownRequest(
        f"no receipt of request {request_id!r} for {model}, and no erasure of that id: it was "
        "never sent, is not processed yet (`lethe status` shows the lag), could not be read "
        "(`lethe dead-letters list`), or named a model that was never registered"
        + "".join(f"; or it is lost: {loss.statement}" for loss in losses)
    )


def _last(receipts: Sequence[FoundReceipt]) -> FoundReceipt:
    return next((one for one in reversed(receipts) if one.receipt.final), receipts[-1])


def _receipts_of(
    store: ModelStore,
    reader: Reader,
    request_id: str,
    model_id: str,
    trusted: TrustedKeys | None,
    progress: Progress,
) -> tuple[list[FoundReceipt], list[FoundReceipt], list[FoundReceipt]]:
    """Return the receipts of a request without repeats, those of conflicts, and unsigned ones."""
    receipts: dict[bytes, FoundReceipt] = {}
    conflicts: list[FoundReceipt] = []
    unsigned: list[FoundReceipt] = []
    indexed = _indexed(store, model_id, request_id)
    stored = None if indexed is None else indexed.receipt.value()
    records = records_of_model(reader, model_id, extent_of(reader, topics.RECEIPTS), progress)
    for record, receipt in _receipts_in(records, request_id):
        value = record.value or b""
        if receipt.model_id != model_id:
            continue
        signature = signature_of(record, DELETION_RECEIPT, trusted)
        if value in receipts and not receipts[value].signature.yields_to(signature):
            continue
        known = FoundReceipt(receipt, value, record.place, signature)
        if value != stored and not is_believed(record, trusted):
            unsigned.append(known)
        elif receipt.code == REQUEST_ID_CONFLICT:
            conflicts.append(known)
        else:
            receipts[value] = known
    if indexed is not None and stored is not None and stored not in receipts:
        kept = Signature(None, None, "the state keeps receipts without their signatures")
        receipts[stored] = FoundReceipt(indexed.receipt, stored, None, kept)
    unsigned = [one for one in unsigned if one.value not in receipts]
    return list(receipts.values()), conflicts, unsigned


def _indexed(store: ModelStore, model_id: str, request_id: str) -> Indexed | None:
    stored = store.receipt(model_id, request_id)
    return None if stored is None else unpack(stored, model_id, request_id)


def _request_of(reader: Reader, receipt: Receipt) -> FoundRequest | None:
    """Return the request that a receipt names, if the log still holds it."""
    at = receipt.source
    found = request_at(
        reader, receipt.model_id, receipt.request_id, at.topic, at.partition, at.offset
    )
    return None if found is None else FoundRequest(found.record, found)


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
        head = fact.event.receipt_log
        if head is not None and index < head.size <= len(leaves):
            proof = inclusion_proof(leaves[: head.size], index)
            verified = verify_inclusion(leaf, index, head.size, proof, bytes.fromhex(head.root))
            path = tuple(node.hex() for node in proof)
            return Inclusion(number, index, head.size, head.root, leaf.hex(), path, verified)
    return None
