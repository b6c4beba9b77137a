"""Inserts and corrections through the worker: what is live decides, whatever led there."""

from __future__ import annotations

import pytest

from tests.support.platform import Platform
from tests.support.tables import Table


def test_rows_that_are_inserted_corrected_and_deleted_are_as_if_refitted(
    platform: Platform,
) -> None:
    platform.register("m", "benign", "linear", budget=1e-3)
    table = Table(platform)
    first = table.change("insert", table.row("new-1"), table.row("new-2", weight=2.0))
    platform.drain()
    table.check()
    second = table.change("correct", table.row("row-3"), table.row("new-1"))
    platform.drain()
    table.check()
    third = table.delete("new-1", "row-3", "row-4")
    platform.drain()
    table.check()
    receipts = platform.finals()
    assert [receipts[r].status for r in (first, second, third)] == ["APPLIED"] * 3
    assert (receipts[first].op, receipts[first].rows_inserted) == ("insert", 2)
    assert (receipts[second].op, receipts[second].rows_corrected) == ("correct", 2)
    assert (receipts[third].op, receipts[third].rows_deleted) == ("delete", 3)
    assert platform.newest_version().rows_live == len(table.rows)
