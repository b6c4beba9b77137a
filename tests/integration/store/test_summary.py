"""Where a model stands, read without its state."""

from __future__ import annotations

import pytest

from lethe.engine.errors import CorruptState, UnknownModel
from lethe.engine.store.layout.keys import ModelKeys
from lethe.engine.store.lookup import read_summary
from tests.support.platform import Platform


def test_it_is_what_the_state_says_and_reads_no_array(memory: Platform) -> None:
    memory.register("m")
    memory.delete("m", 3)
    state = memory.load("m")
    memory.raw().delete(state.generation_keys.fixed)
    memory.raw().hdel(ModelKeys("m").head, "theta_exact")
    with pytest.raises(CorruptState):
        memory.load("m")

    summary = read_summary(memory.store.client, "m")

    assert summary.meta == state.meta
    assert (summary.model_id, summary.version, summary.deferred) == ("m", 1, 0)


def test_a_model_that_is_not_registered_or_no_longer_is_unknown(memory: Platform) -> None:
    memory.register("m")
    memory.registrar().unregister("m")
    for model in ("m", "n"):
        with pytest.raises(UnknownModel, match="is not registered"):
            read_summary(memory.store.client, model)


def test_a_head_that_does_not_parse_is_corrupt(memory: Platform) -> None:
    memory.register("m")
    memory.raw().hset(ModelKeys("m").head, "meta", b"{")
    with pytest.raises(CorruptState):
        read_summary(memory.store.client, "m")
