"""The corpus of pipelines holds: each is right after 50 changes, or refused by name."""

from __future__ import annotations

import pytest

from tests.proof.pipelines.corpus import FIRST, Entry
from tests.proof.pipelines.judging import judged
from tests.proof.pipelines.second import SECOND

REFUSED = ("three classes, imputed, each against the rest, balanced",)
"""Its weights of classes are others in the problem of each class."""


@pytest.mark.parametrize("entry", [*FIRST, *SECOND], ids=lambda entry: entry.name)
def test_a_pipeline_is_right_or_refused_by_name(entry: Entry) -> None:
    found = judged(entry)
    assert (found.verdict == "refused") == (entry.name in REFUSED), found.said
    assert found.verdict not in ("wrong", "failed"), found.said


def test_what_is_ordinary_is_accepted() -> None:
    ordinary = next(entry for entry in FIRST if entry.name == "mixed types, mean")
    assert judged(ordinary).verdict == "inside"


def test_no_pipeline_is_there_twice() -> None:
    names = [entry.name for entry in (*FIRST, *SECOND)]
    assert len(set(names)) == len(names)
