"""What several promises look at, sorted once; and the form of a verdict."""

from __future__ import annotations

import hashlib
import json
from collections import Counter, defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field

from lethe.consumers.contract import topics
from tests.proof.chaos.history import (
    Asked,
    History,
    Json,
    Record,
    Source,
    answered_by,
    by_source,
    change_of,
    source_of,
)

_SHOWN = 5


_LABEL = b"lethe.commit.v1\n"


@dataclass(frozen=True, slots=True)
class Link:
    """What a commit's record says openly, and its digest."""

    model: str
    number: int
    prev: str
    version: int | None
    digest: str


@dataclass
class Verdict:
    """A promise: how many cases were looked at, and what is wrong."""

    promise: str
    cases: int = 0
    wrong: list[str] = field(default_factory=list)
    notes: Counter[str] = field(default_factory=Counter)

    def check(self, good: bool, what: Callable[[], str] | str) -> None:
        """Look at one case."""
        self.cases += 1
        if not good:
            self.wrong.append(what if isinstance(what, str) else what())

    def __str__(self) -> str:
        shown = "".join(f"\n    {one}" for one in self.wrong[:_SHOWN])
        more = len(self.wrong) - _SHOWN
        shown += f"\n    and {more} more" if more > 0 else ""
        notes = "".join(f"; {name}: {count}" for name, count in self.notes.items())
        return f"{len(self.wrong)} of {self.cases}  {self.promise}{notes}{shown}"


class Facts:
    """What several promises look at, sorted once."""

    def __init__(self, history: History) -> None:
        self.history = history
        self.contents: dict[tuple[str, str], list[Asked]] = defaultdict(list)
        for asked in history.asked:
            self.contents[asked.model, asked.request_id].append(asked)
        self.acknowledged = {
            (asked.model, asked.request_id) for asked in history.asked if asked.acknowledged
        }
        self.sent = [
            record
            for topic in (topics.DELETIONS, topics.ROW_CHANGES)
            for record in history.topics.get(topic, [])
            if _is_request(record)
        ]
        self.at = by_source(self.sent)
        self.receipts = [
            record for record in history.topics.get(topics.RECEIPTS, []) if record.data is not None
        ]
        self.finals: dict[tuple[str, str], dict[bytes, Json]] = defaultdict(dict)
        self.conflicts: dict[Source, dict[bytes, Json]] = defaultdict(dict)
        for record in self.receipts:
            receipt = record.data or {}
            name = (receipt["model_id"], receipt["request_id"])
            if receipt["code"] == "REQUEST_ID_CONFLICT":
                self.conflicts[source_of(receipt)][record.value] = receipt
            elif receipt["status"] != "DEFERRED":
                self.finals[name][record.value] = receipt
        self._chains: dict[str, dict[int, Link]] = {}
        self.versions: dict[str, list[Json]] = defaultdict(list)
        for record in history.topics.get(topics.VERSIONS, []):
            self.versions[record.key.decode()].append(record.data or {})

    def chain(self, model: str) -> dict[int, Link]:
        """Return the commits of a model that count, by number: the first that continues each."""
        if model not in self._chains:
            chain: dict[int, Link] = {}
            for record in self.history.topics.get(topics.COMMITS, []):
                link = link_of(record)
                if link is None or link.model != model or link.number != len(chain):
                    continue
                if link.prev == (chain[link.number - 1].digest if chain else ""):
                    chain[link.number] = link
            self._chains[model] = chain
        return self._chains[model]

    def final(self, name: tuple[str, str]) -> Json | None:
        """Return the first of a request's final receipts."""
        return next(iter(self.finals.get(name, {}).values()), None)

    def request_of(self, receipt: Json) -> Record | None:
        """Return the request that a receipt answers; None if it names no such record."""
        return answered_by(receipt, self.at)

    def rows(self, model: str, content: tuple[object, ...]) -> list[str]:
        """Return the registered rows that a request for a deletion names."""
        rows, subject, _ = content
        n = len(self.history.data[model].X)
        if isinstance(subject, str):
            first = 3 * int(subject.rpartition("-")[2])
            return [f"row-{i}" for i in range(first, min(first + 3, n))]
        if not isinstance(rows, tuple):
            return []
        kept = (row for row in rows if row.startswith("row-"))
        return [row for row in kept if int(row.rpartition("-")[2]) < n]

    def inserted(self, model: str, content: tuple[object, ...]) -> set[str]:
        """Return the rows that a request for a deletion names and that somebody inserted."""
        rows, subject, _ = content
        inserted = self.history.rows[model].inserted()
        if isinstance(subject, str):
            return {row for row, of in inserted.items() if of == subject}
        return inserted.keys() & set(rows if isinstance(rows, tuple) else ())


def link_of(record: Record) -> Link | None:
    """Read the open part of a record of ``lethe.commits``, by its documented layout alone.

    Three parts, each after its length, follow a label; the digest is of the label, the first part
    with its length, the hash of the second, and the third with its length.
    """
    if not record.value.startswith(_LABEL):
        return None
    parts, at = [], len(_LABEL)
    while at < len(record.value):
        end = at + 4 + int.from_bytes(record.value[at : at + 4], "little")
        parts.append(record.value[at:end])
        at = end
    opened, sealed, signature = parts
    digest = hashlib.sha256(_LABEL + opened + hashlib.sha256(sealed[4:]).digest() + signature)
    found = json.loads(opened[4:])
    return Link(
        found["model_id"], found["commit"], found["prev"], found["version"], digest.hexdigest()
    )


def _is_request(record: Record) -> bool:
    data = record.data or {}
    return "request_id" in data and not data.keys().isdisjoint({"row_ids", "subject_id", "op"})


def content_of(data: Json) -> tuple[object, ...]:
    """Return what makes two requests the same."""
    rows = data.get("row_ids")
    named = None if rows is None else tuple(sorted(set(rows)))
    return (named, data.get("subject_id"), change_of(data))
