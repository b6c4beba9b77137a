"""When `lethe work --until-idle` ends: a model that waits for a person is no success."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from typing import Any

import pytest

from lethe.consumers.contract.sealing import SealKeys
from lethe.consumers.service.telemetry.steps import Step
from lethe.consumers.workers import supervisor
from lethe.consumers.workers.deletion_worker import BatchLimits
from lethe.consumers.workers.drained import Drained
from lethe.consumers.workers.supervisor import ModelsHalted, Supervisor
from lethe.engine.store.layout.keys import ModelKeys
from tests.support.platform import SECRET, Platform

pytestmark = pytest.mark.redis


class Died(BaseException):
    """Ends a registration between two steps."""


def dies_before_it_applies(step: str) -> None:
    if step == Step.REGISTER_APPLY:
        raise Died


@contextmanager
def working(platform: Platform, **options: Any) -> Iterator[tuple[Supervisor, Drained]]:
    """Run a deletion worker as `lethe work` does."""
    supervising = Supervisor(["deletions"])
    worker = platform.deletion_worker(metrics=supervising.metrics, **options)
    thread = threading.Thread(target=worker.run, args=(supervising.stop,))
    thread.start()
    try:
        with closing(Drained(platform.log.reader(), platform.store)) as drained:
            yield supervising, drained
    finally:
        supervising.stop.set()
        thread.join()


def test_a_commit_that_nobody_applied_is_work(memory: Platform) -> None:
    """Given a registration that died after its append, no topic of requests has a record left."""
    with pytest.raises(Died):
        memory.register("m", at_step=dies_before_it_applies)

    def slow_to_begin(step: str) -> None:
        if step == Step.TAKE_OVER:
            time.sleep(0.5)

    with working(memory, at_step=slow_to_begin) as (supervising, drained):
        assert supervising.wait_until_idle(drained)
        assert memory.load("m").version == 0


def test_a_halted_model_is_no_success_even_if_no_request_waits(
    memory: Platform, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Given a registration that was sealed with a key that the worker does not have."""
    monkeypatch.setattr(supervisor, "_PATIENCE_SECONDS", 0.5)
    memory.register("m")
    memory.seals = SealKeys([bytes([7] * 32), SECRET])
    with pytest.raises(Died):
        memory.register("m", replace_model=True, at_step=dies_before_it_applies)
    memory.seals = SealKeys([SECRET])

    with (
        working(memory) as (supervising, drained),
        pytest.raises(ModelsHalted, match="halted models: 1; everything else is done"),
    ):
        supervising.wait_until_idle(drained)
    assert ModelsHalted.exit_code == 1


def test_everything_else_is_done_before_a_halted_model_ends_the_command(
    memory: Platform, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(supervisor, "_PATIENCE_SECONDS", 0.5)
    memory.register("m")
    memory.register("other")
    memory.raw().hset(ModelKeys("m").head, "meta", "no meta")
    memory.send_index("m", 1)
    requests = [memory.send_index("other", i) for i in range(8)]

    def slow(step: str) -> None:
        if step == Step.APPEND:
            time.sleep(0.3)

    with (
        working(memory, at_step=slow, limits=BatchLimits(records=1, poll_seconds=0.05)) as work,
        pytest.raises(ModelsHalted),
    ):
        work[0].wait_until_idle(work[1])
    assert {memory.final(one, "other").status for one in requests} == {"APPLIED"}


def test_patience_is_measured_by_the_clock(
    memory: Platform, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Given a log that takes its time, looking at the topics takes longer than the pauses."""

    def slow(*_: object) -> bool:
        time.sleep(0.2)
        return False

    monkeypatch.setattr(supervisor, "_PATIENCE_SECONDS", 1.0)
    monkeypatch.setattr(Drained, "topics", slow)
    supervising = Supervisor(["deletions"])
    supervising.metrics.halted.set(1)
    begin = time.monotonic()
    with (
        closing(Drained(memory.log.reader(), memory.store)) as drained,
        pytest.raises(ModelsHalted),
    ):
        supervising.wait_until_idle(drained, poll_seconds=0.01)
    assert time.monotonic() - begin < 10
