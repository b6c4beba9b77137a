"""A small explicit-state checker: breadth first through every state, or seeded random walks.

A model says where it begins, which steps a state has, and what must be true of it. The checker
knows nothing of commits. A state is any hashable value. A step is a label and the state after it;
labels of faults begin with `FAULT`, so that a walk can make them rarer than work.

States are remembered by their 64-bit hash alone: of n states, two share one with a probability of
n**2 / 2**65, 2e-7 for three million, and the price is a state not looked at. A trace is found by
replaying from the beginning along the remembered hashes.
"""

from __future__ import annotations

import gc
import random
import time
from collections import deque
from collections.abc import Hashable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, fields, replace
from typing import Any, Protocol, TypeVar, cast

FAULT = "FAULT "
HOLDS, VIOLATED, LIMIT = "HOLDS", "VIOLATED", "LIMIT"

_SHARE_OF_FAULTS = 0.15

State = TypeVar("State", bound=Hashable)
R = TypeVar("R")


class Broken(Exception):
    """An invariant of a model does not hold; the message says which, and where."""


class Model(Protocol[State]):
    """What the checker needs of a model."""

    def initial(self) -> State:
        """Return the state in which every run begins."""

    def steps(self, state: State) -> Iterator[tuple[str, State]]:
        """Yield each step that is possible: what happens, and the state after it."""

    def check(self, state: State) -> None:
        """Raise `Broken` unless the invariants hold."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a search came to.

    Attributes
    ----------
    verdict
        `HOLDS`: nothing broke in all states (or in all walks). `VIOLATED`. `LIMIT`: nothing broke
        in the states that were looked at, and there are more.
    states
        States looked at; of a walk, steps taken.
    broken
        What did not hold.
    seconds
        Of this process's own time: what else the machine does is not counted.
    trace
        The steps from the beginning to where it did not hold.
    """

    verdict: str
    states: int
    seconds: float
    broken: str = ""
    trace: tuple[str, ...] = ()


def search(model: Model[State], limit: int) -> Outcome:
    """Look at every state that can be reached, nearest first, at most `limit`."""
    began = time.process_time()
    first = model.initial()
    before: dict[int, int] = {hash(first): 0}
    queue = deque([first])
    states = 0
    with _without_collections():
        while queue:
            state = queue.popleft()
            states += 1
            here = hash(state)
            try:
                model.check(state)
                for _, after in model.steps(state):
                    there = hash(after)
                    if there not in before:
                        before[there] = here
                        queue.append(after)
            except Broken as broken:
                seconds = time.process_time() - began
                return Outcome(VIOLATED, states, seconds, str(broken), _trace(model, before, here))
            if states >= limit and queue:
                return Outcome(LIMIT, states, time.process_time() - began)
    return Outcome(HOLDS, states, time.process_time() - began)


def walk(model: Model[State], walks: int, length: int, seed: int = 0) -> Outcome:
    """Take `walks` random walks of at most `length` steps; the same seed takes the same ones.

    Faults are drawn in `_SHARE_OF_FAULTS` of the steps: else they come so close together that
    nothing is ever finished between two of them.
    """
    began = time.process_time()
    taken = 0
    with _without_collections():
        for number in range(walks):
            draws = random.Random(seed * 1_000_003 + number)
            trace: list[str] = []
            state = model.initial()
            try:
                for _ in range(length):
                    model.check(state)
                    possible = list(model.steps(state))
                    if not possible:
                        break
                    calm = [step for step in possible if not step[0].startswith(FAULT)]
                    if calm and len(calm) < len(possible) and draws.random() > _SHARE_OF_FAULTS:
                        possible = calm
                    label, state = draws.choice(possible)
                    trace.append(label)
                    taken += 1
                else:
                    model.check(state)
            except Broken as broken:
                what = f"walk {number}: {broken}"
                return Outcome(VIOLATED, taken, time.process_time() - began, what, tuple(trace))
    return Outcome(HOLDS, taken, time.process_time() - began)


def _trace(model: Model[State], before: dict[int, int], last: int) -> tuple[str, ...]:
    """Find the steps that led to the state of hash `last`."""
    way = [last]
    while before[way[-1]]:
        way.append(before[way[-1]])
    state = model.initial()
    labels = []
    for there in way[-2::-1]:
        label, state = next(step for step in model.steps(state) if hash(step[1]) == there)
        labels.append(label)
    return tuple(labels)


@contextmanager
def _without_collections() -> Iterator[None]:
    """Keep the collector of cycles away: states have none, and it would look at all of them."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


def rule(says: str) -> bool:
    """Declare a rule of the protocol as a field of a dataclass; it can be taken away by name."""
    return field(default=True, metadata={"says": says})


def rules_of(rules: Any) -> dict[str, str]:
    """Return the rules that a dataclass declares, and what each says."""
    return {each.name: each.metadata["says"] for each in fields(rules)}


def without(rules: R, name: str) -> R:
    """Return the rules but one."""
    if name not in rules_of(rules):
        raise ValueError(f"{type(rules).__name__} has no rule {name!r}")
    return cast(R, replace(cast(Any, rules), **{name: False}))
