"""A worker that is stuck reports itself not live; one that waits for work does not."""

import pytest

from lethe.consumers.service.telemetry.health import Health


class Clock:
    def __init__(self) -> None:
        self.seconds = 0.0

    def __call__(self) -> float:
        return self.seconds


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def health(clock: Clock) -> Health:
    return Health(clock)


def test_a_new_worker_is_live_and_not_ready(health: Health) -> None:
    assert health.live()[0]
    assert not health.ready()[0]


def test_a_worker_that_decided_something_is_ready(health: Health) -> None:
    health.progress(0)

    assert health.ready()[0]


def test_a_silent_worker_is_not_live(health: Health, clock: Clock) -> None:
    health.progress(0)
    clock.seconds = 61.0

    live, facts = health.live()

    assert not live
    assert facts["seconds_since_beat"] == 61.0


def test_a_worker_that_turns_without_moving_while_records_wait_is_not_live(
    health: Health, clock: Clock
) -> None:
    health.progress(5)
    for _ in range(61):
        clock.seconds += 1.0
        health.waiting(5)

    live, facts = health.live()

    assert not live
    assert facts["lag"] == 5


def test_a_worker_with_nothing_to_do_stays_live(health: Health, clock: Clock) -> None:
    for _ in range(600):
        clock.seconds += 1.0
        health.waiting(0)

    assert health.live()[0]


def test_trouble_is_told_and_ends_with_progress(health: Health) -> None:
    health.progress(0)
    health.trouble("the store at localhost:1 cannot be reached")
    assert not health.ready()[0]
    assert health.live()[1]["trouble"] == "the store at localhost:1 cannot be reached"

    health.progress(0)

    assert health.ready()[0]
    assert health.live()[1]["trouble"] is None
