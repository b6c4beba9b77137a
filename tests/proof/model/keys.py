"""Sealing keys (3.1): a worker with a wrong key must not halt everybody.

A state is the key of each valid record, and of each worker the keys that it was given and whether
it runs. W1 has every key that the operators made; W2 was given another one by mistake, or lacks the
newest. A rotation is a record under the new key, appended by who has both keys.

What is checked: W1, which has every right key, can open every record that continues the head.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

from tests.proof.model.checker import Broken, rule

RIGHT, NEXT, WRONG = "k1", "k2", "k9"


@dataclass(frozen=True, slots=True)
class Rules:
    """The rule of keys that can be taken away."""

    opened_head: bool = rule("a worker appends only with a key that opened the model's head")


@dataclass(frozen=True, slots=True)
class Bounds:
    """How much may happen, and the keys of the two workers; a worker seals with its first."""

    records: int = 5
    keys: tuple[tuple[str, ...], tuple[str, ...]] = ((RIGHT, NEXT), (WRONG, RIGHT))


class Worker(NamedTuple):
    """A worker: stopped, running with a head and the key to append with, refused, or halted."""

    phase: str = "stopped"
    head: int = 0
    key: str = ""


class State(NamedTuple):
    """The keys of the valid records, from commit 0 on, and the workers."""

    sealed: tuple[str, ...]
    workers: tuple[Worker, Worker]
    rotated: bool


class KeysModel:
    """Two workers, one of which was given a wrong key, and a rotation."""

    def __init__(self, bounds: Bounds, rules: Rules | None = None) -> None:
        self.bounds = bounds
        self.rules = rules or Rules()

    def initial(self) -> State:
        """`register` has sealed commit 0 with the right key."""
        return State((RIGHT,), (Worker(), Worker()), rotated=False)

    def steps(self, state: State) -> Iterator[tuple[str, State]]:
        """Yield what may happen next."""
        room = len(state.sealed) < self.bounds.records
        if room and not state.rotated:
            rotated = state._replace(sealed=(*state.sealed, NEXT), rotated=True)
            yield "the key is rotated", rotated
        for number, worker in enumerate(state.workers):
            name, keys = f"W{number + 1}", self.bounds.keys[number]
            newest = len(state.sealed) - 1
            if worker.phase != "running":
                opens = state.sealed[-1] in keys or not self.rules.opened_head
                started = Worker("refused at start")
                if opens:
                    key = state.sealed[-1] if self.rules.opened_head else keys[0]
                    started = Worker("running", newest, key)
                if started != worker:
                    yield f"{name} starts: {started.phase}", _with(state, number, started)
                continue
            if worker.head < newest:
                opens = state.sealed[worker.head + 1] in keys
                key = state.sealed[worker.head + 1] if self.rules.opened_head else worker.key
                after = Worker("running", worker.head + 1, key) if opens else Worker("halted")
                yield f"{name} reads {worker.head + 1}: {after.phase}", _with(state, number, after)
            elif room:
                sealed = (*state.sealed, worker.key)
                mine = worker._replace(head=worker.head + 1)
                yield (
                    f"{name} appends under {worker.key}",
                    _with(state._replace(sealed=sealed), number, mine),
                )

    def check(self, state: State) -> None:
        """Raise `Broken` if the worker that has every right key is halted."""
        if state.workers[0].phase in ("halted", "refused at start"):
            raise Broken("a worker that has every right key is halted")


def _with(state: State, number: int, worker: Worker) -> State:
    """Put a worker in its place."""
    workers = (worker, state.workers[1]) if number == 0 else (state.workers[0], worker)
    return state._replace(workers=workers)
