"""One simulated run: workers, requests and faults from a seed, then the checks of the promises."""

from __future__ import annotations

import json
import math
import random
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import Executor, Future
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any

import numpy as np
from redis.exceptions import ConnectionError as RedisConnectionError

from consumers import deletion_worker, lag, reach, topics
from consumers.audit.auditing import audit_model
from consumers.audit.finding import Result
from consumers.batching import Batching
from consumers.deletion_worker import BatchLimits, DeletionWorker
from consumers.events import Receipt
from consumers.log.base import Message
from consumers.log.memory import MemoryConsumer
from consumers.loop import TRANSIENT
from consumers.metrics import Metrics
from consumers.refresh_queue import RefreshLimit
from consumers.refresh_worker import RefreshWorker
from engine import certified
from engine.errors import LogUnavailable, NotDurable
from engine.policy import Size
from tests.simulation.checks import (
    SimulatedPlatform,
    check_answers,
    check_company,
    check_simulated,
    contradictions,
    forgotten,
    registered_over_answers,
    registered_over_loss,
    rows_named,
)
from tests.simulation.log import SimulatedLog
from tests.simulation.people import People
from tests.simulation.requests import Producers
from tests.simulation.store import Disk
from tests.simulation.tally import BETWEEN, fault_at, kill_at, listen
from tests.simulation.turns import Actor, Killed

_BEGIN = datetime(2026, 1, 1, tzinfo=UTC)
_TURNS = (25, 90)
_HEAL_TURNS = 200
_DRAIN_TURNS = 500  # it takes some ten
_POINTS = (
    "step: taken_over", "step: load", "step: compute", "step: commit", "step: barrier", "barrier",
    "step: durable", "step: publish", "step: publish_receipts", "step: publish_versions",
    "step: trim", "step: erase", "step: erased", "step: advance", "step: refresh_snapshot",
    "step: refresh_write", "log: publish before", "log: publish between", "log: publish after",
    "log: publish between", "log: publish between", "log: read", "store: answer",
    "store: commit answer",
)  # fmt: skip
_EVENTS = (topics.MODELS, topics.RECEIPTS, topics.VERSIONS)
_SENDING = ("log: publish before", "log: publish between")
LATE = "late"
"""A model that is registered during the run, or not at all."""


class Inline(Executor):
    """Computes at once, in the actor's own turn."""

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        """Return a future that is done."""
        future: Future[Any] = Future()
        try:
            future.set_result(fn(*args, **kwargs))
        except Exception as error:
            future.set_exception(error)
        return future


@dataclass
class Report:
    """What one run came to.

    Attributes
    ----------
    seed
        Which run.
    faults, events
        How often each kind happened (`tests.simulation.tally`).
    requests, versions
        How many were sent, and published.
    contradicted
        How many version numbers were published with two contents.
    trace
        What the director did, in order.
    """

    seed: int
    faults: Counter[str] = field(default_factory=Counter)
    events: Counter[str] = field(default_factory=Counter)
    requests: int = 0
    versions: int = 0
    contradicted: int = 0
    trace: list[str] = field(default_factory=list)


class World:
    """Everything of one run.

    Parameters
    ----------
    seed
        Decides everything.
    url
        A database that the run may empty.
    """

    def __init__(self, seed: int, url: str) -> None:
        self.rng = random.Random(seed)
        self.report = Report(seed)
        self._elapsed = 0.0
        self._running: Actor | None = None
        self._stopping = False
        self._workers: list[Actor] = []
        self._refreshers: list[Actor] = []
        self._registrars: list[Actor] = []
        self._consumers: dict[str, MemoryConsumer] = {}
        self._made = 0
        self._visible: set[str] = set()
        listen(self.count_event, self.note)
        noise = np.random.default_rng(seed)
        certified.draw_noise = partial(certified.draw_noise, source=noise.bytes)
        self._mark_seconds = self.rng.choice([0.0, 0.0, 3600.0])
        # Mostly no safety net: what marks say is put to the test. Or all that a net catches.
        reach.NET = self.rng.choice([0, 0, 100])
        # Not by the wall's time: on a slow machine the same seed would be another run.
        lag._PERIOD_SECONDS = deletion_worker._HALT_SECONDS = math.inf
        self._metrics = Metrics()  # of all workers: nobody looks, and making them takes its time
        self.disk = Disk(url)
        self.log = SimulatedLog(self)
        self._limit = RefreshLimit(self.rng.choice([0.0, 0.0, 15.0]), self.rng.choice([1, 3]))
        self._batching = Batching(self.rng.choice([1, 1, 1, 2, 6]), self.rng.choice([5.0, 40.0]))
        self.platform = SimulatedPlatform(
            self.log, url, self.rng.choice([1, 2]), relaxed=True, most_turns=_DRAIN_TURNS
        )
        self.models = [f"m{number}" for number in range(self.rng.choice([1, 1, 2]))]
        self.people = People(self)
        rows: dict[str, int] = {}
        for model in (*self.models, LATE):
            self.people.plan(model)
            rows[model] = len(self.platform.data[model].X)
        self.producers = Producers(self.rng, self.log, self.count, rows)
        self.replica = self.disk.image()

    # -- what actors see ----------------------------------------------------------------------

    def seconds(self) -> float:
        """Return the virtual time since 1970."""
        return (_BEGIN + timedelta(seconds=self._elapsed)).timestamp()

    def now(self) -> datetime:
        """Return the virtual time."""
        return _BEGIN + timedelta(seconds=self._elapsed)

    def point(self, name: str) -> None:
        """Pass a point of the running actor; the director passes freely."""
        if self._running is not None:
            self._running.point(name)

    def appending(self, message: Message) -> None:
        """Check that nothing is visible before it is durable, and a version last of its commit."""
        if self._running is None or message.topic not in _EVENTS:
            return
        event = json.loads(message.value or b"")
        on_disk = self.disk.synced.version(event["model_id"])
        said = event["version"] if event["version"] is not None else -1
        assert said <= on_disk, f"version {said} is published, and on disk is {on_disk}"
        if message.topic == topics.VERSIONS:
            unseen = {event["digest"], *event["request_ids"]} - self._visible
            assert not unseen, f"version {said} is visible before {unseen}"
        else:
            self._visible.add(event["digest" if message.topic == topics.MODELS else "request_id"])

    def joined(self, consumer: MemoryConsumer) -> None:
        """Remember whose consumer this is."""
        if self._running is not None:
            self._consumers[self._running.name] = consumer

    def count(self, kind: str) -> None:
        """Count a fault."""
        self.report.faults[kind] += 1

    def count_event(self, kind: str) -> None:
        """Count an event."""
        self.report.events[kind] += 1

    def note(self, text: str) -> None:
        """Put a line into the trace."""
        self.report.trace.append(text)

    def name(self, what: str) -> str:
        """Return the name of a new process."""
        self._made += 1
        return f"{what}-{self._made}"

    def rows_of(self, receipt: Receipt) -> Sequence[str]:
        """Return the rows that the request of a receipt names."""
        body = self.producers.bodies_of(receipt)[0]
        return rows_named(self.platform, receipt.model_id, body)

    # -- the run ------------------------------------------------------------------------------

    def run(self) -> Report:
        """Run; raise what is wrong at the end.

        Raises
        ------
        AssertionError
            A promise is broken.
        """
        try:
            for model in self.models:
                self.people.register(model)
            self.disk.sync()
            self.replicate()
            for _ in range(2):
                self._start_worker()
            self._start_refresher()
            for _ in range(self.rng.randint(*_TURNS)):
                self._elapsed += self.rng.expovariate(1.0)
                self._act()
            self._heal()
            self._check()
        finally:
            for actor in self._everybody():
                if not actor.done:
                    self._turn(actor, kill=True)
            self.report.requests = self.producers.sent
            self.platform.close()
            self.disk.close()
        return self.report

    def _act(self) -> None:
        people = self.people
        actions: dict[Callable[[], object], float] = {
            self._send: 18, self._step: 50, self._fail: 10, self._kill: 4, self._evict: 4,
            self._start_worker: 3, self._start_refresher: 2, self._start_registrar: 0.4,
            self._crash_store: 2, self.replicate: 2, self.fail_over: 2,
            self._overtake: 3, self._order: 3,
            self.producers.deliver: 4, self._leap: 0.3, people.fork: 0.3, people.restore: 0.8,
            people.cut_off: 0.5, people.unite: 2,
            people.add_partitions: 0.4, people.make_again: 0.5, people.retain: 1,
        }  # fmt: skip
        self.rng.choices(list(actions), list(actions.values()))[0]()

    def _send(self) -> None:
        self.note(self.producers.send())

    def _order(self) -> None:
        size = self.rng.choice(list(Size))
        self.platform.order(self.rng.choice(self.models), size)
        self.note(f"order {size}")

    def _leap(self) -> None:
        self._elapsed += 7 * 3600.0
        self.count("clock leaps by seven hours")
        self.note("seven hours pass")

    # -- actors -------------------------------------------------------------------------------

    def _living(self) -> list[Actor]:
        return [actor for actor in self._everybody() if not actor.done]

    def _everybody(self) -> list[Actor]:
        return [*self._workers, *self._refreshers, *self._registrars]

    def _start_registrar(self) -> None:
        actor = self.people.start_registrar()
        if actor is not None:
            self._registrars.append(actor)

    def stop_everybody(self) -> None:
        """Stop all processes, as before maintenance."""
        for actor in self._living():
            self._turn(actor, kill=True)
        for actor in self._everybody():
            self._expel(actor)

    def _start_worker(self) -> None:
        if sum(not actor.done for actor in self._workers) < 3:
            self._workers.append(Actor(self.name("worker"), self._delete))

    def _start_refresher(self) -> None:
        if sum(not actor.done for actor in self._refreshers) < 2:
            self._refreshers.append(Actor(self.name("refresher"), self._refresh))

    def _delete(self) -> None:
        worker = DeletionWorker(
            self.log,
            self.disk.store(self.point),
            limits=BatchLimits(records=self.rng.choice([1, 4, 256]), poll_seconds=0.0),
            batching=self._batching,
            metrics=self._metrics,
            now=self.now,
            at_step=lambda step: self.point(f"step: {step}"),
            mark_seconds=self._mark_seconds,
        )
        while not self._stopping:
            self.point("turn")
            try:
                worker.run_once(0.0)
            except TRANSIENT:
                worker.recover()
        worker.close()

    def _refresh(self) -> None:
        worker = RefreshWorker(
            self.log,
            self.disk.store(self.point),
            metrics=self._metrics,
            now=self.now,
            at_step=lambda step: self.point(f"step: {step}"),
            computing=Inline(),
            limit=self._limit,
        )
        while not self._stopping:
            self.point("turn")
            try:
                worker.run_once(0.0)
            except TRANSIENT:
                worker.recover()
        worker.close()

    def _turn(
        self,
        actor: Actor,
        points: int = 1,
        *,
        until: str | None = None,
        fault: bool = False,
        kill: bool = False,
    ) -> None:
        self._running = actor
        try:
            if kill:
                actor.kill()
            elif fault:
                where = self._where()
                actor.give_turn(points, fault=self._raise, fault_at=where or points // 2)
            else:
                actor.give_turn(points, until=until)
        finally:
            self._running = None
        if actor.failure is not None:
            raise AssertionError(f"{actor.name} failed at {actor.at!r}") from actor.failure

    def _where(self) -> str | None:
        """Return a point of interest; None for any point."""
        return self.rng.choice([None, *_POINTS])

    def _step(self) -> None:
        """Let somebody run for a while, whole turns or a few points."""
        living = self._living()
        if living:
            actor = self.rng.choice(living)
            points = self.rng.choice([1, 3, 10, 30, 100])
            self._turn(actor, points, until=self._where())
            self.note(f"{actor.name} +{points}: {actor.at}")
            self._profit(actor)

    def _profit(self, actor: Actor) -> None:
        """Do what hurts most where an actor is held now, some of the time."""
        chance = self.rng.random()
        if actor.at == "barrier" and chance < 0.2:
            self._crash_store()
        elif actor.at == "step: publish_versions" and chance < 0.3:
            self.fail_over()
        elif actor.at == "step: publish" and chance < 0.6:
            self.people.cut_off()
        elif actor.at == "step: commit" and chance < 0.5:
            self._overtake(actor)
        elif actor.at == "step: refresh_write" and chance < 0.5:
            self.replicate()  # a failover from here loses the swap, and not the result

    def _overtake(self, held_at: Actor | None = None) -> None:
        """Let another worker take over from one that is held amid its steps, and go first."""
        held = [a for a in self._workers if not a.done and a.at not in BETWEEN]
        others = [a for a in self._workers if not a.done and a.at in BETWEEN]
        if held and others:
            actor = held_at or self.rng.choice(held)
            self._expel(actor)
            self.count("zombie")
            self._turn(self.rng.choice(others), 300)
            self.note(f"overtake {actor.name} at {actor.at}")

    # -- faults -------------------------------------------------------------------------------

    def _fail(self) -> None:
        living = self._living()
        if living:
            actor = self.rng.choice(living)
            self._turn(actor, self.rng.choice([5, 20, 60, 200]), fault=True)
            self.note(f"{actor.name} failed once: now at {actor.at}")

    def _raise(self, name: str) -> None:
        self.count(fault_at(name))
        self.note(f"fault at {name}")
        if name.startswith("store:"):
            raise RedisConnectionError("cut by the simulation")
        if name.startswith("log:"):
            raise LogUnavailable("cut by the simulation")
        if name == "barrier":
            raise NotDurable("not synced, says the simulation")
        raise Killed(name)

    def _kill(self) -> None:
        """Kill an actor where it is held; the group hears of it some time later, or now."""
        living = self._living()
        if living:
            actor = self.rng.choice(living)
            self._turn(actor, kill=True)
            self.count(kill_at(actor.at))
            self.note(f"kill {actor.name} at {actor.at}")
            if self.rng.random() < 0.5:
                self._expel(actor)

    def _evict(self) -> None:
        """Take the partitions from a member that is held: it goes on as a zombie, or is dead."""
        named = [actor for actor in self._everybody() if actor.name in self._consumers]
        if named:
            actor = self.rng.choice(named)
            self._expel(actor)
            if not actor.done:
                self.count("zombie")
            self.note(f"evict {actor.name}")

    def _expel(self, actor: Actor) -> None:
        if actor.name in self._consumers:
            self.log.evict(self._consumers[actor.name])

    def _crash_store(self) -> None:
        if self.disk.crash():
            self.count_event("store crash that lost commits")
        self.replicate()  # replicas follow the server that restarted
        self.count("store crash")
        self.note("store crash")

    def replicate(self) -> None:
        """Let a replica catch up."""
        self.replica = self.disk.image()

    def fail_over(self) -> None:
        """Go back to the replica, which may lag."""
        self.end_senders()
        if self.disk.fail_over(self.replica):
            self.count_event("failover that lost commits")
        self.count("failover to a lagging replica")
        self.note("failover")
        if self.rng.random() < 0.3:
            self.people.drop_results()
        if self.rng.random() < 0.25:
            self.people.erase_lost()

    def end_senders(self) -> None:
        """End workers that are stopped in a publication, after their last look at the store.

        They could send what is lost by then: docs/commit.md says what closes that.
        """
        for actor in self._living():
            if actor.at in _SENDING:
                self._turn(actor, kill=True)

    # -- the end ------------------------------------------------------------------------------

    def _heal(self) -> None:
        """Let everybody who lives finish, the dead be noticed, and fresh workers do the rest."""
        self._stopping = True
        self.note("heal")
        self.producers.deliver(everything=True)
        for actor in self._living():
            for _ in range(_HEAL_TURNS):
                if actor.done:
                    break
                self._turn(actor, 1000)
            assert actor.done, f"{actor.name} does not end: it is at {actor.at!r}"
        for actor in self._everybody():
            self._expel(actor)
        self.people.restore()
        halted = self.drain()
        if halted:
            self.people.release(halted)
            still = self.drain()
            assert not still, f"not released: {still}"
        check_answers(self.platform, self.producers)
        people = self.people
        people.released |= {m for m in people.excused if registered_over_loss(self.platform, m)}
        people.released |= {m for m in people.excused if registered_over_answers(self.platform, m)}
        for model in sorted(people.released):
            self.producers.send_again_as(forgotten(self.platform, model))
        self.producers.deliver(everything=True)
        self.drain()

    def drain(self) -> set[str]:
        """Let fresh workers finish, without faults; return the models that are halted."""
        self._elapsed += self._batching.seconds  # nothing has to wait for company any longer
        fresh = DeletionWorker(
            self.log,
            self.disk.store(lambda _: None),
            batching=self._batching,
            metrics=self._metrics,
            now=self.now,
        )
        helper = RefreshWorker(
            self.log,
            self.disk.store(lambda _: None),
            metrics=self._metrics,
            now=self.now,
            computing=Inline(),
        )
        try:
            self.platform.drain(fresh, helper)
            return {keys.tag.removeprefix("m.") for keys in fresh._halted}
        finally:
            fresh.close()
            helper.close()

    def _check(self) -> None:
        check_answers(self.platform, self.producers)
        people = self.people
        whole = not self.report.faults["retention removes old receipts"]
        for model in (*self.models, LATE):
            released = model in people.released
            numbers, contradicted = contradictions(self.platform, model)
            self.report.versions += numbers
            self.report.contradicted += contradicted
            if numbers or model in self.models:
                check_simulated(self.platform, model, released=released)
                if not released and model not in people.forked:  # else two have decided
                    check_company(self.platform, model, self._batching)
                if whole and model not in people.excused:
                    self._audit(model)
        letters = {record.value for record in self.platform.records(topics.DEAD_LETTERS)}
        assert letters == self.producers.garbage, "dead letters are not the garbage that was sent"

    def _audit(self, model: str) -> None:
        """Let `lethe audit` judge the history and the state, as a stranger would."""
        reader, store = self.log.reader(), self.disk.store(lambda _: None)
        found = audit_model(store, reader, model, bound=False).findings
        wrong = [f"{one.check}: {one.detail}" for one in found if one.result is Result.FAILED]
        open_ = [one.check for one in found if one.result is Result.NOT_CHECKED]
        assert not wrong, f"{model}: the audit refuses {wrong}"
        assert open_ == ["signatures"], f"{model}: the audit could not check {open_}"
