"""A mapping is checked as a whole before anything is read."""

from __future__ import annotations

import re
import textwrap
from pathlib import Path

import pytest

from lethe.consumers.cdc.mapping import Mapping, load_mapping
from lethe.engine.errors import InvalidData
from tests.support.servers import ROOT

GOOD = """
connector = "shop"

[[tables]]
topic = "shop.public.customers"
table = "public.customers"
models = ["churn"]
key = { id = "integer" }
"""


def load(tmp_path: Path, text: str) -> Mapping:
    path = tmp_path / "tables.toml"
    path.write_text(text)
    return load_mapping(path)


def test_a_small_mapping_has_safe_defaults(tmp_path: Path) -> None:
    mapping = load(tmp_path, GOOD)
    [table] = mapping.tables
    assert (mapping.topics, mapping.models) == (("shop.public.customers",), ("churn",))
    assert (table.deletes, table.updates, table.key_changes) == ("row", "ignore", "erase")
    assert (table.tombstones, table.replica_identity) == ("refuse", "default")


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ('update = "correct"', "Extra inputs"),
        ('subject = { household = "text" }', "REPLICA IDENTITY FULL"),
        ('deletes = "subject"', "columns of the subject"),
        ('key_changes = "correct"', 'needs updates = "correct"'),
        ('format = "avro"', "envelope"),
        ('[[tables]]\ntopic = "shop.public.customers"\ntable = "public.customers"\n'
         'models = ["x"]\nkey = { id = "integer" }', "mapped twice"),
    ],
)  # fmt: skip
def test_a_mistake_is_refused_with_its_place(tmp_path: Path, more: str, said: str) -> None:
    with pytest.raises(InvalidData, match=said):
        load(tmp_path, GOOD + more)


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ('"integer"', '"decimal"', "decimal.handling.mode=string"),
        ('"integer"', '"float"', "key"),
        ('{ id = "integer" }', "{}", "key"),
        ('["churn"]', "[]", "models"),
        ('["churn"]', '["churn", "churn"]', "twice"),
        ('"public.customers"', '"customers"', "schema.table"),
        ('"shop.public.customers"', '"lethe.deletions"', "one of Lethe's own topics"),
        ('connector = "shop"', "", "connector"),
        ("[[tables]]", "[[tables", "not TOML"),
        ("shop", "\ud800", "in UTF-8"),
    ],
)
def test_a_wrong_value_is_refused(tmp_path: Path, old: str, new: str, said: str) -> None:
    path = tmp_path / "tables.toml"
    path.write_bytes(GOOD.replace(old, new).encode("utf-8", "surrogatepass"))
    with pytest.raises(InvalidData, match=said):
        load_mapping(path)


def test_a_file_that_is_not_there_or_too_large_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidData, match="check the path"):
        load_mapping(tmp_path / "none.toml")
    with pytest.raises(InvalidData, match="more than"):
        load(tmp_path, "#" * (2 << 20))


def test_a_comment_is_no_other_mapping_and_a_model_is(tmp_path: Path) -> None:
    first = load(tmp_path, GOOD).digest
    assert load(tmp_path, f"# hello\n{GOOD}").digest == first
    assert load(tmp_path, GOOD.replace('"churn"', '"churn", "ltv"')).digest != first
    assert load(tmp_path, GOOD.replace('id = "integer"', 'id = "text"')).digest != first


def test_the_mappings_of_the_page_can_be_used(tmp_path: Path) -> None:
    page = (ROOT / "docs" / "cdc.md").read_text(encoding="utf-8")
    examples = re.findall(r'^ {4}connector = "shop".*\n(?:(?! {4}END)(?: {4}.*)?\n)+', page, re.M)
    found = [load(tmp_path, textwrap.dedent(example)).models for example in examples]
    assert found == [("churn",), ("baskets", "churn", "value")]
