"""What every decoder promises: a value or its documented error, in bounded time and memory."""

from __future__ import annotations

import time
import traceback
import tracemalloc
from collections.abc import Callable, Sequence
from dataclasses import dataclass

SECONDS = 2.0
"""Processor time for one input of up to a MiB, with memory being traced, which makes it three to
four times slower: a poll brings at most 256 such records, and a heartbeat may be 10 s late."""

FACTOR = 64
"""Bytes allocated at the peak for each byte of input. The worst that JSON does is 29 (an empty
object is two bytes and a comma, and 80 bytes in Python), and something is made of it then."""

FIXED = 1 << 20
"""And for any input, however short: errors, caches, arrays of the model's own size."""

_AGAIN = 2  # times that an input which passes a cap is tried again

SEPARATOR = b"\n--\n"
"""Between the parts of an input that has several, such as the fields of a hash."""

Decode = Callable[[bytes], object]


@dataclass(frozen=True, slots=True)
class Harness:
    """One decoder.

    Attributes
    ----------
    name
        As `make fuzz ONLY=name` takes it.
    decode
        Feeds the product's own code, and checks what can be checked of its answer.
    raises
        The documented errors; any other one is a crash.
    seeds
        Makes valid inputs.
    max_bytes
        The longest input that the decoder is given, by limits further out.
    factor, fixed
        Cap on memory: peak of traced allocations for an input of n bytes is factor n + fixed.
    """

    name: str
    decode: Decode
    raises: tuple[type[Exception], ...]
    seeds: Callable[[], Sequence[bytes]]
    max_bytes: int = 1 << 20
    factor: int = FACTOR
    fixed: int = FIXED


class Broken(AssertionError):
    """A decoder did what it promises not to."""


def check(harness: Harness, data: bytes) -> bool:
    """Feed one input; return whether it was taken.

    Raises
    ------
    Broken
        Another error than those documented, or a cap was passed.
    """
    cap = harness.factor * len(data) + harness.fixed
    taken, seconds, peak = _measure(harness, data)
    for _ in range(_AGAIN):
        if seconds <= SECONDS and peak <= cap:
            return taken
        # Modules loaded on first use and a collection of all that the process holds are no part
        # of what a decoder takes; what it takes itself, it takes every time.
        _, again, peak_again = _measure(harness, data)
        seconds, peak = min(seconds, again), min(peak, peak_again)
    if seconds > SECONDS:
        raise Broken(f"{harness.name}: {len(data)} bytes took {seconds:.1f} s")
    if peak > cap:
        raise Broken(f"{harness.name}: {len(data)} bytes took {peak} bytes of memory")
    return taken


def _measure(harness: Harness, data: bytes) -> tuple[bool, float, int]:
    """Return whether an input was taken, and the seconds and bytes that this took."""
    if not tracemalloc.is_tracing():
        tracemalloc.start()
    tracemalloc.reset_peak()
    before = tracemalloc.get_traced_memory()[0]
    started = time.thread_time()
    taken = True
    try:
        harness.decode(data)
    except harness.raises:
        taken = False
    except Exception as error:
        *_, frame = traceback.extract_tb(error.__traceback__)
        place = f"{frame.filename}:{frame.lineno}"
        raise Broken(f"{harness.name}: {type(error).__name__}: {error} ({place})") from error
    seconds = time.thread_time() - started
    return taken, seconds, tracemalloc.get_traced_memory()[1] - before


def parts(data: bytes, count: int) -> list[bytes | None]:
    """Return exactly so many parts of an input; those that it does not have are None."""
    found: list[bytes | None] = list(data.split(SEPARATOR, count - 1))
    return found + [None] * (count - len(found))


def joined(*pieces: bytes) -> bytes:
    """Return an input of several parts."""
    return SEPARATOR.join(pieces)
