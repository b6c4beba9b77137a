"""A store that went back: what was published stands, and the state is brought to it."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from consumers import adopt as adopt_module, reach, takeover, topics
from consumers.adopt import adopt
from consumers.adopt_refresh import adopt_refresh
from consumers.events import Receipt
from consumers.log.memory import MemoryLog, Moment
from consumers.reach import FARTHEST, Reach
from consumers.transition import Transition
from engine.errors import CommitConflict, VersionFork
from engine.policy import Size
from engine.store.head import LimitsRecord
from engine.store.keys import shard_of
from engine.store.state import Deferred
from tests.integration.test_worker_requests import append_to
from tests.integration.test_worker_takeover import Dump, dump, restore
from tests.support.invariants import check_model, ledger_of
from tests.support.platform import Platform
from tests.support.waiting import CROWDED

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


def two_models(memory: Platform) -> None:
    memory.register("m", "benign", "linear", budget=10.0)
    memory.register("other", "benign", "linear", budget=10.0)
    memory.send_index("m", 0)
    memory.drain()


def send_others(memory: Platform) -> None:
    """Ask for more receipts of another model than a takeover reads in any case."""
    for i in range(4):
        memory.send("other", f"a stranger {i}")


def test_lost_answers_are_found_behind_many_of_other_models(
    memory: Platform, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The mark says from where on receipts can be lost, however many others there are."""
    monkeypatch.setattr(reach, "NET", 3)
    two_models(memory)

    def refusals() -> None:
        memory.send("m", "a stranger")
        memory.drain()
        send_others(memory)

    published = lose(memory, refusals)
    memory.drain()

    assert {topic: values(memory, topic) for topic in published} == published
    check_model(memory)


def test_a_halt_is_not_forgotten_when_many_answers_of_others_follow(
    memory: Platform, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reach, "NET", 3)
    two_models(memory)
    before = dump(memory.store, "m")
    memory.send("m", "a stranger")
    memory.drain()
    restore(memory.store, "m", before)
    # Given a model that halts because its lost answers cannot be taken from the log
    with monkeypatch.context() as patch:
        patch.setattr(takeover, "adopt", _refuse)
        worker = memory.deletion_worker(mark_seconds=0.0)
        memory.pair[0].close()
        worker.run_once(0.0)
        assert memory.store.handover.halted() == {"m"}
        # and many answers of others, behind which the next mark lies
        send_others(memory)
        memory.drain(worker)
    published = values(memory, topics.RECEIPTS)
    # When the next takeover looks
    worker.recover()
    memory.drain(worker)
    # Then its answers are still those that were published, and the halt is over
    assert values(memory, topics.RECEIPTS) == published
    assert memory.store.handover.halted() == frozenset()
    check_model(memory)


def _refuse(*_: object) -> None:
    raise VersionFork("model 'm': as if the log did not explain it")


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


def test_who_adopts_while_another_worker_does_reads_again_and_does_not_halt(
    memory: Platform, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Found by a chaos run: what the other one had committed was taken for a disagreement."""
    memory.register("m", "benign", "linear", budget=10.0)
    memory.drain()
    before = dump(memory.store, "m")
    memory.send_index("m", 0, 1)
    memory.drain()
    memory.order("m", Size.REBUILD)
    memory.drain()
    memory.send_index("m", 2)
    memory.drain()
    versions = memory.versions()
    restore(memory.store, "m", before)

    def after_another(*given: Any) -> Transition:
        monkeypatch.undo()
        adopt(memory.store, memory.reader, "m", Reach(FARTHEST))
        return adopt_refresh(*given)

    monkeypatch.setattr(adopt_module, "adopt_refresh", after_another)
    with pytest.raises(CommitConflict, match="another worker has taken it"):
        adopt(memory.store, memory.reader, "m", Reach(FARTHEST))
    memory.pair[0].recover()
    memory.drain()
    assert memory.versions()[: len(versions)] == versions
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


def test_lost_answers_of_an_unregistered_model_stand(memory: Platform) -> None:
    """Given answers that the store has lost, when the records are read again, none is new."""
    memory.register("m", budget=10.0)
    memory.drain()
    before = dump(memory.store, "ghost")
    requests = [memory.send("ghost", "row-1"), memory.send("ghost", "row-2")]
    memory.drain()
    published = values(memory, topics.RECEIPTS)
    restore(memory.store, "ghost", before)
    # When a repeat of one is read first, in a partition that its key does not belong to
    home = memory.final(requests[0], "ghost").source.partition
    body = {"request_id": requests[0], "model_id": "ghost", "row_ids": ["row-1"]}
    append_to(memory, 1 - home, json.dumps(body).encode(), b"ghost")
    memory.pair[0].recover()
    memory.drain()
    memory.raw().delete(*memory.raw().keys("lethe:watermark:*"))
    memory.pair[0].recover()
    memory.drain()

    assert values(memory, topics.RECEIPTS) == published
    assert {memory.final(name, "ghost").code for name in requests} == {"UNKNOWN_MODEL"}


@pytest.mark.parametrize("announced", [True, False])
def test_a_lost_registration_halts_until_it_is_registered_again(
    memory: Platform, announced: bool
) -> None:
    """Given a published model that the store has lost, its requests wait, and are then applied."""
    memory.register("other", budget=10.0)
    memory.register("m", budget=10.0)
    memory.drain()
    restore(memory.store, "m", {})
    if not announced:
        memory.raw().srem("lethe:models", "m")
    memory.pair[0].recover()
    request, neighbour = memory.send_index("m", 1), memory.send_index("other", 1)
    memory.drain()
    assert memory.statuses(request) == []
    assert memory.final(neighbour, "other").status == "APPLIED"
    assert memory.store.handover.halted() == {"m"}, "noted, for marks move on"

    memory.register("m", budget=10.0, replace_model=True)
    memory.pair[0].recover()
    memory.drain()

    assert memory.store.handover.halted() == frozenset()
    assert memory.final(request).status == "APPLIED"
    assert [version.version for version in memory.versions()] == [0, 1, 2]
    check_model(memory)


def test_a_worker_mends_a_model_whose_requests_normally_lie_elsewhere(memory: Platform) -> None:
    """Given a request in another partition, its worker does not decide it on a lost state."""
    memory.register("m", budget=10.0)
    first, _ = memory.pair
    other = memory.deletion_worker()
    for worker in (first, other):
        worker.run_once(0.0)
    home = memory.log.reader().partition_for(topics.DELETIONS, b"m").index
    held = {partition.index for partition in first._consumer.assignment()}
    owner, stray = (first, other) if home in held else (other, first)
    before = dump(memory.store, "m")
    memory.send_index("m", 0)
    owner.run_once(0.0)
    published = values(memory, topics.VERSIONS)
    restore(memory.store, "m", before)

    body = json.dumps({"request_id": "strays", "model_id": "m", "row_ids": ["row-7"]}).encode()
    append_to(memory, 1 - home, body, b"m")
    memory.asked["m", "strays"] = ("row-7",)
    stray.run_once(0.0)

    assert memory.final("strays").version == 2
    assert values(memory, topics.VERSIONS)[: len(published)] == published
    owner.recover()
    memory.drain(owner)
    check_model(memory)


def test_lost_deletions_of_rows_that_are_erased_are_adopted(memory: Platform) -> None:
    """Given lost deletions whose rows are gone, the published parameters stand until a rebuild."""
    memory.register("m", budget=10.0)
    memory.send_index("m", 0)
    memory.drain()

    def deletions() -> None:
        memory.send_index("m", 1, 2)

    published = lose(memory, deletions)
    live = memory.load().generation_keys
    for row in ("row-1", "row-2"):
        assert memory.raw().hdel(live.rows(shard_of(row)), row) == 1
    memory.turn(memory.pair[0])
    assert memory.load().meta.awaiting_rebuild
    assert set(ledger_of(memory)) == {"row-0", "row-1", "row-2"}

    memory.drain()
    assert values(memory, topics.VERSIONS)[:3] == published[topics.VERSIONS]
    check_model(memory)


def test_a_version_that_the_store_loses_while_the_log_is_slow_is_not_published(
    memory: Platform,
) -> None:
    """Given receipts that are slow, when a failover loses their commit, its version stays out."""
    assert isinstance(memory.log, MemoryLog)
    memory.register("m", budget=10.0)
    memory.drain()
    before = dump(memory.store, "m")

    def slow(moment: Moment) -> None:
        sent = {message.topic for message in moment.messages}
        if moment.stage == "after" and topics.RECEIPTS in sent:
            restore(memory.store, "m", before)

    memory.log.hook = slow
    memory.send_index("m", 1)
    memory.pair[0].run_once(0.0)

    assert [version.version for version in memory.versions()] == [0]


def lose_at_receipts(memory: Platform, before: Dump, model: str = "m") -> None:
    """Let the store go back as soon as final receipts are out, before their version is."""
    assert isinstance(memory.log, MemoryLog)

    def slow(moment: Moment) -> None:
        finals = [
            message
            for message in moment.messages
            if message.topic == topics.RECEIPTS and b"DEFERRED" not in (message.value or b"")
        ]
        if moment.stage == "after" and finals:
            memory.log.hook = lambda _: None  # type: ignore[attr-defined]
            restore(memory.store, model, before)

    memory.log.hook = slow


def test_a_receipt_whose_version_was_lost_stands_when_its_request_must_wait(
    memory: Platform,
) -> None:
    """Found by the simulation (seed 1435): it was deferred, and answered anew by the rebuild."""
    memory.register("m", budget=10.0)
    memory.drain()
    before = dump(memory.store, "m")
    memory.send_index("m", 1)
    memory.drain()
    lose_at_receipts(memory, before)
    second = memory.send_index("m", 2)
    memory.pair[0].run_once(0.0)
    assert [version.version for version in memory.versions()] == [0, 1]
    live = memory.load().generation_keys
    assert memory.raw().hdel(live.rows(shard_of("row-1")), "row-1") == 1
    published = values(memory, topics.RECEIPTS)

    memory.pair[0].recover()
    memory.drain()

    assert values(memory, topics.RECEIPTS) == published
    assert memory.final(second).version == 2
    assert [version.version for version in memory.versions()] == [0, 1, 2]
    check_model(memory)


def lose_a_rebuild(memory: Platform, model: str = "m") -> tuple[str, Deferred]:
    """Lose the swap of a rebuild after its receipt was published; return the one that waits."""
    memory.register(model, "benign", "linear", budget=10.0, limits=CROWDED)
    request = memory.send_index(model, *range(20))
    worker, refresher = memory.pair
    memory.turn(worker)
    before = dump(memory.store, model)
    assert list(memory.load(model).deferred) == [request]
    lose_at_receipts(memory, before, model)
    while len(memory.records(topics.RECEIPTS)) < 2:
        refresher.run_once(0.0)
        memory.turn(worker)
    assert [version.version for version in memory.versions(model)] == [0]
    memory.raw().delete(*memory.raw().keys("lethe:watermark:*"))  # lost as well
    worker.recover()
    worker.run_once(0.0)
    return request, memory.load(model).deferred[request]


def test_a_rebuilds_receipts_stand_when_its_version_is_lost(memory: Platform) -> None:
    """The request waits in the state that came back; the same rebuild is swapped in again."""
    request, waiting = lose_a_rebuild(memory)
    published = values(memory, topics.RECEIPTS)
    assert waiting.answer is not None
    assert waiting.answer.encode() in published

    memory.drain()

    assert values(memory, topics.RECEIPTS) == published
    assert memory.final(request).version == 1
    check_model(memory)


def test_a_rebuild_that_comes_to_another_end_than_was_published_is_not_swapped_in(
    memory: Platform,
) -> None:
    request, waiting = lose_a_rebuild(memory)
    published, keys = values(memory, topics.RECEIPTS), memory.load().keys
    # Given that another number of rows was published than the rebuild comes to
    answer = Receipt.model_validate_json(waiting.answer or "")
    altered = answer.model_copy(update={"rows_deleted": 19}).model_dump_json()
    there = waiting.model_copy(update={"answer": altered}).model_dump_json()
    memory.raw().hset(keys.deferred, request, there)
    memory.pair[0].recover()
    # Then the model halts as it is, instead of two answers to one request
    memory.drain()
    (reason,) = memory.pair[0]._halted.values()
    assert reason.startswith(f"model 'm': request {request!r} was answered APPLIED with version 1")
    assert values(memory, topics.RECEIPTS) == published
    assert [version.version for version in memory.versions()] == [0]
    # until what the log says is in the store again.
    memory.raw().hset(keys.deferred, request, waiting.model_dump_json())
    memory.pair[0].recover()
    memory.drain()
    assert memory.final(request).version == 1
    check_model(memory)


def test_a_lost_rebuild_whose_receipts_were_kept_is_adopted_without_new_ones(
    memory: Platform,
) -> None:
    """The store goes back a second time: to where the published answer is kept with the request."""
    request, waiting = lose_a_rebuild(memory)
    kept = dump(memory.store, "m")
    memory.drain()
    assert [version.version for version in memory.versions()] == [0, 1]
    published = values(memory, topics.RECEIPTS)
    restore(memory.store, "m", kept)
    assert memory.load().deferred == {request: waiting}

    memory.pair[0].recover()
    memory.drain()

    assert values(memory, topics.RECEIPTS) == published
    assert memory.load().deferred == {}
    assert memory.final(request).version == 1
    check_model(memory)
