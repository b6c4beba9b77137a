"""The catalogue goes with the tree: a guard that was moved is not silently left out."""

from __future__ import annotations

import pytest

from tests.proof.mutants.catalogue import MUTANTS, SIMULATION, Mutant
from tests.support.servers import ROOT


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_a_mutant_can_be_made_and_what_catches_it_exists(mutant: Mutant) -> None:
    texts: dict[str, str] = {}
    for edit in mutant.edits:
        text = texts.setdefault(edit.path, (ROOT / edit.path).read_text(encoding="utf-8"))
        assert text.count(edit.old) == 1, f"{edit.path}: {edit.old}"
        texts[edit.path] = text.replace(edit.old, edit.new)
    if mutant.caught_by != SIMULATION:
        path, _, name = mutant.caught_by.partition("::")
        assert f"def {name}(" in (ROOT / path).read_text(encoding="utf-8")
