"""The table of docs/scikit-learn.md says what becomes of each transformer now."""

from __future__ import annotations

import pytest
from sklearn.preprocessing import Binarizer

from lethe.engine.conversion import Nature
from tests.support.transformer_table import NUMBERS, PAGE, become, written


def test_the_page_has_the_table_of_now() -> None:
    page = PAGE.read_text()
    assert written(page) == page, "run python -m tests.support.transformer_table"


def test_the_table_asks_the_converter(monkeypatch: pytest.MonkeyPatch) -> None:
    assert become(Binarizer, {}, NUMBERS) is Nature.STATELESS
    monkeypatch.setattr("lethe.engine.conversion.stateless.STATELESS", {})
    assert become(Binarizer, {}, NUMBERS) is not Nature.STATELESS


def test_what_cannot_be_fitted_is_in_no_column() -> None:
    assert become(Binarizer, {}, ["town"]) is None
