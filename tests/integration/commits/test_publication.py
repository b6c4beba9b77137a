"""The commit under lost answers, zombies and rivals: each request is decided once."""

from __future__ import annotations

import math
import random
import threading
from collections.abc import Callable
from typing import Any

import pytest
from redis.exceptions import ConnectionError as RedisConnectionError, TimeoutError as RedisTimeout

from lethe.consumers.contract import topics
from lethe.consumers.log.base import Message
from lethe.consumers.service.telemetry.metrics import Metrics
from lethe.consumers.service.telemetry.steps import Step
from lethe.consumers.workers import deletion_worker
from lethe.consumers.workers.deletion_worker import DeletionWorker
from lethe.engine.errors import LogUnavailable, StoreUnavailable
from lethe.engine.refresh.size import RefreshSize
from lethe.engine.store.store import ModelStore
from tests.integration.conftest import KAFKA
from tests.support.events import settle
from tests.support.invariants import check_model, ledger_of
from tests.support.memory_log import HookCall, MemoryLog
from tests.support.platform import Platform, store_at
from tests.support.stores import neighbour_of


class Lossy:
    """Breaks the store's connection around what applies commits: before it runs, or after."""

    def __init__(self, store: ModelStore, dice: random.Random) -> None:
        self.lost = {"before": 0, "after": 0}
        self._dice = dice
        self._pipeline = store.client.pipeline
        store.client.pipeline = self._lossy  # type: ignore[method-assign]  # a test's

    def _lossy(self, *arguments: Any, **options: Any) -> Any:
        made: Any = self._pipeline(*arguments, **options)
        run = made.execute

        def execute(*more: Any, **named: Any) -> Any:
            applies = any(command[0][0] == "EVALSHA" for command in made.command_stack)
            # A fold of 16 partitions has many scripts, and begins again when one fails.
            fates = self._dice.choices(["before", "after", "well"], [3, 3, 94])
            fate = fates[0] if applies else "well"
            if fate == "before":
                self.lost[fate] += 1
                raise RedisConnectionError("the connection broke before it was sent")
            answer = run(*more, **named)
            if fate == "after":
                self.lost[fate] += 1
                raise RedisTimeout("it was done, and its answer was lost")
            return answer

        made.execute = execute
        return made


@pytest.mark.parametrize("kind", ["memory", "streams"])
def test_lost_answers_change_nothing(platform_on: Callable[..., Platform], kind: str) -> None:
    platform = platform_on(kind)
    platform.register("m", budget=0.02)
    store = store_at(platform.url)
    lossy = Lossy(store, random.Random(3))
    worker = platform.deletion_worker(store)
    refresher = platform.refresh_worker()
    for i in range(30):
        platform.send_index("m", 2 * i, 2 * i + 1)
        platform.turn(worker)
        if i % 10 == 9:
            platform.order("m", list(RefreshSize)[i // 10])
            refresher.run_once(0.0)
    platform.drain(worker, refresher)
    assert lossy.lost["before"] > 1
    assert lossy.lost["after"] > 1
    assert {receipt.status for receipt in platform.finals().values()} == {"APPLIED"}
    check_model(platform)
    store.close()


def test_a_zombie_changes_nothing(memory: Platform, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two workers, each convinced that the partitions are its own, at every step of the other."""
    memory.register("m", budget=0.02)
    steps = [Step.POLL, Step.VALIDATE, Step.LOAD, Step.DECIDE, Step.APPEND, Step.APPLY]
    interrupt_at = iter([*steps, Step.PUBLISH, Step.ADVANCE] * 5)
    wanted: Step | None = next(interrupt_at)
    other: list[DeletionWorker] = []

    def interrupt(step: str) -> None:
        nonlocal wanted
        if step == wanted:
            wanted = next(interrupt_at, None)
            memory.turn(other[0])

    first = memory.deletion_worker(at_step=interrupt)
    monkeypatch.setattr(deletion_worker, "GROUP", "another-group")
    other.append(memory.deletion_worker())
    refresher = memory.refresh_worker()
    for i in range(35):
        memory.send_index("m", i, i + 35)
        memory.turn(first)
        refresher.run_once(0.0)
    memory.drain(first, refresher)
    memory.drain(other[0], refresher)
    assert wanted is None
    assert {receipt.status for receipt in memory.finals().values()} == {"APPLIED"}
    assert len(ledger_of(memory)) == 70
    check_model(memory)


@pytest.mark.parametrize("kind", ["memory", "streams", KAFKA])
def test_two_groups_that_both_own_a_model_decide_each_request_once(
    platform_on: Callable[..., Platform], monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    """Each thinks that it is alone, and is as fast as the other: both go on, and nobody starves."""
    platform = platform_on(kind)
    names = ["m", neighbour_of("m")]
    for name in names:
        platform.register(name, budget=10.0)
    metrics = [Metrics(), Metrics()]
    group = deletion_worker.GROUP
    workers = []
    for number, one in enumerate(metrics):
        monkeypatch.setattr(deletion_worker, "GROUP", f"{group}-{number}")
        workers.append(platform.deletion_worker(metrics=one))
    stop, failures = threading.Event(), list[BaseException]()

    def work(worker: DeletionWorker) -> None:
        try:
            while not stop.is_set():
                platform.turn(worker, 0.02)
        except BaseException as error:
            failures.append(error)
            raise

    for worker in workers:
        platform.turn(worker, 0.02)
    threads = [threading.Thread(target=work, args=[worker]) for worker in workers]
    for thread in threads:
        thread.start()
    try:
        for i in range(25):
            for name in names:
                platform.send_index(name, i)
        wait_until(lambda: all(len(ledger_of(platform, name)) == 25 for name in names), 60.0)
    finally:
        stop.set()
        for thread in threads:
            thread.join()
    assert not failures
    for worker in workers:
        platform.drain(worker)
    for worker in workers:  # as both do 45 s after a fold, in case older parameters landed last
        worker._newest.send_due(math.inf)
    for name in names:
        assert {receipt.status for receipt in platform.finals(name).values()} == {"APPLIED"}
        assert len(platform.finals(name)) == 25
        check_model(platform, name)
    won = [
        one.registry.get_sample_value("lethe_commits_total", {"outcome": "won"}) for one in metrics
    ]
    assert sum(count or 0 for count in won) > 0


@pytest.mark.parametrize("kind", ["memory", "streams"])
def test_two_workers_in_one_group_and_one_vanishes(
    platform_on: Callable[..., Platform], kind: str
) -> None:
    # Given models in several partitions, shared by two members, each on its own thread
    # (with processes and on Kafka: test_crash)
    platform = platform_on(kind, partitions=4)
    names = [f"model-{i}" for i in range(4)]
    for name in names:
        platform.register(name, budget=10.0)
    stops = [threading.Event(), threading.Event()]
    workers = [platform.deletion_worker() for _ in stops]
    failures: list[BaseException] = []

    def work(worker: DeletionWorker, stop: threading.Event) -> None:
        try:
            while not stop.is_set():
                platform.turn(worker, 0.02)
        except BaseException as error:
            failures.append(error)
            raise

    threads = [
        threading.Thread(target=work, args=pair) for pair in zip(workers, stops, strict=True)
    ]
    for thread in threads:
        thread.start()
    # When one stops in the middle without a word, and requests go on
    try:
        for i in range(24):
            for name in names:
                platform.send_index(name, i)
            if i == 12:
                stops[0].set()
                threads[0].join()
        if kind == "memory":
            assert isinstance(platform.log, MemoryLog)
            platform.log.evict(workers[0]._consumer)  # type: ignore[arg-type]  # of the memory log
        wait_until(lambda: all(len(ledger_of(platform, name)) == 24 for name in names))
    finally:
        for stop, thread in zip(stops, threads, strict=True):
            stop.set()
            thread.join()
    platform.drain(workers[1])
    # Then every model is whole
    assert not failures
    for name in names:
        assert len(platform.finals(name)) == 24
        check_model(platform, name)


def wait_until(true: Callable[[], bool], seconds: float = 30.0) -> None:
    """Wait for what threads or processes bring about."""
    pause = threading.Event()
    for _ in range(int(seconds / 0.05)):
        if true():
            return
        pause.wait(0.05)
    raise TimeoutError(f"not within {seconds:g} s")


def test_what_is_decided_is_not_decided_again(memory: Platform) -> None:
    """Given a worker that ended after its commit, and before it could note how far it was."""
    memory.register("m", budget=10.0)
    memory.send_index("m", 1, request_id="one")
    memory.send_index("m", 2, request_id="one")
    memory.send_index("m", 1, request_id="two")
    memory.send_raw(b"no request")
    memory.drain()
    written = [topics.RECEIPTS, topics.VERSIONS, topics.MODELS]
    before = {topic: memory.records(topic) for topic in written}
    state = memory.load()
    assert {receipt.status for receipt in memory.receipts()} > {"APPLIED", "REJECTED"}
    memory.raw().delete(*memory.raw().keys("lethe:watermark:*"))
    settle(memory)
    assert {topic: memory.records(topic) for topic in written} == before
    assert memory.load().head == state.head
    check_model(memory)


def test_a_log_that_fails_around_every_publish(memory: Platform) -> None:
    memory.register("m", budget=0.02)
    assert isinstance(memory.log, MemoryLog)
    dice = random.Random(4)

    def fail(moment: HookCall) -> None:
        if moment.call == "publish" and moment.messages and dice.random() < 0.3:  # appends too
            ours = {message.topic for message in moment.messages} - {topics.DELETIONS}
            if ours:
                raise LogUnavailable(f"no acknowledgement ({moment.stage})")

    memory.log.hook = fail
    worker = memory.deletion_worker()
    for i in range(30):
        memory.send_index("m", i)
        memory.turn(worker)
    memory.log.hook = lambda _moment: None
    memory.drain(worker, memory.refresh_worker())
    assert {receipt.status for receipt in memory.finals().values()} == {"APPLIED"}
    check_model(memory)


def test_one_corrupt_model_halts_alone_and_goes_on_when_it_is_put_right(memory: Platform) -> None:
    memory.register("m")
    memory.register("n")
    key = memory.load("m").keys.head
    whole = memory.raw().hget(key, "theta_exact")
    memory.raw().hset(key, "theta_exact", b"\x00" * 7)
    memory.send_index("m", 0)
    memory.send_index("n", 0)
    worker = memory.deletion_worker()
    for _ in range(5):
        memory.turn(worker)
    assert memory.finals("n").keys()
    assert not memory.finals("m").keys()
    worker.close()
    assert isinstance(whole, bytes)
    memory.raw().hset(key, "theta_exact", whole)
    memory.drain()
    check_model(memory, "m")
    check_model(memory, "n")


def test_strangers_in_the_topics_do_not_stop_a_takeover(memory: Platform) -> None:
    memory.register("m")
    strange = [b"", b"{", b"[" * 100_000, b'{"model_id": "m"}', b"\xff"]
    for topic in (topics.VERSIONS, topics.MODELS, topics.REFRESH_JOBS):
        memory.producer.publish([Message(topic, b"m", value) for value in strange])
    job = b'{"job_id": "j", "model_id": "%s", "generation": 0, "version": 0, "reason": "\\ud800"}'
    memory.producer.publish([Message(topics.REFRESH_JOBS, b"m", job % b"m")])
    memory.producer.publish([Message(topics.REFRESH_JOBS, b"m", job % b"nobody")])
    request = memory.delete("m", 1)
    assert memory.final(request).status == "APPLIED"


def test_a_store_that_is_gone_is_one_clear_error(memory: Platform) -> None:
    del memory
    with pytest.raises(StoreUnavailable, match="cannot be reached"):
        store_at("redis://127.0.0.1:1")
