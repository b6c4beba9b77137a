"""What an attack is, and what it leaves behind, so that it cannot be judged without having been."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

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
    stops_readers
        Whether subscribers refuse the model's history afterwards, as documented.
    not_stopped
        Whether the attacker gets some of what they want.
    """

    name: str
    tries: str
    stopped_by: str
    act: Act
    remedy: Callable[[World], None] | None = None
    stops_readers: bool = False
    not_stopped: bool = False
