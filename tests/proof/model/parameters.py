"""Parameters in a compacted topic (3.2 step 8): the newest message must be the newest version.

Commits of one model lie in the log, each with a version. Two workers fold: each publishes the
newest parameters from the published cursor on, and moves the cursor. A message that was sent lands
at any later time, also when its sender has died. Compaction keeps the message that landed last.

What is checked in every state: if no more commits come, everything in flight lands (the oldest
last) and one worker goes on alone, then the topic ends with the newest version.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

from tests.proof.model.checker import FAULT, Broken, rule


@dataclass(frozen=True, slots=True)
class Rules:
    """The rules of parameters that can be taken away."""

    sent_again: bool = rule("a publisher that finds the cursor past its record sends the newest")
    read_back: bool = rule("a fold reads the topic's newest message, and sends what is newer")


@dataclass(frozen=True, slots=True)
class Bounds:
    """How much may happen."""

    commits: int = 3
    crashes: int = 1


class Worker(NamedTuple):
    """A publisher: idle, or with a version to send or sent, and the end that it read to."""

    phase: str = "idle"
    version: int = 0
    end: int = 0


class State(NamedTuple):
    """Commits in the log, the published cursor, the topic's newest message, what is in flight."""

    commits: int
    published: int
    newest: int
    flight: tuple[tuple[int, int], ...]
    workers: tuple[Worker, Worker]
    crashes: int


class ParametersModel:
    """Two publishers of one compacted topic."""

    def __init__(self, bounds: Bounds, rules: Rules | None = None) -> None:
        self.bounds = bounds
        self.rules = rules or Rules()

    def initial(self) -> State:
        """No commit, no message."""
        return State(0, 0, 0, (), (Worker(), Worker()), self.bounds.crashes)

    def steps(self, state: State) -> Iterator[tuple[str, State]]:
        """Yield what may happen next."""
        if state.commits < self.bounds.commits:
            yield f"commit {state.commits + 1}", state._replace(commits=state.commits + 1)
        for sent in state.flight:
            yield f"version {sent[0]} lands", self._landed(state, sent)
        for number, worker in enumerate(state.workers):
            name = f"W{number + 1}"
            if worker.phase != "idle" and state.crashes:
                dead = _with(state, number, Worker())._replace(crashes=state.crashes - 1)
                yield f"{FAULT}{name} dies", dead
            after = self._work(state, number, worker)
            if after is not None:
                yield f"{name} {after[0]}", after[1]

    def _landed(self, state: State, sent: tuple[int, int]) -> State:
        """A message reaches the topic; its sender hears of it if it waits for it."""
        version, number = sent
        flight = list(state.flight)
        flight.remove(sent)
        after = state._replace(newest=version, flight=tuple(flight))
        worker = state.workers[number]
        if worker.phase == "sent" and worker.version == version:
            return _with(after, number, worker._replace(phase="flushed"))
        return after

    def _work(self, state: State, number: int, worker: Worker) -> tuple[str, State] | None:
        """Fold, send, move the published cursor."""
        if worker.phase == "idle":
            behind = self.rules.read_back and state.newest < state.published
            if state.published >= state.commits and not behind:
                return None
            ready = Worker("ready", state.commits, state.commits)
            return f"folds to {state.commits}", _with(state, number, ready)
        if worker.phase == "ready":
            flight = tuple(sorted((*state.flight, (worker.version, number))))
            sent = _with(state, number, worker._replace(phase="sent"))
            return f"sends version {worker.version}", sent._replace(flight=flight)
        if worker.phase == "sent":
            return None
        if state.published > worker.end and self.rules.sent_again:
            again = Worker("ready", state.published, state.published)
            return f"finds the cursor at {state.published}", _with(state, number, again)
        published = max(state.published, worker.end)
        done = _with(state, number, Worker())._replace(published=published)
        return f"moves the published cursor to {published}", done

    def check(self, state: State) -> None:
        """Raise `Broken` unless the topic ends with the newest version."""
        settled = state
        while settled.flight:
            settled = self._landed(settled, max(settled.flight))
        for number in (1, 0):
            while (after := self._work(settled, number, settled.workers[number])) is not None:
                settled = after[1]
                while settled.flight:
                    settled = self._landed(settled, max(settled.flight))
        if settled.newest != settled.commits:
            raise Broken(f"the topic ends with version {settled.newest} of {settled.commits}")


def _with(state: State, number: int, worker: Worker) -> State:
    """Put a worker in its place."""
    workers = (worker, state.workers[1]) if number == 0 else (state.workers[0], worker)
    return state._replace(workers=workers)
