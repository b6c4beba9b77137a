"""No attack of the table succeeds, and docs/attacks.md has a line for each."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import redis

from tests.proof.attacks import topics
from tests.proof.attacks.attack import Attack
from tests.proof.attacks.judge import run
from tests.proof.attacks.world import World

UNSIGNED = (topics,)


@pytest.fixture(scope="module")
def world(redis_url: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    with redis.Redis.from_url(redis_url) as client:
        client.flushdb()
    world = World(redis_url, tmp_path_factory.mktemp("world"), signed=False)
    yield world
    world.close()


@pytest.mark.parametrize("attack", [a for m in UNSIGNED for a in m.ATTACKS], ids=lambda a: a.name)
def test_no_attack_succeeds(world: World, attack: Attack) -> None:
    run(world, attack)
