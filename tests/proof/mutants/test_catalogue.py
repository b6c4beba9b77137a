"""The catalogue goes with the tree: a guard that was moved is not silently left out."""

from __future__ import annotations

import ast
from functools import cache

import pytest

from tests.proof.mutants.catalogue import MUTANTS, SIMULATION, Mutant
from tests.proof.mutants.edits import Edit, NotThere, made, named_tests, never, put, without
from tests.support.servers import ROOT


@cache
def _as_it_is(path: str) -> str:
    text = (ROOT / path).read_text(encoding="utf-8")
    return ast.unparse(ast.parse(text)) if path.endswith(".py") else text


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_a_mutant_can_be_made_and_what_catches_it_exists(mutant: Mutant) -> None:
    changed = made(mutant.edits)
    assert changed
    for path, text in changed.items():
        assert text != _as_it_is(path)
    if mutant.caught_by != SIMULATION:
        assert len(named_tests(mutant.caught_by)) == 1


@pytest.mark.parametrize(
    "edit",
    [
        without("Journal.no_such_function", "self"),
        without("Journal._won", "no such text"),
        never("Journal._won", "no such text"),
        put("Journal._won", "no_such_expression", "0"),
        without("apply.lua", "redis.call"),
    ],
    ids=str,
)
def test_what_is_not_there_exactly_once_is_not_changed(edit: Edit) -> None:
    with pytest.raises(NotThere):
        made((edit,))
