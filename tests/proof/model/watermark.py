"""The watermark of a partition of `lethe.deletions` (3.2 step 9): who may move it, and where to.

Each offset holds a request for a registered model (A), for a model that is halted until somebody
repairs it (H), or for none (U). Two workers poll from the watermark, decide, and move it; requests
that they have polled and not finished are *open*. A commit is here only the offset that it decides:
the commit model shows that each is decided once. The log may lose commits that are acknowledged;
what the store has applied, `recover` puts back.

What is checked in every state: each offset below the watermark is answered, or decided by a commit
that the log still has, so that a fold will answer it; no offset is decided twice.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

from tests.proof.model.checker import FAULT, Broken, rule

SENT, DECIDED, APPLIED, TOLD, HALTED = "sent", "decided", "applied", "told", "halted"


@dataclass(frozen=True, slots=True)
class Rules:
    """The rules of the watermark that can be taken away."""

    acknowledged: bool = rule("a request is open until its commit is acknowledged")
    published: bool = rule("a request is open until its answer is published")
    flushed: bool = rule("an answer without a commit is open until its flush is acknowledged")
    halted_open: bool = rule("a request of a halted model stays open")
    index_asked: bool = rule("a request that was decided is not decided again")
    lowest_open: bool = rule("the watermark moves to the lowest open request, not past the last")
    from_watermark: bool = rule("a worker begins to poll at the watermark, not where it was")


@dataclass(frozen=True, slots=True)
class Bounds:
    """How much may happen."""

    requests: str = "AHUA"
    crashes: int = 1
    rollbacks: int = 1
    losses: int = 1


class Worker(NamedTuple):
    """Where it polls next, and what of the polled is open."""

    position: int
    open: tuple[tuple[int, str], ...] = ()


class Store(NamedTuple):
    """How much of the log is applied, and the watermark."""

    applied: int = 0
    watermark: int = 0


class State(NamedTuple):
    """Everything; see the module. `flight` has appends and answers that may be lost."""

    log: tuple[int, ...]
    flight: frozenset[tuple[int, int, str]]
    answered: frozenset[int]
    store: Store
    backup: Store
    workers: tuple[Worker | None, Worker | None]
    repaired: bool
    crashes: int
    rollbacks: int
    losses: int


class WatermarkModel:
    """One partition of requests, two workers."""

    def __init__(self, bounds: Bounds, rules: Rules | None = None) -> None:
        self.bounds = bounds
        self.rules = rules or Rules()

    def initial(self) -> State:
        """Every request is there; nobody has polled."""
        return State(
            log=(),
            flight=frozenset(),
            answered=frozenset(),
            store=Store(),
            backup=Store(),
            workers=(None, None),
            repaired=False,
            crashes=self.bounds.crashes,
            rollbacks=self.bounds.rollbacks,
            losses=self.bounds.losses,
        )

    def steps(self, state: State) -> Iterator[tuple[str, State]]:
        """Yield what may happen next."""
        yield from self._landings(state)
        if state.losses and len(state.log) > state.store.applied:
            lost = state._replace(log=state.log[:-1], losses=state.losses - 1)
            yield f"{FAULT}the log loses the commit of {state.log[-1]}", lost
        if state.rollbacks and state.store != state.backup:
            left = state.rollbacks - 1
            back = state._replace(store=state.backup, rollbacks=left)
            yield f"{FAULT}the store goes back", back
            yield "a backup is taken", state._replace(backup=state.store)
        if not state.repaired:
            yield "the halted model is repaired", state._replace(repaired=True)
        for number, worker in enumerate(state.workers):
            name = f"W{number + 1}"
            if worker is None:
                start = state.store.watermark
                if not self.rules.from_watermark:
                    start = max([start, *(w.position for w in state.workers if w is not None)])
                folded = state._replace(store=state.store._replace(applied=len(state.log)))
                answered = folded._replace(answered=folded.answered | set(folded.log))
                yield (
                    f"{name} folds, and polls from {start}",
                    _with(answered, number, Worker(start)),
                )
                continue
            if state.crashes:
                dead = _with(state, number, None)._replace(crashes=state.crashes - 1)
                yield f"{FAULT}{name} dies", dead
            for label, after in self._work(state, number, worker):
                yield f"{name} {label}", after

    def _landings(self, state: State) -> Iterator[tuple[str, State]]:
        """An append reaches the log, an answer its topic; or it is lost."""
        for sent in sorted(state.flight):
            offset, number, what = sent
            after = state._replace(flight=state.flight - {sent})
            yield f"{FAULT}the {what} of {offset} is lost", after
            phase = TOLD
            if what == "answer":
                after = after._replace(answered=after.answered | {offset})
            elif offset not in state.log or not self.rules.index_asked:
                after, phase = after._replace(log=(*state.log, offset)), DECIDED
            else:
                phase = DECIDED
            worker = after.workers[number]
            if worker is not None and (offset, SENT) in worker.open:
                after = _with(after, number, _moved(worker, offset, phase))
            yield f"the {what} of {offset} lands", after

    def _work(self, state: State, number: int, worker: Worker) -> Iterator[tuple[str, State]]:
        """Poll; take each open request a step on; move the watermark."""
        if worker.position < len(self.bounds.requests):
            yield self._poll(state, number, worker)
        for offset, phase in worker.open:
            if phase == HALTED and state.repaired:
                label, after = self._decide(state, number, worker, offset)
                yield label, after
            elif phase == DECIDED and offset in state.log:
                applied = max(state.store.applied, state.log.index(offset) + 1)
                store = state.store._replace(applied=applied)
                on = _with(state, number, _moved(worker, offset, APPLIED))
                yield f"applies {offset}", on._replace(store=store)
            elif phase == APPLIED:
                told = _with(state, number, _moved(worker, offset, TOLD))
                yield f"publishes {offset}", told._replace(answered=state.answered | {offset})
        watermark = self._watermark(worker)
        if watermark > state.store.watermark:
            store = state.store._replace(watermark=watermark)
            done = tuple(each for each in worker.open if each[1] != TOLD)
            moved = _with(state, number, worker._replace(open=done))._replace(store=store)
            yield f"moves the watermark to {watermark}", moved

    def _watermark(self, worker: Worker) -> int:
        """Return the lowest offset that is open, else where the worker polls next."""
        passed = {TOLD}
        if not self.rules.acknowledged:
            passed |= {SENT, DECIDED, APPLIED}
        if not self.rules.published:
            passed |= {DECIDED, APPLIED}
        if not self.rules.halted_open:
            passed |= {HALTED}
        is_open = [
            offset
            for offset, phase in worker.open
            if phase not in passed
            and not (self.bounds.requests[offset] == "U" and not self.rules.flushed)
        ]
        if not self.rules.lowest_open:
            told = [offset + 1 for offset, phase in worker.open if phase == TOLD]
            return max(told, default=0)
        return min(is_open, default=worker.position)

    def _poll(self, state: State, number: int, worker: Worker) -> tuple[str, State]:
        """Read the next request, and begin to answer it."""
        offset = worker.position
        worker = worker._replace(position=offset + 1)
        if self.bounds.requests[offset] == "H" and not state.repaired:
            halted = worker._replace(open=(*worker.open, (offset, HALTED)))
            return f"polls {offset}: its model is halted", _with(state, number, halted)
        return self._decide(state, number, worker, offset)

    def _decide(self, state: State, number: int, worker: Worker, offset: int) -> tuple[str, State]:
        """Send what answers a request: a commit, or an answer that needs none."""
        if offset in state.log[: state.store.applied] and self.rules.index_asked:
            return f"finds {offset} decided", _with(state, number, _moved(worker, offset, APPLIED))
        what = "answer" if self.bounds.requests[offset] == "U" else "append"
        sent = _with(state, number, _moved(worker, offset, SENT))
        flight = state.flight | {(offset, number, what)}
        return f"sends the {what} of {offset}", sent._replace(flight=flight)

    def check(self, state: State) -> None:
        """Raise `Broken` unless everything below the watermark is answered or will be."""
        if len(set(state.log)) != len(state.log):
            raise Broken(f"decided twice: {state.log}")
        for offset in range(state.store.watermark):
            if offset not in state.answered and offset not in state.log:
                raise Broken(
                    f"{offset} ({self.bounds.requests[offset]}) lies below the watermark "
                    f"{state.store.watermark} and will never be answered"
                )


def _moved(worker: Worker, offset: int, phase: str) -> Worker:
    """Put one open request into a phase."""
    rest = [each for each in worker.open if each[0] != offset]
    return worker._replace(open=tuple(sorted([*rest, (offset, phase)])))


def _with(state: State, number: int, worker: Worker | None) -> State:
    """Put a worker in its place."""
    workers = (worker, state.workers[1]) if number == 0 else (state.workers[0], worker)
    return state._replace(workers=workers)
