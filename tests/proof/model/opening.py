"""Page 3.4: requests for a model that is being registered.

One deletions partition with a few requests for one model, two workers that read it (one may be a
zombie), and `register`, which may die anywhere. A state is how many requests are acknowledged, the
model's records in `lethe.commits`, where `register` is, each worker's position and view, the
watermark, what was published, and whether the store knows the model.

Below the opening a request is UNKNOWN_MODEL for ever; from it on it is the model's. What is
checked: no request has both answers; a request sent after `register` returned is never unknown;
below the watermark every request has an answer.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

from tests.proof.model.checker import FAULT, Broken, rule

Commits = tuple[tuple[str, int], ...]
"""Records of the model: ("commit 0", 0), ("opening", offset), ("decides", offset)."""


@dataclass(frozen=True, slots=True)
class Rules:
    """The rules of the opening that can be taken away."""

    log_asked: bool = rule("a model is unknown when the log does not name it, not the store")
    end_after_poll: bool = rule("the log is read to an end that was asked for after the poll")
    opening: bool = rule("the partition's end is read after commit 0 was acknowledged")


@dataclass(frozen=True, slots=True)
class Bounds:
    """How much may happen."""

    requests: int = 3
    crashes: int = 2
    rollbacks: int = 1


class Worker(NamedTuple):
    """A worker at a request: `position` None before it has taken over."""

    position: int | None = None
    phase: str = "idle"
    view: Commits | None = None
    end: int = 0


class Registrar(NamedTuple):
    """`register`: what it does next, and the end that it read."""

    phase: str = "start"
    end: int = 0


class State(NamedTuple):
    """Everything; see the module. `returned` is how many requests there were at that time."""

    requests: int
    commits: Commits
    registrar: Registrar
    workers: tuple[Worker, Worker]
    watermark: int
    published: frozenset[tuple[int, str]]
    returned: int | None
    store_knows: bool
    crashes: int
    rollbacks: int


class OpeningModel:
    """Commit 0, the opening, and the answer UNKNOWN_MODEL."""

    def __init__(self, bounds: Bounds, rules: Rules | None = None) -> None:
        self.bounds = bounds
        self.rules = rules or Rules()

    def initial(self) -> State:
        """Nobody has asked and nothing is registered."""
        return State(
            requests=0,
            commits=(),
            registrar=Registrar(),
            workers=(Worker(), Worker()),
            watermark=0,
            published=frozenset(),
            returned=None,
            store_knows=False,
            crashes=self.bounds.crashes,
            rollbacks=self.bounds.rollbacks,
        )

    def steps(self, state: State) -> Iterator[tuple[str, State]]:
        """Yield what may happen next."""
        if state.requests < self.bounds.requests:
            more = state._replace(requests=state.requests + 1)
            yield f"request r{state.requests} is acknowledged", more
        yield from self._register(state)
        if state.store_knows and state.rollbacks:
            back = state._replace(store_knows=False, rollbacks=state.rollbacks - 1)
            yield f"{FAULT}the store goes back", back
        for number, worker in enumerate(state.workers):
            name = f"W{number + 1}"
            if worker.position is not None and state.crashes:
                crashed = _with(state, number, Worker())._replace(crashes=state.crashes - 1)
                yield f"{FAULT}{name} crashes", crashed
            for label, after in self._work(state, number, worker):
                yield f"{name} {label}", after

    def _register(self, state: State) -> Iterator[tuple[str, State]]:
        """Commit 0, the end of the partition, the opening, apply, return."""
        phase, end = state.registrar
        commit_0 = (*state.commits, ("commit 0", 0))
        if phase == "start":
            if not self.rules.opening:
                early = Registrar("early", state.requests)
                yield "register reads the end before it appends", state._replace(registrar=early)
            else:
                begun = state._replace(commits=commit_0, registrar=Registrar("appended"))
                yield "register: commit 0 is acknowledged", begun
        elif phase == "early":
            both = (*commit_0, ("opening", end))
            begun = state._replace(commits=both, registrar=Registrar("appended"))
            yield f"register: commit 0 with the end {end} is acknowledged", begun
        elif phase == "appended":
            if _opening(state.commits) is None:
                read = Registrar("end read", state.requests)
                yield f"register reads the end: {state.requests}", state._replace(registrar=read)
            else:
                done = state._replace(store_knows=True, registrar=Registrar("applied"))
                yield "register applies", done
        elif phase == "end read":
            opened, won = _open(state.commits, end)
            after = state._replace(commits=opened, registrar=Registrar("appended"))
            yield f"register: its opening {'is acknowledged' if won else 'is void'}", after
        elif phase == "applied":
            back = state._replace(registrar=Registrar("returned"), returned=state.requests)
            yield "register returns", back
        if phase in ("appended", "end read") and state.crashes:
            dead = state._replace(registrar=Registrar("dead"), crashes=state.crashes - 1)
            yield f"{FAULT}register dies", dead

    def _work(self, state: State, number: int, worker: Worker) -> Iterator[tuple[str, State]]:
        """Poll one request, look whether the model is there, answer, go on."""
        position = worker.position
        if position is None:
            known = state.store_knows or ("commit 0", 0) in state.commits
            there = Worker(position=state.watermark)
            after = _with(state, number, there)._replace(store_knows=known)
            yield f"takes over at {state.watermark}, and folds", after
        elif worker.phase == "idle":
            if not self.rules.end_after_poll and worker.view is None:
                early = worker._replace(view=state.commits)
                yield "reads the log before it polls", _with(state, number, early)
            elif position < state.requests:
                yield f"polls r{position}", _with(state, number, worker._replace(phase="polled"))
        elif worker.phase == "polled":
            view = state.commits if worker.view is None else worker.view
            if not self.rules.log_asked and not state.store_knows:
                view = ()
            looked = worker._replace(phase="looked", view=view)
            found = "is registered" if view else "is unknown"
            yield f"looks: the model {found}", _with(state, number, looked)
        elif worker.phase == "looked":
            yield self._answer(state, number, worker, position)
        elif worker.phase == "end read":
            opened, won = _open(state.commits, worker.end)
            looked = worker._replace(phase="looked", view=opened)
            after = _with(state, number, looked)._replace(commits=opened)
            yield f"{'appends' if won else 'loses'} an opening at {worker.end}", after
        else:
            on = Worker(position=position + 1)
            yield "goes on", _with(state, number, on)
            watermark = max(state.watermark, position + 1)
            moved = _with(state, number, on)._replace(watermark=watermark)
            yield f"goes on; the watermark is {watermark}", moved

    def _answer(
        self, state: State, number: int, worker: Worker, position: int
    ) -> tuple[str, State]:
        """Steps 4 to 8 of one request, by what the worker saw."""
        view = worker.view or ()
        opening = _opening(view)
        answered = _with(state, number, Worker(position=position, phase="answered"))
        if view and opening is None:
            if self.rules.log_asked:
                read = worker._replace(phase="end read", end=state.requests)
                return f"reads the end: {state.requests}", _with(state, number, read)
            opening = 0
        if not view or (opening is not None and position < opening):
            published = state.published | {(position, "UNKNOWN_MODEL")}
            return f"answers r{position}: unknown", answered._replace(published=published)
        commits = state.commits
        if ("decides", position) not in commits:
            commits = (*commits, ("decides", position))
        published = state.published | {(position, "APPLIED")}
        after = answered._replace(commits=commits, published=published)
        return f"commits r{position} and publishes", after

    def check(self, state: State) -> None:
        """Raise `Broken` unless every request has one answer, and the right one."""
        for request in range(self.bounds.requests):
            unknown = (request, "UNKNOWN_MODEL") in state.published
            applied = (request, "APPLIED") in state.published
            if unknown and applied:
                raise Broken(f"r{request} is answered UNKNOWN_MODEL and APPLIED")
            if unknown and state.returned is not None and request >= state.returned:
                raise Broken(f"r{request} came after register returned: UNKNOWN_MODEL")
            if request < state.watermark and not (unknown or applied):
                raise Broken(f"r{request} lies below the watermark and has no answer")


def _opening(commits: Commits) -> int | None:
    """Return where the model begins, if a record says so."""
    return next((offset for kind, offset in commits if kind == "opening"), None)


def _open(commits: Commits, end: int) -> tuple[Commits, bool]:
    """Append an opening; the second one is void."""
    if _opening(commits) is not None:
        return commits, False
    return (*commits, ("opening", end)), True


def _with(state: State, number: int, worker: Worker) -> State:
    """Put a worker in its place."""
    workers = (worker, state.workers[1]) if number == 0 else (state.workers[0], worker)
    return state._replace(workers=workers)
