"""No attack of the table succeeds, and docs/attacks.md has a line for each."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import redis

from tests.proof.attacks.attack import Attack
from tests.proof.attacks.judge import run
from tests.proof.attacks.table import PLACES
from tests.proof.attacks.world import World

CASES = [
    pytest.param(place.signed, attack, id=attack.name)
    for place in sorted(PLACES, key=lambda one: one.signed)
    for attack in place.attacks
]


@pytest.fixture(scope="module")
def world_of(
    redis_url: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[dict[bool, World]]:
    """The worlds by whether requests must be signed; one at a time has the store."""
    made: dict[bool, World] = {}
    yield made
    for world in made.values():
        world.close()


@pytest.fixture
def world(
    request: pytest.FixtureRequest,
    redis_url: str,
    tmp_path_factory: pytest.TempPathFactory,
    world_of: dict[bool, World],
) -> World:
    signed: bool = request.getfixturevalue("signed")
    if signed not in world_of:
        with redis.Redis.from_url(redis_url) as client:
            client.flushdb()
        world_of[signed] = World(redis_url, tmp_path_factory.mktemp("world"), signed=signed)
    return world_of[signed]


@pytest.mark.parametrize(("signed", "attack"), CASES)
def test_no_attack_succeeds(world: World, signed: bool, attack: Attack) -> None:
    assert world.signed is signed
    run(world, attack)
