"""Actors that run one at a time, and may be stopped, held or killed at every named point.

Each actor is a thread, but only the one that was given a turn runs; it hands back at a point of
the director's choosing. So a run is a function of its seed, and every interleaving that real
processes could have is within reach: an actor that is held while another takes its partitions is
a zombie.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, field

Fault = Callable[[str], None]
"""Called at a point with its name; it may raise what would be raised there."""

_SECONDS = 300.0  # a turn that takes longer waits for something that will never come


class Killed(BaseException):
    """The actor's process ends here: no handler of the product catches it."""


class Stuck(AssertionError):
    """An actor did not reach its next point."""


@dataclass
class _Turn:
    points: int
    fault: Fault | None
    fault_at: int | str
    until: str | None


@dataclass
class Actor:
    """One simulated process.

    Attributes
    ----------
    name
        For the trace.
    body
        What it does, until it returns or is killed.
    """

    name: str
    body: Callable[[], None]
    dead: bool = False
    done: bool = False
    failure: BaseException | None = None
    at: str = "start"
    _turn: _Turn | None = None
    _go: threading.Semaphore = field(default_factory=lambda: threading.Semaphore(0))
    _back: threading.Semaphore = field(default_factory=lambda: threading.Semaphore(0))
    _thread: threading.Thread | None = None

    def give_turn(
        self,
        points: int,
        *,
        fault: Fault | None = None,
        fault_at: int | str = 0,
        until: str | None = None,
    ) -> None:
        """Let the actor run for so many points, or until the one that is named.

        ``fault`` is called at one point: by its number, or the first of its name.

        Raises
        ------
        Stuck
            It does not come back.
        """
        if self.done:
            return
        self._turn = _Turn(points, fault, fault_at, until)
        if self._thread is None:
            self._thread = threading.Thread(target=self._live, name=self.name, daemon=True)
            self._thread.start()
        self._go.release()
        if not self._back.acquire(timeout=_SECONDS):
            raise Stuck(f"{self.name} does not come back; it was last at {self.at!r}")

    def kill(self) -> None:
        """End the actor where it is held."""
        self.dead = True
        if self._thread is None:
            self.done = True
        else:
            self.give_turn(1)

    def point(self, name: str) -> None:
        """Pass a point: perhaps hand back the turn here, perhaps fail here."""
        if self.dead:
            raise Killed(name)
        self.at = name
        turn = self._turn
        assert turn is not None, "an actor runs only in its turn"
        if turn.points == 0 or name == turn.until:
            self._back.release()
            self._go.acquire()
            if self.dead:
                raise Killed(name)
            turn = self._turn
            assert turn is not None
        turn.points -= 1
        if turn.fault is not None:
            if turn.fault_at in (0, name):
                fault, turn.fault = turn.fault, None
                fault(name)
            elif isinstance(turn.fault_at, int):
                turn.fault_at -= 1

    def _live(self) -> None:
        self._go.acquire()
        try:
            self.body()
        except Killed:
            self.dead = True
        except BaseException as failure:
            self.failure = failure
        self.done = True
        self._back.release()
