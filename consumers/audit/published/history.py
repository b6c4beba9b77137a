"""What an audit keeps of a published history, read record by record from a log or a file.

Each record is judged by itself here: whether it parses, is about this model and matches its digest,
and whose signature it carries. `checks` judges them together. Only a few facts of each receipt stay
in memory.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, TypeVar

from lethe.consumers.audit.published.bundle import STORED, Cosigned, InclusionProof, Item
from lethe.consumers.audit.published.evidence import event_of, parse_evidence
from lethe.consumers.audit.published.finding import Faults
from lethe.consumers.contract import topics, version_chain
from lethe.consumers.contract.codes import REQUEST_ID_CONFLICT
from lethe.consumers.contract.events import (
    DELETION_RECEIPT,
    IDENTITY,
    MODEL_PARAMETERS,
    MODEL_VERSION,
    Event,
    Parameters,
    Version,
)
from lethe.consumers.contract.receipt import Receipt
from lethe.consumers.contract.signatures import HEADER, TrustedKeys
from lethe.consumers.contract.signed_log import signed_type
from lethe.consumers.log.base import Record
from lethe.consumers.subscriber.history import read_object
from lethe.engine.errors import BrokenChain, Unauthenticated
from lethe.engine.merkle import HASH_BYTES, leaf_hash, verify_inclusion
from lethe.engine.store.layout.columns import FittedColumn
from lethe.engine.store.layout.records import LogHead

UNKNOWN_MODEL = "UNKNOWN_MODEL"

_CANDIDATES = 8  # parameters of one version that are kept, 1 MiB each
EventT = TypeVar("EventT", bound=Event)


@dataclass(frozen=True, slots=True)
class Signature:
    """The signature of a record. ``valid`` None: no key is trusted, so it was not checked.

    ``key_id`` is the one that the record names, checked or not: None if the record is not signed,
    "?" if its signature names none.
    """

    key_id: str | None
    valid: bool | None
    detail: str

    def yields_to(self, repeat: Signature) -> bool:
        """Return whether a repeat of an unsigned record is the evidence: it is signed.

        Whoever repeats a record signs it with the key that it has then. A wrong signature stays.
        """
        return self.key_id is None and repeat.key_id is not None and repeat.valid is not False


def signature_of(record: Record, event_type: str, trusted: TrustedKeys | None) -> Signature:
    """Return a record's signature, checked if keys are trusted."""
    named = [value for name, value in record.headers if name.lower() == HEADER]
    if not named:
        return Signature(None, None if trusted is None else False, "not signed")
    parts = named[0].decode("utf-8", errors="replace").split(":")
    key_id = parts[1][:16] if len(parts) > 1 else "?"
    if trusted is None:
        detail = f"signed by key {key_id}; name the keys you trust with --trust"
        return Signature(key_id, None, detail)
    try:
        trusted.check(event_type, record.value or b"", record.headers)
    except Unauthenticated as error:
        return Signature(key_id, False, str(error))
    return Signature(key_id, True, f"signed by trusted key {key_id}")


@dataclass
class Signatures:
    """The signatures on one topic: how many by each key, and what is wrong.

    ``numbers`` are the versions that a trusted key signed; ``signed`` and ``unsigned`` have the
    leaf hashes of receipts and parameters. One that was repeated can be in both.
    """

    by_key: Counter[str] = field(default_factory=Counter)
    numbers: set[int] = field(default_factory=set)
    signed: set[bytes] = field(default_factory=set)
    unsigned: set[bytes] = field(default_factory=set)
    faults: Faults = field(default_factory=Faults)

    def add(self, signature: Signature, leaf: bytes, number: int, place: str) -> None:
        """Count the signature of a record; ``number`` is that of the version."""
        if signature.key_id is None:
            self.unsigned.add(leaf)
        elif signature.valid is None:
            self.by_key["?"] += 1
        elif signature.valid:
            self.by_key[signature.key_id] += 1
            self.numbers.add(number)
            self.signed.add(leaf)
        else:
            self.faults.add(f"{place}: {signature.detail}")


@dataclass(frozen=True, slots=True)
class VersionFact:
    """A version whose digest matches its content, where it lies first, or first signed."""

    event: Version
    place: str
    signature: Signature


@dataclass(frozen=True, slots=True)
class ReceiptFact:
    """What an audit needs of a receipt. ``leaf`` is its hash in the receipt log, and its identity.

    ``partition`` is that of the receipts topic; `STORED` for a receipt that the state has kept.
    """

    request_id: str
    status: str
    code: str | None
    version: int | None
    generation: int | None
    rows_deleted: int
    rows_inserted: int
    source: tuple[str, int, int]
    completed_at: datetime
    leaf: bytes
    partition: int
    place: str

    @property
    def final(self) -> bool:
        """Whether it is final: no other receipt of its request follows."""
        return self.status != "DEFERRED" and self.code != REQUEST_ID_CONFLICT


@dataclass(frozen=True, slots=True)
class ParametersFact:
    """What an audit needs of any parameters, however many there are.

    ``identity`` is what they have in common with their version; ``covered``: everything else in
    them is in their digest.
    """

    version: int
    identity: tuple[object, ...]
    covered: bool


def identity_of(event: Parameters | Version) -> tuple[object, ...]:
    """Return what parameters and their version have in common."""
    return (*(getattr(event, name) for name in IDENTITY), event.created_at)


class History:
    """Everything published of one model, as far as it was read.

    ``values`` are leaf hashes of the versions and parameters, byte for byte; ``receipts`` has those
    of receipts as keys. ``finals`` has the final receipt of each request, and ``contradictions``
    all those of a request with different ones.

    Parameters
    ----------
    model_id
        The model that every record must be about.
    keys
        Public keys that signatures are checked against; None: signatures are only counted.
    partial
        Whether it is a part alone, which has some requests: their receipts, the versions that these
        are in, and in place of the leaves ``proofs`` that they are in the receipt log.
    """

    def __init__(self, model_id: str, keys: TrustedKeys | None, *, partial: bool = False) -> None:
        self.model_id = model_id
        self.partial = partial
        self.proofs: list[InclusionProof] = []
        self.checkpoints: list[str] = []
        self.faults = Faults()
        self.forks = Faults()
        self.disorder = Faults()
        self.versions: dict[int, VersionFact] = {}
        self.receipts: dict[bytes, ReceiptFact] = {}
        self.finals: dict[str, ReceiptFact] = {}
        self.contradictions: dict[str, list[ReceiptFact]] = {}
        self.parameters_faults = Faults()
        self.parameters_facts: dict[bytes, ParametersFact] = {}
        self.signatures = {
            topic: Signatures() for topic in (topics.VERSIONS, topics.RECEIPTS, topics.MODELS)
        }
        self.records: Counter[str] = Counter()
        self.leaves: list[bytes] = []
        self.values: set[bytes] = set()
        self.begins: dict[int, int] = {}
        self.recovered = 0
        self._keys = keys
        self._candidates: dict[bytes, Parameters] = {}
        self._last: dict[tuple[str, int], int] = {}
        self._newest: dict[int, int] = {}

    @property
    def tip(self) -> VersionFact | None:
        """The newest version."""
        return self.versions[max(self.versions)] if self.versions else None

    @property
    def head(self) -> LogHead | None:
        """The head of the receipt log in the newest version."""
        return None if self.tip is None else self.tip.event.receipt_log

    @property
    def signed(self) -> tuple[int, int] | None:
        """The oldest and the newest version that a trusted key signed; None if there is none."""
        numbers = self.signatures[topics.VERSIONS].numbers & self.versions.keys()
        return (min(numbers), max(numbers)) if numbers else None

    @property
    def parameters(self) -> Parameters | None:
        """The newest parameters: those that the newest version names, if they were read."""
        candidates = self._candidates.values()
        digest = None if self.tip is None else self.tip.event.digest
        named = (candidate for candidate in candidates if candidate.digest == digest)
        return next(named, next(iter(candidates), None))

    def others(self, event: Parameters) -> int:
        """Return how many other parameters there are for the same version."""
        return sum(
            identity_of(candidate) != identity_of(event) for candidate in self._candidates.values()
        )

    @property
    def truncated(self) -> bool:
        """Whether receipts have expired from the log."""
        return any(begin > 0 for begin in self.begins.values())

    def read(self, items: Iterable[Item]) -> None:
        """Add records, leaf hashes and inclusion proofs in order."""
        for item in items:
            if isinstance(item, Record):
                self._add(item)
            elif isinstance(item, bytes):
                starts = range(0, len(item), HASH_BYTES)
                self.leaves += (item[start : start + HASH_BYTES] for start in starts)
            elif isinstance(item, InclusionProof):
                self.proofs.append(item)
            elif isinstance(item, Cosigned):
                self.checkpoints.append(item.note)
        for request, receipts in self.contradictions.items():
            later = (receipt for receipt in receipts if not self.precedes_model(receipt))
            self.finals[request] = next(later, receipts[0])

    def covered(self, number: int) -> set[bytes]:
        """Return the leaf hashes of the receipts that the log of a version is known to have."""
        if self.partial:
            return {one.leaf for one in self.proofs if one.version <= number and self.proves(one)}
        head = self.versions[number].event.receipt_log
        return set() if head is None else set(self.leaves[: head.size])

    def proves(self, proof: InclusionProof) -> bool:
        """Return whether a proof shows that a receipt is in the receipt log of its version."""
        fact = self.versions.get(proof.version)
        head = None if fact is None else fact.event.receipt_log
        return head is not None and verify_inclusion(
            proof.leaf, proof.index, head.size, proof.path, bytes.fromhex(head.root)
        )

    def precedes_model(self, receipt: ReceiptFact) -> bool:
        """Return whether a receipt is from before the model existed: it answers nothing."""
        first = self.versions.get(0)
        early = first is not None and receipt.completed_at < first.event.created_at
        return receipt.code == UNKNOWN_MODEL or (receipt.status == "REJECTED" and early)

    def _add(self, record: Record) -> None:
        topic = record.partition.topic
        event_type = signed_type(topic)
        if event_type is None:
            detail = f"a record of topic {topic[:60]!r} is not part of a model's history"
            self.faults.add(detail)
            return
        self.records[topic] += 1
        self._check_place(record)
        signature = signature_of(record, event_type, self._keys)
        leaf = leaf_hash(record.value or b"")
        if topic != topics.RECEIPTS:
            self.values.add(leaf)
        try:
            if topic == topics.VERSIONS:
                number = self._add_version(record, signature)
            elif topic == topics.RECEIPTS:
                number = self._add_receipt(record, leaf)
            else:
                number = self._add_parameters(record, leaf)
        except BrokenChain as error:
            self.faults.add(str(error))
            return
        self.signatures[topic].add(signature, leaf, number, _place(record))

    def _check_place(self, record: Record) -> None:
        """Check that offsets rise within a partition; what the state has kept has no offset."""
        partition = record.partition
        if partition.index == STORED:
            self.recovered += partition.topic == topics.RECEIPTS
            return
        place = (partition.topic, partition.index)
        if record.offset <= self._last.get(place, -1):
            self.disorder.add(
                f"{partition.topic}/{partition.index}: offset {record.offset} follows offset "
                f"{self._last[place]}"
            )
        self._last[place] = max(record.offset, self._last.get(place, -1))

    def _add_version(self, record: Record, signature: Signature) -> int:
        data, version = self._parsed(record, MODEL_VERSION, Version, "is not a version")
        number = version.version
        if version_chain.content_digest(data) != version.digest:
            raise BrokenChain(
                f"version {number} at {_place(record)}: its digest does not match its content; do "
                "not load it"
            )
        known = self.versions.get(number)
        if known is not None:
            if known.event.digest != version.digest:
                self.forks.add(
                    f"there are two different versions {number}, {known.event.digest[:12]} and "
                    f"{version.digest[:12]}: history was forked"
                )
            elif known.signature.yields_to(signature):
                self.versions[number] = VersionFact(known.event, _place(record), signature)
            return number
        index = record.partition.index
        newest = self._newest.get(index, -1)
        if number < newest:
            self.disorder.add(f"version {number} comes after version {newest}")
        self._newest[index] = max(number, newest)
        self.versions[number] = VersionFact(version, _place(record), signature)
        return number

    def _add_receipt(self, record: Record, leaf: bytes) -> int:
        _, receipt = self._parsed(record, DELETION_RECEIPT, Receipt, "is not a receipt")
        number = -1 if receipt.version is None else receipt.version
        if leaf in self.receipts:
            return number
        source = receipt.source
        fact = ReceiptFact(
            receipt.request_id,
            receipt.status,
            receipt.code,
            receipt.version,
            receipt.generation,
            receipt.rows_deleted,
            receipt.rows_inserted,
            (source.topic, source.partition, source.offset),
            receipt.completed_at,
            leaf,
            record.partition.index,
            _place(record),
        )
        self.receipts[leaf] = fact
        if fact.final:
            earlier = self.finals.setdefault(fact.request_id, fact)
            if earlier is not fact:
                self.contradictions.setdefault(fact.request_id, [earlier]).append(fact)
        return number

    def _add_parameters(self, record: Record, leaf: bytes) -> int:
        data, event = self._parsed(record, MODEL_PARAMETERS, Parameters, "holds no parameters")
        if event.theta is not None:
            digest = version_chain.digest_of(event, version_chain.theta_of(event))
            if digest != event.parameters_digest:
                self.parameters_faults.add(
                    f"the parameters of version {event.version} at {_place(record)} do not match "
                    "their own digest"
                )
        covered = (
            event.theta is not None
            and event.uri is None
            and (event.fit_intercept or event.intercept is None)
            and data.keys() <= Parameters.model_fields.keys()
            and all(
                one.keys() <= FittedColumn.model_fields.keys() for one in data.get("columns", ())
            )
        )
        fact = ParametersFact(event.version, identity_of(event), covered)
        self.parameters_facts[leaf] = fact
        newest = next(iter(self._candidates.values()), None)
        if newest is None or event.version > newest.version:
            self._candidates = {leaf: event}
        elif event.version == newest.version and len(self._candidates) < _CANDIDATES:
            self._candidates[leaf] = event
        return event.version

    def _parsed(
        self, record: Record, event_type: str, kind: type[EventT], fault: str
    ) -> tuple[dict[str, Any], EventT]:
        """Return a record's object, and what it says as an event."""
        data = read_object(record, event_type, self.model_id, parse_evidence)
        try:
            return data, event_of(kind, data)
        except ValueError as error:
            first = str(error).splitlines()[0]
            raise BrokenChain(f"the record at {_place(record)} {fault}: {first}") from None


def _place(record: Record) -> str:
    stored = record.partition.index == STORED
    return f"{record.partition.topic} (kept by the state)" if stored else record.place
