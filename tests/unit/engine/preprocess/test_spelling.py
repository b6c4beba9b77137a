"""What text spells, and the category that a value is however it is spelled."""

from __future__ import annotations

import pytest

from lethe.engine.preprocess.input.columns import Category
from lethe.engine.preprocess.input.spelling import categories_of, matched, said


@pytest.mark.parametrize(
    ("text", "spelled"),
    [
        ("true", True),
        (" FALSE ", False),
        ("0", 0),
        ("-12", -12),
        ("7.0", 7),
        ("7.", 7),
        (" ", None),
        ("9" * 15, 10**15 - 1),
        *((text, text) for text in ("01067", "-0", "+7", "7.5", "1e3", "٧", "9" * 16, "yes", " a")),
    ],
)
def test_text_spells_truth_a_whole_number_nothing_or_itself(text: str, spelled: Category) -> None:
    found = said(text)
    assert (type(found), found) == (type(spelled), spelled)


@pytest.mark.parametrize(
    ("texts", "held"),
    [
        (["True", "false", ""], [True, False, None]),
        (["2", None, "10.0"], [2, None, 10]),
        (["2", "true"], ["2", "true"]),
        (["89073", "01067", " "], ["89073", "01067", None]),
        ([None, ""], [None, None]),
        ([], []),
    ],
)
def test_a_column_of_text_holds_categories_of_one_kind(
    texts: list[str | None], held: list[Category]
) -> None:
    found = categories_of(texts)
    assert [(type(one), one) for one in found] == [(type(one), one) for one in held]


@pytest.mark.parametrize(
    ("known", "value", "found"),
    [
        ((2, 10), "2.0", 2),
        ((2, 10), 2.0, 2),
        (("2", "10"), 2, "2"),
        ((True, False), "TRUE", True),
        (("False", "True"), False, "False"),
        (("False", "True"), "false", "False"),
        ((True, False), 1, True),
        (("a", None), "", None),
        (("a", ""), "", ""),
        (("2", "2.0"), "2.0", "2.0"),
        (("2", "2.0"), 2, 2),
        (("a", "b"), "A", "A"),
        (("01067",), 1067, 1067),
        ((), "2", "2"),
    ],
)
def test_a_value_is_the_known_category_that_it_alone_spells(
    known: tuple[Category, ...], value: Category, found: Category
) -> None:
    [one] = matched(known, [value])
    assert (type(one), one) == (type(found), found)
