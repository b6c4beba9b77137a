"""The usual ways to write an id are found; what is another id is not."""

from __future__ import annotations

import unicodedata

import pytest

from lethe.consumers.erasures.spelling import spellings

UUID_TEXT = "0191e8a4-7c1d-7d30-9f5e-3b6a1c2d4e5f"
PAIRS = [
    ("5", "5.0"),
    ("00007", "7"),
    ("007", "00007"),
    ("-3", "-3.0"),
    ("5.5", "5.50"),
    (unicodedata.normalize("NFC", "zoë"), unicodedata.normalize("NFD", "zoë")),
    ("Ann@Example.com", "ann@example.com"),
    ("h7 ", "h7"),
    (UUID_TEXT, UUID_TEXT.replace("-", "")),
    (UUID_TEXT.upper(), UUID_TEXT),
]


@pytest.mark.parametrize(("one", "other"), PAIRS)
def test_one_of_the_two_leads_to_the_other(one: str, other: str) -> None:
    assert other in spellings(one) or one in spellings(other)


@pytest.mark.parametrize(
    ("asked", "known"), [("5", "5.0"), ("5.0", "5"), ("7", "00007"), ("00007", "7")]
)
def test_a_number_is_found_however_a_file_has_written_it(asked: str, known: str) -> None:
    assert known in spellings(asked)


@pytest.mark.parametrize("text", ["", " ", "0", "-0", "h7", "x" * 128, "ﬁ" * 128, "7" * 128, "\0"])
def test_an_id_is_no_spelling_of_itself_and_all_are_ids(text: str) -> None:
    found = spellings(text)
    assert text not in found
    assert all(0 < len(form) <= 128 for form in found)
    assert len(found) <= 40


def test_different_numbers_are_different_people() -> None:
    assert not {"6", "50", "0.5", "55"} & set(spellings("5"))
