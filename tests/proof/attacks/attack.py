"""What an attack is, and what it leaves behind, so that it cannot be judged without having been."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from lethe.consumers.log.base import Headers

if TYPE_CHECKING:
    from tests.proof.attacks.world import World


@dataclass(frozen=True, slots=True)
class Trace:
    """Something that shows that an attack took place: what the world has, and what it must be.

    ``found`` is looked up by the judge, after all workers have worked.
    """

    what: str
    found: Callable[[], Any]
    wanted: Any = True

    def check(self) -> None:
        found = self.found()
        assert found == self.wanted, f"{self.what}: {found!r}, not {self.wanted!r}"


Act = Callable[["World"], Sequence[Trace]]
Mark = Callable[["World"], Trace]


def rejected(model: str, request_id: str, code: str) -> Mark:
    """The attacker's request was answered with a rejection."""
    return lambda world: world.receipt(model, request_id, "REJECTED", code)


def letter(code: str = "INVALID_REQUEST", count: int = 1) -> Mark:
    """What the attacker sent became dead letters."""
    return lambda world: world.letters(code, count)


def conflict(model: str, request_id: str) -> Mark:
    """The attacker's request was refused: its id stands for another."""
    return lambda world: world.conflict(model, request_id)


def sends(
    topic: str, key: str | bytes | None, value: Any, *marks: Mark, headers: Headers = ()
) -> Act:
    """Return what writes one record to a topic and leaves these marks."""

    def act(world: World) -> list[Trace]:
        return [world.forge(topic, key, value, headers), *(mark(world) for mark in marks)]

    return act


@dataclass(frozen=True, slots=True)
class Attack:
    """One attack.

    Attributes
    ----------
    name
        Short and unique.
    tries
        What the attacker does, and wants.
    stopped_by
        What stops it; of one that is not stopped, what it brings about, and what remains true.
    act
        Does it, and returns its traces.
    remedy
        What a person does to end the halt that a writer may cause, as the pages say; None: nothing
        is halted.
    not_stopped
        Whether the attacker gets some of what they want.
    """

    name: str
    tries: str
    stopped_by: str
    act: Act
    remedy: Callable[[World], None] | None = None
    not_stopped: bool = False
