"""No attack of the table gets more than its line says, and docs/attacks.md has those lines."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator

import pytest
import redis

from lethe.consumers.contract import topics
from lethe.consumers.contract.events import DELETION_RECEIPT
from lethe.engine.store.layout.keys import ModelKeys
from tests.proof.attacks.attack import Attack, Trace
from tests.proof.attacks.commits import continuing, puts
from tests.proof.attacks.evidence import forges, newest
from tests.proof.attacks.judge import judge, run
from tests.proof.attacks.page import PAGE, page
from tests.proof.attacks.table import PLACES
from tests.proof.attacks.world import LINE, SIGNER, World

CASES = [
    pytest.param(place.signed, attack, id=attack.name)
    for place in sorted(PLACES, key=lambda one: one.signed)
    for attack in place.attacks
]


@pytest.fixture(scope="module")
def worlds() -> Iterator[dict[bool, World]]:
    """The world that was made last, by whether its requests must be signed."""
    made: dict[bool, World] = {}
    yield made
    for world in made.values():
        world.close()


@pytest.fixture
def world(
    signed: bool,
    redis_url: str,
    tmp_path_factory: pytest.TempPathFactory,
    worlds: dict[bool, World],
) -> World:
    if signed not in worlds:
        with redis.Redis.from_url(redis_url) as client:
            client.flushdb()
        worlds[signed] = World(redis_url, tmp_path_factory.mktemp("world"), signed=signed)
    return worlds[signed]


@pytest.mark.parametrize(("signed", "attack"), CASES)
def test_no_attack_gets_more_than_its_line_says(world: World, attack: Attack) -> None:
    run(world, attack)


def test_the_page_has_the_lines_of_the_table() -> None:
    assert PAGE.read_text(encoding="utf-8") == page(), "run python -m tests.proof.attacks"


def test_every_attack_has_a_name_of_its_own() -> None:
    names = Counter(attack.name for place in PLACES for attack in place.attacks)
    assert [name for name, count in names.items() if count > 1] == []
    assert names.total() >= 150


# -- the judge ------------------------------------------------------------------------------------


def brings_a_row_back(world: World) -> None:
    """Take it out of the ledger so that the head's count still holds."""
    world.client.hdel(ModelKeys(LINE).ledger, "row-0")
    world.client.hset(ModelKeys(LINE).ledger, "nobody", 1)


def loses_a_live_row(world: World) -> None:
    for shard in world.platform.load(LINE).generation_keys.every_rows():
        world.client.hdel(shard, "row-40")


def another_answer(world: World) -> None:
    state = world.platform.load(LINE)
    world.client.hset(state.keys.head, "theta_exact", state.stream.theta_exact[::-1].tobytes())


def a_receipt_of_nobodys_request(world: World) -> None:
    event = json.loads(newest(world, topics.RECEIPTS, LINE).value or b"")
    value = json.dumps(event | {"request_id": "x", "status": "APPLIED", "code": None}).encode()
    world.forge(topics.RECEIPTS, LINE, value, SIGNER.signed(DELETION_RECEIPT, value, ()))


def forgets_a_request(world: World) -> None:
    world.truth.owed[LINE, "never sent"] = world.truth.owed[LINE, "old-line"]


def tells_a_secret(world: World) -> None:
    print(world.secrets()[0])  # noqa: T201 - that is what must be noticed


def halts_a_model(world: World) -> None:
    puts(continuing())(world)
    world.delete(LINE, "row-41")
    world.work()


def stops_subscribers(world: World) -> None:
    """Leave nothing of the parameters but wrong ones that a trusted key has signed."""
    place = world.log.reader().partition_for(topics.MODELS, LINE.encode())
    end = world.log.bounds(place).end
    forges(topics.MODELS, LINE, lambda event: event.update(theta=[9.0] * 4), signer=SIGNER)(world)
    world.log.trim(place, end)


HARM = (
    brings_a_row_back,
    loses_a_live_row,
    another_answer,
    a_receipt_of_nobodys_request,
    forgets_a_request,
    tells_a_secret,
    halts_a_model,
    stops_subscribers,
)


@pytest.mark.parametrize("signed", [False])
@pytest.mark.parametrize("harm", HARM, ids=lambda harm: harm.__name__)
def test_the_judge_notices(world: World, harm: Callable[[World], None]) -> None:
    with world.attacked():
        for send in (world.in_flight, world.afterwards):
            send()
            world.work()
        harm(world)
        with pytest.raises(AssertionError):
            judge(world, ())


@pytest.mark.parametrize("signed", [False])
def test_the_judge_lets_pass_what_does_no_harm(world: World) -> None:
    run(world, Attack("nothing", "", "", lambda _world: [Trace("nothing", lambda: True)]))


@pytest.mark.parametrize("signed", [False])
def test_an_attack_that_did_nothing_is_none(world: World) -> None:
    with pytest.raises(AssertionError, match="it was sent"):
        run(world, Attack("nothing", "", "", lambda _world: [Trace("it was sent", lambda: False)]))
