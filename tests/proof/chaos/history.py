"""What a run left behind, as plain values: all that the checker sees."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tests.proof.live_rows import LiveRows
from tests.support.families import Data

Json = dict[str, Any]
Source = tuple[str, int, int]
"""Topic, partition and offset of a record."""


@dataclass(frozen=True, slots=True)
class Asked:
    """A request as a producer sent it.

    Attributes
    ----------
    rows, subject
        What it names: the one or the other.
    acknowledged
        Whether some sending of it was acknowledged by the log.
    change
        Of an insert or a correction: `change_of` it. It names neither rows nor a subject.
    """

    model: str
    request_id: str
    rows: tuple[str, ...] | None
    subject: str | None
    acknowledged: bool
    change: str | None = None

    @property
    def content(self) -> tuple[Any, ...]:
        """What makes two requests the same: the rows in any order, the subject, or the change."""
        rows = None if self.rows is None else tuple(sorted(set(self.rows)))
        return (rows, self.subject, self.change)


def change_of(data: Json) -> str | None:
    """Return what an insert or a correction asks for, rows in the order of ids; None: neither."""
    if "op" not in data:
        return None
    return json.dumps([data["op"], sorted(data["rows"], key=lambda row: str(row["id"]))])


@dataclass(frozen=True, slots=True)
class Record:
    """A record as it lies on a topic; JSON is parsed where it is an object.

    ``life``: 0 in the topic that is there in the end, -1 in the one that this took the place of,
    and so on.
    """

    source: Source
    key: bytes
    value: bytes
    data: Json | None = None
    headers: Mapping[str, bytes] = field(default_factory=dict)
    timestamp_ms: int = 0
    life: int = 0


_CLOCK_MS = 1_000


def by_source(records: Iterable[Record]) -> dict[Source, list[Record]]:
    """Return records by their places; a topic that was made again has others at the same ones."""
    found: dict[Source, list[Record]] = {}
    for record in records:
        found.setdefault(record.source, []).append(record)
    return found


def source_of(receipt: Json) -> Source:
    """Return where a receipt says that its request lies."""
    where = receipt["source"]
    return where["topic"], where["partition"], where["offset"]


def answered_by(receipt: Json, at: Mapping[Source, Sequence[Record]]) -> Record | None:
    """Return the record that a receipt answers: of the same name, the newest before the answer."""
    before = datetime.fromisoformat(receipt["completed_at"]).timestamp() * 1000 + _CLOCK_MS
    same = [
        record
        for record in at.get(source_of(receipt), ())
        if _named(receipt) == _named(record.data or {}) and record.timestamp_ms <= before
    ]
    return max(same, key=lambda record: record.life, default=None)


def _named(data: Json) -> tuple[Any, ...]:
    """Return of which model a request or its receipt is, and its id."""
    return tuple(data.get(name) for name in ("model_id", "request_id", "erasure_id"))


@dataclass(frozen=True, slots=True)
class Final:
    """What the store holds of a model in the end."""

    commit: int
    commit_digest: str
    version: int
    digest: str
    offsets: Mapping[str, int]  # by ``<topic id>/<partition>``
    ledger: Mapping[str, int]
    deletions_from: int  # how many were deleted before the first that is listed
    deletions: Sequence[str]
    receipts: Mapping[str, tuple[str, str]]  # request id: "F" or "P", and the receipt's JSON
    rows: frozenset[str]
    leftovers: Mapping[str, int]  # deferred requests, old generations, rows that are missing
    published: NDArray[np.float64]
    theta_exact: NDArray[np.float64]
    disclosed: Mapping[str, bytes] = field(default_factory=dict)  # by row id, as it is stored


@dataclass(frozen=True, slots=True)
class Read:
    """One look of a reader at a model while everything was going on.

    Attributes
    ----------
    who
        ``state`` (one consistent load), ``snapshot`` (state and rows), ``subscriber``.
    parameters_digest
        Of the theta that was read, with the names of the model.
    mismatch
        How far rows, dual rows, factor and theta are from belonging together, relative.
    """

    who: str
    model: str
    version: int
    digest: str
    parameters_digest: str
    mismatch: float = 0.0


@dataclass(frozen=True, slots=True)
class Live:
    """A version as somebody saw it while everything was going on."""

    who: str
    model: str
    version: int
    digest: str


@dataclass
class History:
    """Everything of one run.

    Attributes
    ----------
    data
        By model: what it was registered with.
    asked
        Every request that producers sent, once for each content.
    garbage
        Values that are no requests, as sent; whether some sending was acknowledged.
    topics, former, places
        By topic: all records, by partition and offset, with those of before it was made again.
        The records of each topic that was deleted. By ``<topic id>/<partition>``: the topic's name
        and the partition.
    rows
        By model: its live rows, version by version, as commits and ``lethe.row-changes`` have them.
    finals
        By model: what the store holds in the end.
    live, reads
        What others saw meanwhile.
    diaries
        What the workers wrote down (`tests.proof.chaos.recording`).
    remains
        Bytes of rows found in the end: ``live`` ones prove that the search finds, ``deleted`` ones
        must not be there.
    """

    data: dict[str, Data] = field(default_factory=dict)
    asked: list[Asked] = field(default_factory=list)
    garbage: dict[bytes, bool] = field(default_factory=dict)
    topics: dict[str, list[Record]] = field(default_factory=dict)
    former: list[list[Record]] = field(default_factory=list)
    places: dict[str, tuple[str, int]] = field(default_factory=dict)
    rows: dict[str, LiveRows] = field(default_factory=dict)
    finals: dict[str, Final] = field(default_factory=dict)
    live: list[Live] = field(default_factory=list)
    reads: list[Read] = field(default_factory=list)
    broken: list[str] = field(default_factory=list)
    diaries: list[Json] = field(default_factory=list)
    remains: dict[str, dict[str, int]] = field(default_factory=dict)
    staged: int = 0  # numbers of deleted rows in keys that expire
    deserters: list[str] = field(default_factory=list)
