"""Timing calls against one another: in turns, warm, with the collector off.

`Samples` have the thread's processor time and the wall clock. Of a call that is one thread without
I/O the two are the same on a machine with nothing else to do; on a shared one, processor time
leaves out the time that others had the processor for.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TypeAlias

Call: TypeAlias = Callable[[], object]

_LONG = 5.0  # seconds: of calls that take longer, fewer samples are taken
_SAMPLES_OF_LONG = 5


@dataclass(slots=True)
class Samples:
    """Seconds of one call: processor time and wall clock."""

    processor: list[float] = field(default_factory=list)
    wall: list[float] = field(default_factory=list)

    def take(self, call: Call) -> None:
        """Time one call."""
        wall, processor = time.perf_counter(), time.thread_time()
        call()
        self.processor.append(time.thread_time() - processor)
        self.wall.append(time.perf_counter() - wall)


def in_turns(
    calls: Mapping[str, Call],
    repeats: int,
    *,
    fresh: Callable[[], None] = lambda: None,
    warm: Mapping[str, Call] | None = None,
) -> dict[str, Samples]:
    """Time all calls once a round, in turning order; return the samples of each.

    Parameters
    ----------
    calls
        What to time. Each is called once before, untimed; where that takes long, the number of
        rounds is `_SAMPLES_OF_LONG`.
    repeats
        Rounds.
    fresh
        Called before each round, untimed: draws new rows, for instance.
    warm
        For each call another to make right before it, untimed: the same program on other rows.
    """
    samples = {name: Samples() for name in calls}
    names = list(calls)
    with _no_collector():
        first = Samples()
        for call in calls.values():
            first.take(call)
        rounds = min(repeats, _SAMPLES_OF_LONG) if max(first.wall) > _LONG else repeats
        for round_ in range(rounds):
            fresh()
            turn = round_ % len(names)
            for name in names[turn:] + names[:turn]:
                if warm is not None:
                    warm[name]()
                samples[name].take(calls[name])
    return samples


@contextmanager
def _no_collector() -> Iterator[None]:
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


def seconds(call: Call) -> float:
    """Return the seconds that one call takes, by the wall clock."""
    begin = time.perf_counter()
    call()
    return time.perf_counter() - begin


def shortest(call: Call, repeats: int) -> float:
    """Return the shortest time of a call: what else runs on the machine only adds to it."""
    return min(seconds(call) for _ in range(repeats))
