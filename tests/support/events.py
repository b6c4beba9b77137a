"""What happens to workers and stores in tests: they die, are replaced, go back, are compared."""

from __future__ import annotations

import random
from collections.abc import Callable

import numpy as np
import pytest

from lethe.consumers.contract import topics
from lethe.consumers.service.loop import TRANSIENT
from lethe.consumers.service.telemetry.steps import AtStep, Step, no_hook
from lethe.consumers.workers import deletion_worker
from lethe.consumers.workers.deletion_worker import DeletionWorker
from lethe.engine.store.layout.state import ModelState
from tests.support.memory_log import MemoryConsumer, MemoryLog
from tests.support.platform import Platform
from tests.support.stores import backup, restore

PUBLISHED = (topics.RECEIPTS, topics.VERSIONS, topics.REFRESH_JOBS)
STEPS = (
    Step.POLL,
    Step.VALIDATE,
    Step.LOAD,
    Step.DECIDE,
    Step.APPEND,
    Step.APPLY,
    Step.PUBLISH,
    Step.ADVANCE,
)
"""Of a deletion worker, in their order."""
FOLD_STEPS = (Step.FOLD_APPLY, Step.FOLD_PUBLISH, Step.FOLD_ADVANCE)


class Died(Exception):
    """A worker ends here, without a word."""


def published(platform: Platform) -> dict[str, list[bytes]]:
    """Return what was published, repeats left out, in order."""
    return {
        topic: list(dict.fromkeys(record.value or b"" for record in platform.records(topic)))
        for topic in PUBLISHED
    }


def settle(platform: Platform) -> None:
    """Fold, and decide what there is."""
    platform.pair[0].recover()
    platform.drain()


def ends_at(step: str, times: int = 1) -> Callable[[str], None]:
    """Return what ends a worker when it reaches a step for the so-and-so-manieth time."""
    left = times

    def at_step(reached: str) -> None:
        nonlocal left
        if reached == step:
            left -= 1
            if left == 0:
                raise Died(step)

    return at_step


def another_owner(
    platform: Platform, patch: pytest.MonkeyPatch, at_step: AtStep = no_hook
) -> DeletionWorker:
    """Return a worker that reads every request as well, in a group of its own."""
    with patch.context() as within:
        within.setattr(deletion_worker, "GROUP", "another-group")
        return platform.deletion_worker(at_step=at_step)


def run_to_death(
    platform: Platform, worker: DeletionWorker, meanwhile: Callable[[], object] = list
) -> None:
    """Run a worker to where it ends, and take it out of its group as if its process had ended.

    ``meanwhile`` happens after its first turn that had records: on a real log it joins first.
    """

    def run() -> None:
        happened = False
        for _ in range(400):
            if worker.run_once(0.05) and not happened:
                meanwhile()
                happened = True

    with pytest.raises(Died):
        run()
    platform._workers.remove(worker)
    if isinstance(platform.log, MemoryLog):
        evict(platform, worker)
    else:
        for part in (worker._consumer, worker._producer, worker._reader):
            part.close()


def evict(platform: Platform, worker: DeletionWorker) -> None:
    """Take a worker out of its group: the log in memory has not heard of it for too long."""
    assert isinstance(platform.log, MemoryLog)
    assert isinstance(worker._consumer, MemoryConsumer)
    platform.log.evict(worker._consumer)


def succeed(platform: Platform, at_step: AtStep = no_hook) -> DeletionWorker:
    """Put a worker that has nothing in memory in place of the platform's own."""
    before, refresher = platform.pair
    before.close()
    worker = platform.deletion_worker(at_step=at_step)
    platform._pair = worker, refresher
    return worker


def walk(platform: Platform, dice: random.Random, act: Callable[[DeletionWorker], object]) -> None:
    """Do something 40 times while workers work, and while the store goes back at any step."""
    platform.most_turns = 500
    kept, quiet = [backup(platform, "m")], False

    def at_step(_: str) -> None:
        draw = 1.0 if quiet else dice.random()
        if draw < 0.04:
            restore(platform, dice.choice(kept), "m")
        elif draw < 0.08:
            kept.append(backup(platform, "m"))

    worker, refresher = succeed(platform, at_step), platform.pair[1]
    for _ in range(40):
        act(worker)
        for _ in range(dice.randrange(4)):
            platform.turn(worker)
            if dice.random() < 0.5:
                try:
                    refresher.run_once(0.0)
                except TRANSIENT:
                    refresher.recover()
    quiet = True
    settle(platform)


def check_same(found: ModelState, twin: ModelState) -> None:
    """Check that a state is its undisturbed twin's.

    What was committed, and exact sums, bit for bit; arrays and other sums up to rounding.
    """
    assert (found.head, found.version, found.digest) == (twin.head, twin.version, twin.digest)
    for name in ("theta_exact", "theta_r", "anchor", "published"):
        assert np.array_equal(getattr(found.stream, name), getattr(twin.stream, name)), name
    assert found.newest == twin.newest
    assert found.offsets == twin.offsets
    assert found.deferred == twin.deferred
    assert found.meta.rows_live == twin.meta.rows_live
    assert found.meta.error == twin.meta.error
    for name in ("V", "Q"):
        ours, theirs = getattr(found.stream, name).array, getattr(twin.stream, name).array
        assert ours.shape == theirs.shape
        # V's rows depend on the order in which rows were left out, what they span does not.
        np.testing.assert_allclose(ours.T @ ours, theirs.T @ theirs, rtol=1e-8, atol=1e-10)
    assert (found.stream.solution is None) == (twin.stream.solution is None)
    if found.stream.solution is not None and twin.stream.solution is not None:
        assert found.stream.solution.live_sums.equal(twin.stream.solution.live_sums)
    elif twin.pipeline is not None:
        _check_same_statistics(found, twin)


def _check_same_statistics(found: ModelState, twin: ModelState) -> None:
    """Check the statistics of a pipeline, which no commit holds: a fold subtracts rows again."""
    assert found.stream.gradient is not None
    assert twin.stream.gradient is not None
    assert np.array_equal(found.stream.gradient, twin.stream.gradient)
    assert np.array_equal(found.published, twin.published)
    assert found.published_pipeline is not None
    assert twin.published_pipeline is not None
    assert found.published_pipeline.columns == twin.published_pipeline.columns
    assert found.pipeline is not None
    assert twin.pipeline is not None
    ours, theirs = found.pipeline.answer.sums, twin.pipeline.answer.sums
    assert ours.rows == theirs.rows
    assert np.array_equal(ours.counts, theirs.counts)
    assert np.array_equal(ours.present, theirs.present)
    for name in ("longest", "reach", "balanced"):
        assert getattr(ours, name) == pytest.approx(getattr(theirs, name), rel=1e-12)
    totals = ("first", "second", "responses", "weighted", "errors")
    pairs = [(getattr(ours, name).high, getattr(theirs, name).high) for name in totals]
    pairs += [(ours.crossed.at(), theirs.crossed.at()), (ours.paired.at(), theirs.paired.at())]
    for mine, other in pairs:
        most = 1 + np.abs(other).max(initial=0.0)
        np.testing.assert_allclose(mine, other, rtol=1e-14, atol=1e-14 * most)
