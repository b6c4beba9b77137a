from __future__ import annotations

import pytest

from lethe.engine.deletion.methods import METHODS, method_named
from lethe.engine.errors import InvalidData


def test_an_unknown_method_is_refused_with_the_names_that_exist() -> None:
    with pytest.raises(InvalidData, match="choose one of pru, exact, influence"):
        method_named("magic")


def test_every_method_is_found_by_its_name() -> None:
    assert set(METHODS) == {"pru", "exact", "influence"}
    for name in METHODS:
        assert method_named(name).name == name
