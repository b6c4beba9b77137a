"""What a captured change asks for. The records of whole forms are what the real connector wrote."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from lethe.consumers.cdc.naming import UNAVAILABLE, request_id_of
from lethe.consumers.cdc.translate import (
    FOREIGN_CHANGE,
    INVALID_CHANGE,
    SUBJECT_CHANGED,
    TABLE_TRUNCATED,
    Shape,
    Translated,
    translate,
)
from lethe.consumers.log.base import Partition
from tests.support.captured import envelope, mapping_of, message, record, recorded

ORDERS: dict[str, Any] = {
    "topic": "shop.public.orders",
    "table": "public.orders",
    "models": ["baskets", "prices"],
    "key": {"region": "text", "number": "integer"},
}
ACCOUNTS: dict[str, Any] = {
    "topic": "shop.public.accounts",
    "table": "public.accounts",
    "models": ["risk"],
    "key": {"code": "decimal"},
    "decimal_handling": "string",
}
VISITS: dict[str, Any] = {
    "topic": "shop.public.visits",
    "table": "public.visits",
    "models": ["visits"],
    "key": {"customer": "integer"},
    "replica_identity": "full",
}
SHAPES = {"churn": Shape(("region", "active"), ("fee",))}
FORMS = ("plain", "schema", "cloudevents", "cloudevents-schema", "flattened")


def translated(
    value: Any, key: Any = None, table: Mapping[str, Any] | None = None, **headers: Any
) -> Translated:
    return translate(record(value, key, **headers), mapping_of(table or {}), SHAPES)


def deleted(one: Translated) -> list[tuple[str, str | None]]:
    """Return the models and rows of its deletions; the subject where there is one."""
    return [
        (each.model_id, each.row_ids[0] if each.row_ids else each.subject_id)
        for each in one.deletions
    ]


# -- what the connector wrote -----------------------------------------------------------------


@pytest.mark.parametrize("form", FORMS)
def test_deletes_of_every_form_name_the_same_rows(form: str) -> None:
    flat = {"format": "flattened"} if form == "flattened" else {}
    mapping = mapping_of(flat, {**ORDERS, **flat}, {**ACCOUNTS, **flat}, {**VISITS, **flat})
    found = [translate(each, mapping, SHAPES) for each in recorded(form)]
    assert sorted({pair for one in found for pair in deleted(one)}) == [
        ("baskets", "north%2Fa%20b/1"),
        ("baskets", "south/2"),
        ("churn", "2"),
        ("churn", "3"),
        ("prices", "north%2Fa%20b/1"),
        ("prices", "south/2"),
        ("risk", "123456"),
        ("visits", "1"),
    ]
    refused = {one.code for one in found} - {None}
    assert refused <= {TABLE_TRUNCATED}
    snapshots = [one for one in found if one.outcome == "snapshot"]
    assert snapshots
    assert not any(deleted(one) for one in snapshots)


@pytest.mark.parametrize("form", FORMS)
def test_updates_of_every_form_become_corrections_where_the_mapping_says_so(form: str) -> None:
    flat = {"format": "flattened"} if form == "flattened" else {}
    mapping = mapping_of({"updates": "correct", **flat})
    found = [
        translate(each, mapping, SHAPES)
        for each in recorded(form)
        if each.partition.topic == "shop.public.customers"
    ]
    [correction] = [request for one in found for request in one.corrections]
    [row] = correction.rows
    assert (correction.op, row.id, row.target) == ("correct", "1", 10.25)
    assert row.values == {"region": 1.0, "active": 1.0}


@pytest.mark.parametrize("form", ["plain", "schema", "cloudevents"])
def test_a_truncated_table_is_refused_and_names_the_remedy(form: str) -> None:
    mapping = mapping_of({}, ORDERS, ACCOUNTS, VISITS)
    found = [translate(each, mapping, SHAPES) for each in recorded(form)]
    [truncate] = [one for one in found if one.code == TABLE_TRUNCATED]
    assert "lethe reconcile" in truncate.detail
    assert "visits" in truncate.detail


def test_decimals_in_the_data_of_a_cloud_event_are_known_by_its_schema() -> None:
    field = {"type": "bytes", "name": "org.apache.kafka.connect.data.Decimal", "field": "code"}
    row = {"type": "struct", "fields": [field], "field": "before"}
    [event] = [
        json.loads(each.value or b"")
        for each in recorded("cloudevents-schema")
        if each.offset == 1 and each.partition.topic == "shop.public.accounts"
    ]
    event["data"]["schema"]["fields"] = [row]
    event["data"]["payload"]["before"]["code"] = "1234"
    mapping = mapping_of({**VISITS, **ACCOUNTS})
    read = replace(record(event), partition=Partition("shop.public.accounts", "topic-id", 0))
    one = translate(read, mapping, SHAPES)
    assert "decimal.handling.mode=string" in one.detail


def test_records_with_and_without_schema_may_lie_in_one_topic() -> None:
    mapping = mapping_of({}, ORDERS, ACCOUNTS, VISITS)
    both = [*recorded("plain"), *recorded("schema"), *recorded("cloudevents")]
    found = [translate(each, mapping, SHAPES) for each in both]
    assert sum(("churn", "3") in deleted(one) for one in found) == 3


# -- trap (a): what the old row does not tell -------------------------------------------------


def test_a_subject_outside_the_key_needs_replica_identity_full() -> None:
    subject = {"subject": {"household": "text"}, "deletes": "subject", "replica_identity": "full"}
    row = {"id": 3, "household": "h3"}
    one = translated(envelope("d", before=row), {"id": 3}, subject)
    assert deleted(one) == [("churn", "h3")]
    # what the connector makes up for a table without it
    for household in ("", None):
        row = {"id": 3, "household": household}
        refused = translated(envelope("d", before=row), {"id": 3}, subject)
        assert (refused.code, refused.deletions) == (INVALID_CHANGE, ())
    number = {"subject": {"region": "integer"}, "deletes": "subject", "replica_identity": "full"}
    refused = translated(envelope("d", before={"id": 3, "region": 0}), {"id": 3}, number)
    assert "REPLICA IDENTITY FULL" in refused.detail


def test_what_the_connector_invented_never_names_a_subject() -> None:
    """The recorded table has REPLICA IDENTITY DEFAULT, and its mapping claims FULL."""
    for column, kind in (("household", "text"), ("region", "integer")):
        mapping = mapping_of(
            {"subject": {column: kind}, "deletes": "subject", "replica_identity": "full"}
        )
        for each in recorded("plain"):
            if each.partition.topic == "shop.public.customers":
                found = translate(each, mapping, SHAPES)
                assert not any(request.subject_id for request in found.deletions)


def test_an_update_without_its_old_row_gives_the_claim_of_full_away() -> None:
    table = {"key": {"email": "text"}, "replica_identity": "full"}
    one = translated(envelope("u", after={"id": 1, "email": "b"}), {"id": 1}, table)
    assert "REPLICA IDENTITY FULL" in one.detail


# -- trap (b): a changed primary key ----------------------------------------------------------


def test_a_changed_primary_key_erases_the_row_under_its_old_id() -> None:
    gone = translated(envelope("d", before={"id": 2}), {"id": 2}, newkey={"id": 100})
    came = translated(envelope("c", after={"id": 100}), {"id": 100}, oldkey={"id": 2})
    assert deleted(gone) == [("churn", "2")]
    assert (came.outcome, came.deletions, came.insertions) == ("created", (), ())


def test_a_changed_key_is_no_deletion_of_its_subject() -> None:
    subject = {"subject": {"household": "text"}, "deletes": "subject", "replica_identity": "full"}
    gone = envelope("d", before={"id": 2, "household": "h"})
    [moved] = translated(gone, {"id": 2}, subject, newkey={"id": 100}).deletions
    assert (moved.row_ids, moved.subject_id) == (("2",), None)
    outside = {**subject, "key": {"email": "text"}}
    before, after = ({"id": 2, "household": "h", "email": email} for email in "ab")
    [moved] = translated(envelope("u", before=before, after=after), {"id": 2}, outside).deletions
    assert (moved.row_ids, moved.subject_id) == (("a",), None)


def test_a_changed_primary_key_moves_the_row_where_the_mapping_says_so() -> None:
    table = {"updates": "correct", "key_changes": "correct"}
    gone = translated(envelope("d", before={"id": 2}), {"id": 2}, table, newkey={"id": 100})
    after = {"id": 100, "region": 2, "active": True, "fee": "8.5"}
    came = translated(envelope("c", after=after), {"id": 100}, table, oldkey={"id": 2})
    assert gone.deletions == ()
    assert deleted(came) == [("churn", "2")]
    [moved] = came.insertions
    assert (moved.former, moved.request.op, moved.request.rows[0].id) == ("2", "insert", "100")


def test_a_row_that_cannot_be_inserted_under_its_new_id_is_erased_all_the_same() -> None:
    table = {"updates": "correct", "key_changes": "correct"}
    came = translated(envelope("c", after={"id": 100}), {"id": 100}, table, oldkey={"id": 2})
    assert (came.code, deleted(came)) == (INVALID_CHANGE, [("churn", "2")])


def test_a_changed_primary_key_says_nothing_of_an_id_of_other_columns() -> None:
    table = {
        "key": {"email": "text"},
        "replica_identity": "full",
        "updates": "correct",
        "key_changes": "correct",
    }
    after = {"id": 100, "email": "a"}
    one = translated(envelope("c", after=after), {"id": 100}, table, oldkey={"id": 2})
    assert (one.code, one.deletions) == (INVALID_CHANGE, ())
    assert "lethe reconcile" in one.detail


def test_an_id_outside_the_primary_key_that_changes_is_a_changed_key() -> None:
    table = {"key": {"email": "text"}, "replica_identity": "full"}
    before, after = {"id": 1, "email": "a"}, {"id": 1, "email": "b"}
    one = translated(envelope("u", before=before, after=after), {"id": 1}, table)
    assert deleted(one) == [("churn", "a")]


# -- trap (c): decimals -----------------------------------------------------------------------


def test_a_decimal_key_in_bytes_is_refused_with_and_without_its_schema() -> None:
    mapping = mapping_of({}, ORDERS, ACCOUNTS, VISITS)
    for form in ("precise", "precise-schema"):
        found = [
            translate(each, mapping, SHAPES)
            for each in recorded(form)
            if each.partition.topic == "shop.public.accounts"
        ]
        assert [one.deletions for one in found if one.deletions] == []
        refused = [one for one in found if one.code]
        assert len(refused) == 1
        assert "decimal.handling.mode=string" in refused[0].detail


# -- trap (d): repeats ------------------------------------------------------------------------


def test_a_repeat_with_another_sequence_is_the_same_request() -> None:
    first = translated(envelope("d", before={"id": 3}, sequence="1"), {"id": 3})
    again = translated(envelope("d", before={"id": 3}, sequence="2"), {"id": 3})
    assert first.deletions == again.deletions


@pytest.mark.parametrize(
    "other",
    [{"lsn": 1001}, {"txId": 1}, {"db": "other"}],
)
def test_another_change_is_another_request(other: dict[str, Any]) -> None:
    one = translated(envelope("d", before={"id": 3}), {"id": 3})
    two = translated(envelope("d", before={"id": 3}, **other), {"id": 3})
    assert one.deletions[0].request_id != two.deletions[0].request_id


def test_requests_of_one_change_have_ids_of_their_own() -> None:
    table = {"models": ["a", "b"]}
    one = translated(envelope("d", before={"id": 3}), {"id": 3}, table)
    assert len({each.request_id for each in one.deletions}) == 2


def test_ids_do_not_run_together() -> None:
    from lethe.consumers.cdc.change import Origin

    first = request_id_of(Origin("a", "bc", "t.t", "1", "2"), "m", "row", "x")
    second = request_id_of(Origin("ab", "c", "t.t", "1", "2"), "m", "row", "x")
    assert first != second


# -- trap (e): only the key -------------------------------------------------------------------


def test_only_the_key_columns_need_to_be_in_the_stream() -> None:
    one = translated(envelope("d", before={"id": 3}), {"id": 3})
    assert deleted(one) == [("churn", "3")]
    without_before = translated(envelope("d"), {"id": 3})
    assert deleted(without_before) == [("churn", "3")]


def test_a_table_without_a_primary_key_needs_its_old_rows() -> None:
    full = {"key": {"customer": "integer"}, "replica_identity": "full"}
    one = translated(envelope("d", before={"customer": 5}), None, full)
    assert deleted(one) == [("churn", "5")]
    default = {"key": {"customer": "integer"}}
    refused = translated(envelope("d", before={"customer": 5}), None, default)
    assert (refused.code, refused.deletions) == (INVALID_CHANGE, ())


# -- tombstones -------------------------------------------------------------------------------


def test_a_tombstone_after_a_deletion_asks_for_nothing() -> None:
    assert translated(None, {"id": 3}).outcome == "tombstone"


def test_a_tombstone_that_may_be_the_only_trace_of_a_deletion_is_refused() -> None:
    mapping = mapping_of({"format": "flattened"})
    found = [
        translate(each, mapping, SHAPES)
        for each in recorded("flattened-tombstones")
        if each.partition.topic == "shop.public.customers" and each.value == b"null"
    ]
    assert len(found) == 2
    assert {one.code for one in found} == {INVALID_CHANGE}
    assert "delete.tombstone.handling.mode" in found[0].detail
    ignoring = {"format": "flattened", "tombstones": "ignore"}
    assert translated(None, {"id": 3}, ignoring).code is None


def test_deleted_is_a_text_and_false_is_not_true() -> None:
    row = {
        "id": 1, "__op": "u", "__connector": "postgresql", "__name": "shop", "__db": "lethe",
        "__schema": "public", "__table": "customers", "__lsn": 5, "__txId": 6,
    }  # fmt: skip
    flat = {"format": "flattened"}
    assert translated({**row, "__deleted": "false"}, {"id": 1}, flat).deletions == ()
    assert deleted(translated({**row, "__deleted": "true"}, {"id": 1}, flat)) == [("churn", "1")]
    bare = {"id": 1, "__deleted": "true"}
    assert "add.fields" in translated(bare, {"id": 1}, flat).detail


# -- what is not for us -----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("value", "code"),
    [
        (envelope("d", table="suppliers"), FOREIGN_CHANGE),
        (envelope("d", name="warehouse"), FOREIGN_CHANGE),
        (envelope("d", connector="mysql"), INVALID_CHANGE),
        (envelope("d", lsn=None), INVALID_CHANGE),
        (envelope("x"), INVALID_CHANGE),
        (b"\x00\x00\x00\x00\x01avro", INVALID_CHANGE),
        (b"[]", INVALID_CHANGE),
        (b"{}", INVALID_CHANGE),
        (b'{"op":"d","op":"c","source":{}}', INVALID_CHANGE),
        (b"[" * 100_000, INVALID_CHANGE),
        (b" " * (9 << 20), INVALID_CHANGE),
        ({"op": "d", "source": "x"}, INVALID_CHANGE),
        ({"op": "d", "source": {}, "before": 5}, INVALID_CHANGE),
    ],
)
def test_a_foreign_or_unreadable_record_is_refused(value: Any, code: str) -> None:
    one = translated(value, {"id": 3})
    assert (one.outcome, one.code, one.deletions) == ("refused", code, ())


@pytest.mark.parametrize(
    "key",
    [{"id": "7"}, {"id": 7.0}, {"id": True}, {"id": None}, {"id": {"scale": 0, "value": "Bw=="}}],
)
def test_a_key_of_another_type_names_no_row(key: dict[str, Any]) -> None:
    one = translated(envelope("d"), key)
    assert (one.code, one.deletions) == (INVALID_CHANGE, ())


@pytest.mark.parametrize("value", ["", " ", "x" * 129, "\ud800", "__debezium_unavailable_value"])
def test_a_text_that_is_no_id_names_no_row(value: str) -> None:
    one = translated(envelope("d"), {"id": value}, {"key": {"id": "text"}})
    assert (one.code, one.deletions) == (INVALID_CHANGE, ())


@pytest.mark.parametrize("value", [None, "x", "NaN", "1e999", 10**400, [1]])
def test_a_correction_needs_numbers(value: Any) -> None:
    after = {"id": 1, "region": value, "active": True, "fee": 1}
    one = translated(envelope("u", after=after), {"id": 1}, {"updates": "correct"})
    assert (one.code, one.corrections) == (INVALID_CHANGE, ())


def test_an_update_of_columns_that_no_model_uses_corrects_nothing() -> None:
    table = {"updates": "correct", "replica_identity": "full"}
    before = {"id": 1, "region": 1, "active": True, "fee": 1, "email": "a"}
    after = {**before, "email": "b"}
    assert translated(envelope("u", before=before, after=after), {"id": 1}, table).corrections == ()
    after = {**before, "fee": 2}
    changed = translated(envelope("u", before=before, after=after), {"id": 1}, table)
    assert len(changed.corrections) == 1


@pytest.mark.parametrize("updates", ["ignore", "correct"])
def test_a_row_that_gets_another_subject_is_told_and_corrected_all_the_same(updates: str) -> None:
    """Models keep the subject that they know: the new one's erasure would pass the row over."""
    table = {"subject": {"email": "text"}, "replica_identity": "full", "updates": updates}
    before = {"id": 1, "region": 1, "active": True, "fee": 1, "email": "a"}
    after = {**before, "email": "b", "fee": 2}
    moved = translated(envelope("u", before=before, after=after), {"id": 1}, table)
    assert moved.code == SUBJECT_CHANGED
    assert len(moved.corrections) == (updates == "correct")
    for same in (before, {**before, "email": UNAVAILABLE}):
        assert translated(envelope("u", before=before, after=same), {"id": 1}, table).code is None


def test_no_message_holds_a_value_of_the_row() -> None:
    private = "Ada Lovelace"
    shapes = [
        envelope("d", before={"id": private}),
        envelope("u", after={"id": 1, "region": private}),
        {"op": private, "source": {}, "before": private},
        f'{{"{private}": '.encode(),
    ]
    for value in shapes:
        for key in ({"id": private}, {"id": 1}, private):
            one = translated(value, key, {"updates": "correct"})
            assert private not in one.detail
    assert private not in json.dumps(message(None, None).topic)
