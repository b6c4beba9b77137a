"""What a model takes of the store, as `lethe register` says it."""

from __future__ import annotations

import pytest
import redis

from lethe.engine.refresh.size import RefreshSize
from lethe.engine.store.layout import codec
from lethe.engine.store.sizes import stored_bytes
from tests.support.families import Data
from tests.support.platform import Platform

pytestmark = pytest.mark.redis


def raw_bytes(data: Data) -> int:
    n, d = data.X.shape
    return int(n) * codec.row_size(d, data.y.shape[1], 1)


def test_it_is_what_the_rows_take_and_little_more_a_row(memory: Platform) -> None:
    memory.register("m")
    data, n = memory.data["m"], memory.data["m"].X.shape[0]

    stored = stored_bytes(memory.store, memory.load("m"))

    assert stored is not None
    assert raw_bytes(data) < stored < raw_bytes(data) + 300 * n + 50_000


def test_a_rebuild_leaves_it_as_it_was(memory: Platform) -> None:
    """Given a model whose rows were written anew, the former ones count no more."""
    memory.register("m")
    before = stored_bytes(memory.store, memory.load("m"))
    memory.refresh("m", RefreshSize.REBUILD)

    after = stored_bytes(memory.store, memory.load("m"))

    assert memory.load("m").meta.generation == 1
    assert before is not None
    assert after is not None
    assert abs(after - before) < 0.2 * before


def test_a_server_that_does_not_say_is_no_error(
    memory: Platform, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its users may be forbidden to ask."""
    memory.register("m")
    state = memory.load("m")

    def refuse(*_: object, **__: object) -> None:
        raise redis.ResponseError("unknown command 'MEMORY'")

    monkeypatch.setattr(redis.client.Pipeline, "execute", refuse)

    assert stored_bytes(memory.store, state) is None
