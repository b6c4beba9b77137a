"""What an audit keeps of a published history, read record by record from a log or a file.

Each record is judged by itself here: whether it parses, is about this model and matches its digest,
and whose signature it carries. `consumers.audit.checks` judges them together. Only a few facts of
each receipt stay in memory.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from lethe.consumers.audit.bundle import STORED
from lethe.consumers.audit.finding import Faults
from lethe.consumers.contract import topics, version_chain
from lethe.consumers.contract.events import (
    DELETION_RECEIPT,
    MODEL_PARAMETERS,
    MODEL_VERSION,
    Parameters,
    Receipt,
    Version,
)
from lethe.consumers.contract.signatures import HEADER, TrustedKeys
from lethe.consumers.contract.signed_log import signed_type
from lethe.consumers.log.base import Record
from lethe.consumers.subscriber.history import read_object, read_version
from lethe.engine.errors import BrokenChain, Unauthenticated
from lethe.engine.merkle import HASH_BYTES, leaf_hash

CONFLICT = "REQUEST_ID_CONFLICT"
UNKNOWN_MODEL = "UNKNOWN_MODEL"

_CANDIDATES = 8  # parameters of one version that are kept, 1 MiB each
_HEX = re.compile(r"[0-9a-f]{64}")


@dataclass(frozen=True, slots=True)
class TreeHead:
    """The ``receipt_log`` of a version: the number of receipts, and the root over them."""

    size: int
    root: bytes


@dataclass(frozen=True, slots=True)
class VersionFact:
    """A version whose digest matches its content."""

    event: Version
    head: TreeHead | None
    place: str


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
    source: tuple[str, int, int]
    completed_at: datetime
    leaf: bytes
    partition: int
    place: str

    @property
    def final(self) -> bool:
        """Whether it is final: no other receipt of its request follows."""
        return self.status != "DEFERRED" and self.code != CONFLICT


@dataclass
class Signatures:
    """The signatures on one topic: how many by each key, what is unsigned, and what is wrong."""

    by_key: Counter[str] = field(default_factory=Counter)
    numbers: set[int] = field(default_factory=set)
    unsigned: int = 0
    unsigned_leaves: set[bytes] = field(default_factory=set)
    faults: Faults = field(default_factory=Faults)


class History:
    """Everything published of one model, as far as it was read.

    ``values`` are leaf hashes of the versions and parameters, byte for byte; ``receipts`` has those
    of receipts as keys.

    Parameters
    ----------
    model_id
        The model that every record must be about.
    keys
        Public keys that signatures are checked against; None: signatures are only counted.
    """

    def __init__(self, model_id: str, keys: TrustedKeys | None) -> None:
        self.model_id = model_id
        self.faults = Faults()
        self.forks = Faults()
        self.disorder = Faults()
        self.versions: dict[int, VersionFact] = {}
        self.receipts: dict[bytes, ReceiptFact] = {}
        self.finals: dict[str, ReceiptFact] = {}
        self.contradictions: list[tuple[ReceiptFact, ReceiptFact]] = []
        self.parameters_faults = Faults()
        self.signatures = {
            topic: Signatures() for topic in (topics.VERSIONS, topics.RECEIPTS, topics.MODELS)
        }
        self.records: Counter[str] = Counter()
        self.leaves = bytearray()
        self.values: set[bytes] = set()
        self.begins: dict[int, int] = {}
        self.recovered = 0
        self._keys = keys
        self._candidates: dict[str, Parameters] = {}
        self._last: dict[tuple[str, int], int] = {}
        self._newest: dict[int, int] = {}

    @property
    def tip(self) -> VersionFact | None:
        """The newest version."""
        return self.versions[max(self.versions)] if self.versions else None

    @property
    def parameters(self) -> Parameters | None:
        """The newest parameters: those that the newest version names, if they were read."""
        named = None if self.tip is None else self._candidates.get(self.tip.event.digest)
        return named or next(iter(self._candidates.values()), None)

    def others(self, event: Parameters) -> int:
        """Return how many other parameters there are for the same version."""
        return sum(
            candidate.version == event.version and candidate.digest != event.digest
            for candidate in self._candidates.values()
        )

    @property
    def truncated(self) -> bool:
        """Whether receipts have expired from the log."""
        return any(begin > 0 for begin in self.begins.values())

    @property
    def leaf_list(self) -> list[bytes]:
        """The leaf hashes of the receipt log, where they are known."""
        data = bytes(self.leaves)
        return [data[at : at + HASH_BYTES] for at in range(0, len(data), HASH_BYTES)]

    def read(self, items: Iterable[Record | bytes]) -> None:
        """Add records and leaf hashes in order."""
        for item in items:
            if isinstance(item, bytes):
                self.leaves += item
            else:
                self.add(item)

    def add(self, record: Record) -> None:
        """Add one record."""
        topic = record.partition.topic
        event_type = signed_type(topic)
        if event_type is None:
            detail = f"a record of topic {topic[:60]!r} is not part of a model's history"
            self.faults.add(detail)
            return
        self.records[topic] += 1
        self._check_place(record)
        if topic != topics.RECEIPTS:
            self.values.add(leaf_hash(record.value or b""))
        try:
            if topic == topics.VERSIONS:
                number = self._version(record)
            elif topic == topics.RECEIPTS:
                number = self._receipt(record)
            else:
                number = self._parameters(record)
        except BrokenChain as error:
            self.faults.add(str(error))
            return
        self._check_signature(record, event_type, number)

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

    # -- versions -----------------------------------------------------------------------------

    def _version(self, record: Record) -> int:
        version = read_version(record, self.model_id)
        data = read_object(record, MODEL_VERSION, self.model_id)
        number = version.version
        known = self.versions.get(number)
        if known is not None:
            if known.event.digest != version.digest:
                self.forks.add(
                    f"there are two different versions {number}, {known.event.digest[:12]} and "
                    f"{version.digest[:12]}: history was forked"
                )
            return number
        index = record.partition.index
        newest = self._newest.get(index, -1)
        if number < newest:
            self.disorder.add(f"version {number} comes after version {newest}")
        self._newest[index] = max(number, newest)
        self.versions[number] = VersionFact(version, _tree_head(data, number), _place(record))
        return number

    # -- receipts -----------------------------------------------------------------------------

    def _receipt(self, record: Record) -> int:
        data = read_object(record, DELETION_RECEIPT, self.model_id)
        try:
            receipt = Receipt.model_validate(data)
        except ValueError as error:
            first = str(error).splitlines()[0]
            raise BrokenChain(f"the record at {_place(record)} is not a receipt: {first}") from None
        leaf = leaf_hash(record.value or b"")
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
                self.contradictions.append((earlier, fact))
        return number

    # -- parameters ---------------------------------------------------------------------------

    def _parameters(self, record: Record) -> int:
        data = read_object(record, MODEL_PARAMETERS, self.model_id)
        try:
            event = Parameters.model_validate(data)
        except ValueError as error:
            first = str(error).splitlines()[0]
            raise BrokenChain(f"the record at {_place(record)} holds no parameters: {first}") from (
                None
            )
        if event.theta is not None:
            digest = version_chain.digest_of(event, version_chain.theta_of(event))
            if digest != event.parameters_digest:
                self.parameters_faults.add(
                    f"the parameters of version {event.version} at {_place(record)} do not match "
                    "their own digest"
                )
        newest = next(iter(self._candidates.values()), None)
        if newest is None or event.version > newest.version:
            self._candidates = {event.digest: event}
        elif event.version == newest.version and len(self._candidates) < _CANDIDATES:
            self._candidates[event.digest] = event
        return event.version

    # -- signatures ---------------------------------------------------------------------------

    def _check_signature(self, record: Record, event_type: str, number: int) -> None:
        topic, value = record.partition.topic, record.value or b""
        signatures = self.signatures[topic]
        if not any(name.lower() == HEADER for name, _ in record.headers):
            signatures.unsigned += record.partition.index != STORED
            if topic == topics.RECEIPTS:
                signatures.unsigned_leaves.add(leaf_hash(value))
            return
        if self._keys is None:
            signatures.by_key["?"] += 1
            return
        try:
            key_id = self._keys.check(event_type, value, record.headers)
        except Unauthenticated as error:
            signatures.faults.add(f"{_place(record)}: {error}")
            return
        signatures.by_key[key_id] += 1
        signatures.numbers.add(number)


def _tree_head(data: dict[str, Any], number: int) -> TreeHead | None:
    """Return a version's tree head; None if it has none.

    Raises
    ------
    BrokenChain
        The tree head is malformed.
    """
    if "receipt_log" not in data:
        return None
    head = data["receipt_log"]
    size = head.get("size") if isinstance(head, dict) else None
    root = head.get("root") if isinstance(head, dict) else None
    if type(size) is not int or size < 0 or not isinstance(root, str) or not _HEX.fullmatch(root):
        raise BrokenChain(f"version {number}: its receipt_log is not a size and a root")
    return TreeHead(size, bytes.fromhex(root))


def _place(record: Record) -> str:
    if record.partition.index == STORED:
        return f"{record.partition.topic} (kept by the state)"
    return f"{record.partition.topic}/{record.partition.index} at offset {record.offset}"
