"""Which models an adoption touches, and which it stops: the one that lost writes, and no other."""

from __future__ import annotations

from typing import Any

import pytest

from consumers import takeover, topics
from consumers.adopt import adopt
from tests.integration.test_worker_lost_corners import (
    make_topic_again,
    neighbour_of,
    stands_after_a_takeover,
)
from tests.integration.test_worker_lost_writes import values
from tests.support.invariants import check_model
from tests.support.platform import Platform
from tests.support.stores import put_back, whole

pytestmark = pytest.mark.redis


def test_a_defect_in_adopting_one_model_halts_it_alone(
    memory: Platform, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nor is that model replaced as it is: what could not be taken from the log would be lost."""
    other = neighbour_of("m")
    for name in ("m", other):
        memory.register(name, budget=10.0)
    memory.drain()
    before = whole(memory)
    lost = memory.send_index("m", 1)
    memory.drain()
    put_back(memory, before)

    def defect(*_: object) -> None:
        raise AssertionError("model 'm': a step is not finite")

    with monkeypatch.context() as broken:
        broken.setattr(takeover, "adopt", defect)
        memory.pair[0].recover()
        request = memory.send_index(other, 1)
        memory.turn(memory.pair[0])
        assert request in memory.finals(other)
        assert list(memory.pair[0]._halted.values()) == ["model 'm': a step is not finite"]
        with pytest.raises(AssertionError, match="a step is not finite"):
            memory.register("m", budget=10.0, replace_model=True)
    memory.pair[0].recover()
    memory.drain()
    assert memory.final(lost).version == memory.load().version == 1
    check_model(memory)


def test_a_topic_that_is_made_again_does_not_make_every_model_be_adopted(
    memory: Platform, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its receipts of before name offsets that it does not have yet; adopting reads far back."""
    for name in ("m", neighbour_of("m")):
        memory.register(name, budget=10.0)
        for row in (1, 2):
            memory.send_index(name, row)
    memory.drain()
    adopted: list[str] = []

    def counted(store: Any, reader: Any, model: str, *given: Any) -> object:
        adopted.append(model)
        return adopt(store, reader, model, *given)

    monkeypatch.setattr(takeover, "adopt", counted)
    make_topic_again(memory)
    assert adopted == []
    # One that it has is found all the same, below the others.
    before = whole(memory)
    memory.send("m", "a stranger")
    memory.drain()
    published = values(memory, topics.RECEIPTS)
    put_back(memory, before)
    stands_after_a_takeover(memory, published)
    assert adopted == ["m"]
