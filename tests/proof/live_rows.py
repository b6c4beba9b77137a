"""Which rows a model has, and their values, by the log alone: commits and ``lethe.row-changes``.

What is live decides, whatever led there. Like `tests.proof.independent_fold`, whose headers it
reads, this shares nothing with the product.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from tests.proof.sealed_record import Disagreement
from tests.support.families import Data

ValueAt = Callable[[str, int], bytes]
"""Returns a record's value in ``lethe.row-changes``, by ``<topic id>/<partition>`` and offset."""


@dataclass(frozen=True, slots=True)
class Row:
    """A row's values, without the intercept's; of a table's columns by their names in order."""

    x: tuple[Any, ...]
    y: tuple[float, ...]
    weight: float = 1.0
    subject: str | None = None


def rows_of(data: Data) -> dict[str, Row]:
    """Return the rows that a model is registered with, by id (`tests.support.platform`)."""
    return {
        f"row-{i}": Row(tuple(x), tuple(y), float(weight), f"subject-{i // 3}")
        for i, (x, y, weight) in enumerate(
            zip(data.X.tolist(), data.y.tolist(), data.weight, strict=True)
        )
    }


@dataclass(frozen=True, slots=True)
class Life:
    """A row as it was from version ``born`` on, until version ``died``."""

    row_id: str
    row: Row
    born: int
    died: int


BodyOf = Callable[[Mapping[str, Any]], Mapping[str, Any]]
"""Returns the request that a receipt answers: the record that it names."""


@dataclass
class LiveRows:
    """The live rows of one model, commit by commit; it judges every outcome as it comes.

    Attributes
    ----------
    registered
        What every registration of it brings; rows in the ledger stay away.
    value_at, body_of
        Read the log.
    staged
        By the name of a staged generation, the only rows that it brings.
    live
        By id, the rows after the commits so far.
    past
        Rows as they were before they were deleted, corrected or left out.
    ledger
        Ids of rows whose deletion was accepted.
    """

    registered: Mapping[str, Row]
    value_at: ValueAt
    body_of: BodyOf
    staged: Mapping[str, Collection[str]] = field(default_factory=dict)
    live: dict[str, Row] = field(default_factory=dict)
    past: list[Life] = field(default_factory=list)
    ledger: set[str] = field(default_factory=set)
    _born: dict[str, int] = field(default_factory=dict)
    _to_delete: set[str] = field(default_factory=set)  # ids that deletions have named
    _read: dict[str, int] = field(default_factory=dict)

    def take(self, header: Mapping[str, Any], finals: Iterable[bytes]) -> None:
        """Apply a commit that counts; ``finals`` are the final receipts that it gives.

        Raises
        ------
        Disagreement
            It inserts a row that is there, corrects one that is not, takes requests of one
            partition out of the order of the log, or a receipt says what is not so.
        """
        answered = [self._answered(json.loads(value)) for value in finals]
        version = int(header["newest"])
        if header["kind"] in ("registration", "unregistration"):
            for row in list(self.live):
                self._end(row, version)
        if header["kind"] == "registration":
            self.live = {row: at for row, at in self.registered.items() if row not in self.ledger}
            if self.staged:
                brought = self.staged.get(header["staged"]["generation"], self.live)
                self.live = {row: at for row, at in self.live.items() if row in brought}
            self._born = dict.fromkeys(self.live, version)
        for inserts, _, partition, offset, digest in header.get("changes", ()):
            if offset <= self._read.get(partition, -1):
                raise Disagreement(f"{partition}: {offset} is applied after a later request")
            self._read[partition] = offset
            value = self.value_at(partition, offset)
            if hashlib.sha256(value).hexdigest() != digest:
                raise Disagreement(f"{partition} at {offset}: the log has another request")
            for given in json.loads(value)["rows"]:
                self._change(given, version, inserts=inserts)
        gone = [row for row in header["deleted"] if row in self.live]
        named = {row for one in answered for row in (*one.before, *one.formerly)}
        if header["kind"] in ("requests", "refresh") and not named.issuperset(gone):
            raise Disagreement(f"{sorted(set(gone) - named)} are gone, and nobody asked for that")
        for row in gone:
            self._end(row, version)
        self.ledger.update(header["deleted"])
        for one in answered:
            self._judge(one)
        counted = sum(one.receipt["rows_deleted"] for one in answered)
        if header["kind"] in ("requests", "refresh") and counted != len(gone):
            raise Disagreement(f"receipts count {counted} deleted rows, and {len(gone)} are gone")

    def at(self, version: int) -> list[Row]:
        """Return the rows that a version was made from."""
        past = [life.row for life in self.past if life.born <= version < life.died]
        return past + [row for name, row in self.live.items() if self._born[name] <= version]

    def inserted(self) -> dict[str, str | None]:
        """Return the ids of all rows that were ever inserted, with their subjects."""
        rows = {life.row_id: life.row for life in self.past} | self.live
        return {name: row.subject for name, row in rows.items() if name not in self.registered}

    def _change(self, given: Mapping[str, Any], version: int, *, inserts: bool) -> None:
        row = given["id"]
        if inserts is (row in self.live):
            raise Disagreement(f"{row} is {'inserted' if inserts else 'corrected'} out of place")
        before = self.live.get(row, Row((), (), subject=given.get("subject")))
        if not inserts:
            self._end(row, version)
        self.live[row], self._born[row] = changed(before, given), version

    def _end(self, row: str, version: int) -> None:
        self.past.append(Life(row, self.live.pop(row), self._born.pop(row), version))

    # -- outcomes -----------------------------------------------------------------------------

    def _answered(self, receipt: Mapping[str, Any]) -> Answered:
        body = self.body_of(receipt)
        if "op" in body:
            names = {row["id"] for row in body["rows"]}
        elif "row_ids" in body:
            names = set(body["row_ids"])
        else:
            subject = body["subject_id"]
            names = {row for row, at in self.live.items() if at.subject == subject}
            formerly = {life.row_id for life in self.past if life.row.subject == subject}
            before = {name: self.live.get(name) for name in names}
            return Answered(receipt, body, before, frozenset(formerly))
        return Answered(receipt, body, {name: self.live.get(name) for name in names})

    def _judge(self, one: Answered) -> None:
        """Judge what a receipt says of its rows, by what they were before its commit and are."""
        receipt, before = one.receipt, one.before
        what = f"{receipt['request_id']}: {receipt['status']} {receipt['code']}"
        known = {name for name, row in before.items() if row is not None}
        if "op" in one.body:
            self._judge_change(what, one, known)
            return
        self._to_delete |= before.keys() | one.formerly
        if receipt["status"] == "REJECTED":
            if receipt["code"] == "UNKNOWN_ROWS" and known:
                raise Disagreement(f"{what}, and {sorted(known)} are live")
        elif left := self.live.keys() & known:
            raise Disagreement(f"{what}, and {sorted(left)} are left")

    def _judge_change(self, what: str, one: Answered, known: set[str]) -> None:
        receipt, names, corrects = one.receipt, one.before.keys(), one.body["op"] == "correct"
        if receipt["status"] == "APPLIED":
            counts = (receipt.get("rows_inserted", 0), receipt.get("rows_corrected", 0))
            if known != (names if corrects else set()):
                raise Disagreement(f"{what}, and {sorted(known)} were live")
            if counts != ((0, len(names)) if corrects else (len(names), 0)):
                raise Disagreement(f"{what}, and it counts {counts}")
            for given in one.body["rows"]:
                row = one.before[given["id"]] or Row((), (), subject=given.get("subject"))
                if self.live.get(given["id"]) != changed(row, given):
                    raise Disagreement(f"{what}: {given['id']} has other values")
            return
        reasons = {
            "ROW_EXISTS": known,
            "ROW_DELETED": names & (self.ledger | self._to_delete),
            "ROW_UNKNOWN": names - known,
        }
        if receipt["status"] != "REJECTED" or not reasons.get(receipt["code"], names):
            raise Disagreement(f"{what} is not so of {sorted(names)}")


@dataclass(frozen=True, slots=True)
class Answered:
    """A final receipt, its request, and the rows that it names as they were before its commit.

    ``formerly``: rows that once were those of the subject that it names. One that a registration
    left out and an insert without subject brought back may still count as theirs.
    """

    receipt: Mapping[str, Any]
    body: Mapping[str, Any]
    before: Mapping[str, Row | None]
    formerly: frozenset[str] = frozenset()


def changed(before: Row, given: Mapping[str, Any]) -> Row:
    """Return a row after a change that gives it other values; it keeps its subject."""
    target = given["target"]
    y = tuple(target) if isinstance(target, list) else (target,)
    weight = given.get("weight")
    values = given["values"]
    x = [values[name] for name in sorted(values)] if isinstance(values, dict) else values
    return replace(before, x=tuple(x), y=y, weight=before.weight if weight is None else weight)


def data_of(rows: Sequence[Row], like: Data) -> Data:
    """Return rows as training data, with the settings of other data."""
    X = np.array([row.x for row in rows], like.X.dtype).reshape(len(rows), like.X.shape[1])
    y = np.array([row.y for row in rows]).reshape(len(rows), like.y.shape[1])
    weight = np.array([row.weight for row in rows])
    return replace(like, X=X, y=y, weight=weight, deleted=np.arange(0), injected=None)
