"""A store that went back: what was published stands, and the state is brought to it."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from consumers import topics
from engine.policy import Size
from engine.store.head import LimitsRecord
from tests.integration.test_worker_takeover import dump, restore
from tests.support.invariants import check_model, ledger_of
from tests.support.platform import Platform

pytestmark = pytest.mark.redis

KINDS = [("linear", "pru"), ("linear", "exact"), ("logistic", "pru"), ("logistic", "influence")]


def values(platform: Platform, topic: str) -> list[bytes | None]:
    """Return what was published, repeats left out."""
    return list(dict.fromkeys(record.value for record in platform.records(topic)))


def lose(platform: Platform, doing: Callable[[], None]) -> dict[str, list[bytes | None]]:
    """Do something, publish it, and let the store forget it; return what was published."""
    before = dump(platform.store, "m")
    doing()
    platform.drain()
    published = {t: values(platform, t) for t in (topics.VERSIONS, topics.RECEIPTS, topics.MODELS)}
    restore(platform.store, "m", before)
    platform.pair[0].recover()
    return published


@pytest.mark.parametrize(("kind", "method"), KINDS)
def test_lost_deletions_are_taken_from_the_log_byte_for_byte(
    memory: Platform, kind: str, method: str
) -> None:
    memory.register("m", "benign", kind, method=method, budget=10.0)
    memory.send_index("m", 0)
    memory.drain()

    def deletions() -> None:
        for i in range(1, 5):
            memory.send_index("m", 2 * i, 2 * i + 1)
            memory.drain()

    published = lose(memory, deletions)
    assert memory.load().version == 1
    memory.drain()

    assert {topic: values(memory, topic) for topic in published} == published
    assert memory.load().version == 5
    check_model(memory)
    later = memory.send_index("m", 20)
    memory.drain()
    assert memory.final(later).version == 6
    check_model(memory)


def test_answers_that_made_no_version_are_given_once(memory: Platform) -> None:
    memory.register("m", "benign", "linear", budget=10.0)
    memory.send_index("m", 0)
    memory.drain()

    def refusals() -> None:
        memory.send("m", "a stranger")
        memory.send_index("m", 0)

    published = lose(memory, refusals)
    memory.drain()

    assert {topic: values(memory, topic) for topic in published} == published
    check_model(memory)


def test_a_lost_answer_for_an_unknown_model_comes_out_again_byte_for_byte(memory: Platform) -> None:
    """Given a store that forgot refusals, when they are decided again, then nobody sees a second.

    Found by `make chaos` (seed 5): only registered models are compared with history.
    """
    memory.register("m", "benign", "linear", budget=10.0)
    before = dump(memory.store, "nobody")
    for i in range(3):
        memory.send("nobody", f"row-{i}")
        memory.send("nobody", "another row", request_id="used twice")
    memory.send("nobody", "yet another", request_id="used twice")
    memory.drain()
    published = values(memory, topics.RECEIPTS)
    assert len(published) == 5, "four requests and a conflict"

    restore(memory.store, "nobody", before)
    memory.raw().delete(*memory.raw().keys("lethe:watermark:*"))
    memory.pair[0].recover()
    memory.drain()
    assert len(memory.records(topics.RECEIPTS)) > len(published), "they were sent again"
    assert values(memory, topics.RECEIPTS) == published


@pytest.mark.parametrize(("kind", "method"), KINDS)
@pytest.mark.parametrize("size", list(Size))
def test_a_lost_refresh_whose_result_is_gone_is_adopted_and_then_rebuilt(
    memory: Platform, kind: str, method: str, size: Size
) -> None:
    memory.register("m", "benign", kind, method=method, budget=10.0)
    memory.send_index("m", 0, 1)
    memory.drain()

    def refresh() -> None:
        memory.send_index("m", 2, 3)
        memory.drain()
        memory.order("m", size)
        memory.drain()
        memory.send_index("m", 4)

    published = lose(memory, refresh)
    newest = len(published[topics.VERSIONS]) - 1
    memory.turn(memory.pair[0])
    state = memory.load()
    assert (state.version, state.meta.awaiting_rebuild) == (newest, True)
    assert set(ledger_of(memory)) == {f"row-{i}" for i in range(5)}
    waiting = memory.send_index("m", 5)
    memory.turn(memory.pair[0])
    assert memory.statuses(waiting) == ["DEFERRED"]

    memory.drain()
    assert values(memory, topics.VERSIONS)[: newest + 1] == published[topics.VERSIONS]
    assert memory.final(waiting).status == "APPLIED"
    assert not memory.load().meta.awaiting_rebuild
    check_model(memory)


def test_a_lost_request_that_waited_for_a_rebuild_gets_its_one_final_receipt(
    memory: Platform,
) -> None:
    """Given a lost deferral and its lost resolution, both receipts stand and nothing repeats."""
    full = LimitsRecord(floor_rows=1, fraction_of_d=1e-9)
    memory.register("m", "benign", "linear", method="exact", budget=10.0, limits=full)
    memory.send_index("m", 0)
    memory.drain()
    requests: list[str] = []

    def deferral() -> None:
        requests.append(memory.send_index("m", *range(1, 13)))

    published = lose(memory, deferral)
    assert memory.statuses(requests[0]) == ["DEFERRED", "APPLIED"]
    memory.drain()

    assert set(memory.statuses(requests[0])) == {"DEFERRED", "APPLIED"}
    assert values(memory, topics.RECEIPTS) == published[topics.RECEIPTS]
    assert set(ledger_of(memory)) == {f"row-{i}" for i in range(13)}
    check_model(memory)
