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
    calls: Mapping[str, Call], repeats: int, fresh: Callable[[], None]
) -> dict[str, Samples]:
    """Time all calls once a round, in turning order; return the samples of each.

    Each is called once before, untimed. ``fresh`` is called before each round, untimed: it draws
    new rows, for instance.
    """
    samples = {name: Samples() for name in calls}
    names = list(calls)
    with _no_collector():
        for call in calls.values():
            call()
        for round_ in range(repeats):
            fresh()
            turn = round_ % len(names)
            for name in names[turn:] + names[:turn]:
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
