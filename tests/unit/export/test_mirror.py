"""The mirror: what is wrong with one model keeps no other from being mirrored."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from lethe.consumers.export.mirror import Mirror
from lethe.consumers.export.mlflow_registry import Entry
from lethe.engine.errors import BrokenChain


class Versions:
    """Has version 3 of every model but one, whose history is broken."""

    def latest(self, model_id: str, *, known: object) -> Any:
        assert known is None
        if model_id == "broken":
            raise BrokenChain("model 'broken': history was rewritten")
        return SimpleNamespace(model_id=model_id, version=3, digest=f"{model_id}-3")


class Shelf:
    """A registry in memory."""

    def __init__(self) -> None:
        self.kept: dict[str, list[Entry]] = {}

    def entries(self, model_id: str) -> list[Entry]:
        return list(self.kept.get(model_id, ()))

    def stands(self, entry: Entry) -> bool:
        return entry in self.kept[entry.name]

    def add(self, version: Any) -> Entry:
        entry = Entry(version.model_id, 1, "run", version.version, version.digest)
        self.kept.setdefault(version.model_id, []).append(entry)
        return entry

    def promote(self, entry: Entry) -> None: ...

    def remove(self, entry: Entry) -> None:
        self.kept[entry.name].remove(entry)

    def remove_leftovers(self, model_id: str, keep: Entry) -> int:
        assert self.kept[model_id] == [keep]
        return 0


def test_once_mirrors_the_models_after_one_that_is_refused_and_then_says_so() -> None:
    shelf = Shelf()
    mirror = Mirror(cast("Any", Versions()), shelf, lambda: ["broken", "churn"])

    with pytest.raises(BrokenChain, match="rewritten"):
        mirror.run_once()
    assert [entry.number for entry in shelf.entries("churn")] == [3]


def test_a_failure_that_is_repaired_is_not_raised_by_the_next_call() -> None:
    models = ["broken"]
    mirror = Mirror(cast("Any", Versions()), Shelf(), lambda: models)
    with pytest.raises(BrokenChain):
        mirror.run_once()
    models.remove("broken")
    assert mirror.run_once() == 0
