"""Whose rows are live, while another generation is swapped in."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any

import pytest
import redis

from lethe.engine.refresh.size import RefreshSize
from lethe.engine.store.layout.keys import ModelKeys
from lethe.engine.store.membership import every_live_row, live_members, never_members
from tests.support.platform import Platform, row_ids


class SwappedMeanwhile:
    """A client of a store in which a rebuild is swapped in once the live generation was read."""

    def __init__(self, platform: Platform) -> None:
        self._platform = platform
        self._client = platform.raw()
        self.swapped = False

    def __getattr__(self, name: str) -> Any:
        return getattr(self._client, name)

    def hget(self, key: str, field: str) -> Any:
        answer = self._client.hget(key, field)
        if field == "rows" and key == ModelKeys("m").head and not self.swapped:
            self.swapped = True
            self._platform.order("m", RefreshSize.REBUILD)
            self._platform.drain()
        return answer


ASKED = ["row-0", "row-1", "row-2", "stranger"]


def _never(client: redis.Redis) -> Collection[str]:
    return never_members(client, "m", ASKED)


def _live(client: redis.Redis) -> Collection[str]:
    return live_members(client, "m", ASKED)


def _every(client: redis.Redis) -> Collection[str]:
    return every_live_row(client, "m")


Read = Callable[[redis.Redis], Collection[str]]


@pytest.mark.parametrize(
    ("read", "expected"),
    [(_never, {"stranger"}), (_live, {"row-1", "row-2"}), (_every, None)],
)
def test_a_swap_hides_no_live_row(memory: Platform, read: Read, expected: set[str] | None) -> None:
    memory.register("m", "benign", "linear", budget=10.0)
    memory.send("m", "row-0")
    memory.drain()
    client: Any = SwappedMeanwhile(memory)
    found = set(read(client))
    assert client.swapped
    assert found == (expected or set(row_ids(memory.data["m"])) - {"row-0"})
