"""The judge of live rows finds each defect that it is there for, and none in a sound log."""

from __future__ import annotations

import hashlib
import json
from typing import Any

import pytest

from tests.proof.live_rows import LiveRows, Row
from tests.proof.sealed_record import Disagreement

A, B = Row((1.0,), (2.0,), subject="somebody"), Row((3.0,), (4.0,))


class Story:
    """One model's commits, written by hand: two registered rows, and requests in one partition."""

    def __init__(self) -> None:
        self.records: list[dict[str, Any]] = []
        self.rows = LiveRows({"a": A, "b": B}, self._value_at, self._body_of)
        self.version = -1
        self.commit("registration")

    def _value_at(self, _: str, offset: int) -> bytes:
        return json.dumps(self.records[offset]).encode()

    def _body_of(self, receipt: Any) -> dict[str, Any]:
        offset: int = receipt["source"]["offset"]
        return self.records[offset]

    def change(self, op: str, *ids: str, status: str = "APPLIED", **fields: Any) -> bytes:
        """Return the receipt of a new request that changes rows to ones."""
        rows = [{"id": row, "values": [1.0], "target": [1.0], "weight": 2.0} for row in ids]
        counted = {"rows_inserted" if op == "insert" else "rows_corrected": len(ids)}
        return self.receipt({"op": op, "rows": rows}, status, **{**counted, **fields})

    def receipt(self, body: dict[str, Any], status: str, **fields: Any) -> bytes:
        """Return the receipt of a new request."""
        place = {"offset": len(self.records)}
        self.records.append(body)
        known = {"request_id": "r", "code": None, "rows_deleted": 0, "source": place}
        return json.dumps({**known, "status": status, **fields}).encode()

    def commit(
        self,
        kind: str,
        *finals: bytes,
        changes: tuple[int, ...] = (),
        deleted: tuple[str, ...] = (),
    ) -> None:
        """Take a commit; ``changes``: the offsets of requests that it applies."""
        self.version += 1
        applied = [
            (
                self.records[offset]["op"] == "insert",
                [row["id"] for row in self.records[offset]["rows"]],
                "id/0",
                offset,
                hashlib.sha256(self._value_at("", offset)).hexdigest(),
            )
            for offset in changes
        ]
        header = {"kind": kind, "newest": self.version, "deleted": deleted, "changes": applied}
        self.rows.take(header, finals)


def test_rows_come_change_and_go_by_version() -> None:
    story = Story()
    story.commit("requests", story.change("insert", "new"), changes=(0,))
    story.commit("requests", story.change("correct", "a"), changes=(1,))
    gone = story.receipt({"subject_id": "somebody"}, "APPLIED", rows_deleted=1)
    story.commit("requests", gone, deleted=("a",))
    ones = Row((1.0,), (1.0,), 2.0)
    corrected = Row((1.0,), (1.0,), 2.0, "somebody")
    assert story.rows.live == {"b": B, "new": ones}
    assert [story.rows.at(version) for version in range(4)] == [
        [A, B], [A, B, ones], [corrected, B, ones], [B, ones],
    ]  # fmt: skip
    assert [life.row for life in story.rows.past] == [A, corrected]
    assert story.rows.inserted() == {"new": None}
    story.commit("registration")
    assert story.rows.live == {"b": B}, "the deleted row came back, or the inserted one stayed"


@pytest.mark.parametrize(("op", "row"), [("insert", "a"), ("correct", "new")])
def test_a_row_that_changes_out_of_place_is_found(op: str, row: str) -> None:
    story = Story()
    receipt = story.change(op, row)
    with pytest.raises(Disagreement, match="out of place"):
        story.commit("requests", receipt, changes=(0,))


def test_requests_out_of_the_order_of_the_log_are_found() -> None:
    story = Story()
    first, second = story.change("insert", "new"), story.change("correct", "a")
    story.commit("requests", second, changes=(1,))
    with pytest.raises(Disagreement, match="after a later request"):
        story.commit("requests", first, changes=(0,))


def test_values_that_the_commit_did_not_see_are_found() -> None:
    story = Story()
    story.change("insert", "new")
    header = {"kind": "requests", "newest": 1, "deleted": []}
    with pytest.raises(Disagreement, match="another request"):
        story.rows.take({**header, "changes": [(True, ["new"], "id/0", 0, "0" * 64)]}, ())


@pytest.mark.parametrize(
    ("op", "row", "said"),
    [
        ("insert", "new", {"status": "REJECTED", "code": "ROW_EXISTS"}),
        ("insert", "new", {"status": "REJECTED", "code": "ROW_DELETED"}),
        ("correct", "a", {"status": "REJECTED", "code": "ROW_UNKNOWN"}),
        ("correct", "a", {"status": "DEFERRED"}),
        ("correct", "a", {"rows_corrected": 2}),
        ("insert", "new", {}),
        ("correct", "a", {}),
    ],
)
def test_an_outcome_that_is_not_so_is_found(op: str, row: str, said: dict[str, Any]) -> None:
    """The last two say that a request is applied, and the commit does not change its row."""
    story = Story()
    with pytest.raises(Disagreement):
        story.commit("requests", story.change(op, row, **said))


def test_deletions_that_are_not_so_are_found() -> None:
    for said, deleted in (
        ({"status": "REJECTED", "code": "UNKNOWN_ROWS"}, ()),
        ({"status": "APPLIED", "rows_deleted": 1}, ()),
        ({"status": "APPLIED", "rows_deleted": 2}, ("a",)),
    ):
        story = Story()
        with pytest.raises(Disagreement):
            story.commit("requests", story.receipt({"row_ids": ["a"]}, **said), deleted=deleted)
