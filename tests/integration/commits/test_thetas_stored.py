"""What the store holds of the thetas is what the step came to, also where one stays as it was."""

from __future__ import annotations

import numpy as np
import pytest

from lethe.engine.store.generation import THETAS
from tests.support.platform import Platform

pytestmark = pytest.mark.redis


@pytest.mark.parametrize("method", ["pru", "exact", "influence"])
def test_thetas_read_back_are_those_in_memory(memory: Platform, method: str) -> None:
    memory.register("m", method=method)
    anchor = memory.load().stream.anchor
    for i in range(3):
        memory.delete("m", 2 * i)
        stored = memory.load().stream
        held = memory.pair[0]._states.get("m")
        assert held is not None
        for name in THETAS:
            np.testing.assert_array_equal(getattr(stored, name), getattr(held.stream, name))
        np.testing.assert_array_equal(stored.anchor, anchor)
