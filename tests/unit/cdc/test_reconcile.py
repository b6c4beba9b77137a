"""What a table against a model asks for."""

from __future__ import annotations

from lethe.consumers.cdc.naming import joined
from lethe.consumers.cdc.reconcile import deletions_of, missing_rows
from lethe.consumers.contract.events import MAX_REQUEST_BYTES, MAX_ROWS
from lethe.consumers.contract.requests import request_value


def test_rows_that_only_the_model_has_are_missing() -> None:
    assert missing_rows({"a", "b", "c"}, {"b", "d"}) == ["a", "c"]


def test_requests_take_every_row_once_and_no_more_than_they_may() -> None:
    rows = [f"r{i:06}" for i in range(2 * MAX_ROWS + 1)]
    requests = list(deletions_of("m", rows))
    assert [len(each.row_ids or ()) for each in requests] == [MAX_ROWS, MAX_ROWS, 1]
    assert [row for each in requests for row in each.row_ids or ()] == rows


def test_long_ids_make_smaller_requests() -> None:
    rows = [f"{i:05}" + "\N{SNOWMAN}" * 123 for i in range(MAX_ROWS)]
    requests = list(deletions_of("m", rows))
    assert len(requests) > 1
    assert max(len(request_value(each)) for each in requests) <= MAX_REQUEST_BYTES
    assert sum(len(each.row_ids or ()) for each in requests) == MAX_ROWS
    quotes = [f"{i:05}" + '"\x01' * 61 for i in range(MAX_ROWS)]
    sizes = [len(request_value(each)) for each in deletions_of("m", quotes)]
    assert max(sizes) <= MAX_REQUEST_BYTES


def test_the_same_rows_of_a_model_make_the_same_requests() -> None:
    first, again = list(deletions_of("m", ["a", "b"])), list(deletions_of("m", ["a", "b"]))
    assert first == again
    assert next(iter(deletions_of("n", ["a", "b"]))).request_id != first[0].request_id
    assert next(iter(deletions_of("m", ["a"]))).request_id != first[0].request_id


def test_values_of_a_composite_key_do_not_run_together() -> None:
    assert joined(["north/a b", "1"]) == "north%2Fa%20b/1"
    assert joined(["a/b", "c"]) != joined(["a", "b/c"])
    assert joined(["a/b"]) == "a/b"
