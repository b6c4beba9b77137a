"""One simulated run: workers, requests and faults from a seed, then the checks of the promises."""

from __future__ import annotations

import math
import random
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import cache, partial
from typing import Any

import numpy as np
from redis.exceptions import ConnectionError as RedisConnectionError

from lethe.consumers.commits import journal, newest
from lethe.consumers.contract import topics
from lethe.consumers.deletions.batching import Batching
from lethe.consumers.log.base import Message, Record
from lethe.consumers.refresh.queue import RefreshLimit
from lethe.consumers.service import topic_watch
from lethe.consumers.service.telemetry.metrics import Metrics
from lethe.consumers.workers import halts, lag
from lethe.engine.error import gaussian
from lethe.engine.errors import LogUnavailable, NotDurable, UnknownModel
from lethe.engine.refresh.size import RefreshSize
from lethe.engine.store.layout.keys import (
    ModelKeys,
    PartitionKeys,
    commit_partition,
)
from tests.proof.live_rows import rows_of
from tests.proof.simulation.checks import SimulatedPlatform, check, undecided
from tests.proof.simulation.erasures import (
    POINTS as ERASURE_POINTS,
    STEPS as ERASURE_STEPS,
    Erasures,
)
from tests.proof.simulation.log import SimulatedLog
from tests.proof.simulation.people import People
from tests.proof.simulation.processes import Processes
from tests.proof.simulation.requests import Producers
from tests.proof.simulation.store import NOTHING, Disk, Image
from tests.proof.simulation.suppressed import Suppressed
from tests.proof.simulation.tally import BETWEEN, fault_at, kill_at, listen
from tests.proof.simulation.truth import Truth
from tests.proof.simulation.turns import Actor, Killed
from tests.support.memory_log import MemoryConsumer

_BEGIN = datetime(2026, 1, 1, tzinfo=UTC)
_TURNS = (25, 90)
_ERASE = 0.35  # of the runs have erasures
_HEAL_TURNS = 200
_DRAIN_TURNS = 500  # it takes some ten
_STEPS = (
    "take_over", "fold_apply", "fold_publish", "fold_advance", "load", "compute", "append",
    "apply", "publish", "advance", "refresh_snapshot", "refresh_stage", "refresh_write",
    "refresh_complete", "refresh_swap", "register_stage", "register_append", "register_apply",
    "register_open", "register_finish",
)  # fmt: skip
_POINTS = (
    *(f"step: {step}" for step in _STEPS), "barrier", "barrier", "log: publish before",
    "log: publish between",
    "log: publish after", "log: publish before", "log: publish after", "log: read",
    "store: answer", "store: commit answer", "store: send",
)  # fmt: skip
_EVENTS = (topics.MODELS, topics.RECEIPTS, topics.VERSIONS)
_HURTS = (
    "step: append", "log: publish before", "log: publish after", "step: apply", "step: publish",
    "step: advance", "step: fold_apply", "step: fold_publish", "step: fold_advance", "log: read",
    "step: register_append", "step: register_apply", "step: register_open",
    "step: register_finish", "store: send",
)  # fmt: skip
_STAGINGS = ("step: refresh_stage", "step: refresh_write", "step: register_stage")


@cache
def _neighbours() -> list[list[str]]:
    """Return ids of models of which three share a commits partition, several times."""
    by_partition: dict[int, list[str]] = defaultdict(list)
    for name in (f"model-{number}" for number in range(200)):
        by_partition[commit_partition(name)].append(name)
    return [names[:3] for names in by_partition.values()]


@dataclass
class Report:
    """What one run came to.

    Attributes
    ----------
    seed
        Which run.
    faults, events
        How often each kind happened (`tests.proof.simulation.tally`).
    requests, versions
        How many were sent, and published.
    trace
        What the director did, in order.
    """

    seed: int
    faults: Counter[str] = field(default_factory=Counter)
    events: Counter[str] = field(default_factory=Counter)
    requests: int = 0
    versions: int = 0
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
        self.in_flight: list[Message] = []
        self.trimmed = False
        self._elapsed = 0.0
        self._running: Actor | None = None
        self.processes = Processes(self)
        self._registrars: list[Actor] = []
        self._consumers: dict[str, MemoryConsumer] = {}
        self._made = 0
        listen(self.count_event, self.note)
        noise = np.random.default_rng(seed)
        gaussian.draw_noise = partial(gaussian.draw_noise, source=noise.bytes)
        # Not by the wall's time: on a slow machine the same seed would be another run. Workers look
        # around after each take-over, or at each turn.
        lag._PERIOD_SECONDS = self.rng.choice([math.inf, math.inf, 0.0])
        topic_watch.WATCH_SECONDS = lag._PERIOD_SECONDS
        halts.HALT_SECONDS = math.inf
        journal.YIELD_SECONDS = 0.0
        newest.LATE_SECONDS = math.inf
        self.metrics = Metrics()  # of all workers: nobody looks, and making them takes its time
        self.disk = Disk(url)
        self.log = SimulatedLog(self)
        self.limit = RefreshLimit(self.rng.choice([0.0, 0.0, 15.0]), self.rng.choice([1, 3]))
        self.batching = Batching(self.rng.choice([1, 1, 1, 2, 6]), self.rng.choice([5.0, 40.0]))
        partitions = self.rng.choice([1, 2, 16, 16])
        self.platform = SimulatedPlatform(
            self.log, url, partitions, relaxed=True, most_turns=_DRAIN_TURNS
        )
        names = self.rng.choice(_neighbours())
        if self.rng.random() < 0.4:
            names = [one[0] for one in self.rng.sample(_neighbours(), 3)]
        self.models = names[: self.rng.choice([1, 1, 2])]
        self.people = People(self)
        self.truth = Truth(self.log.value_at, self._body_of, *self.people.secrets)
        self.platform.seals, self.platform.truth = self.people.seals, self.truth
        for model in (*self.models, names[2]):  # the last is registered during the run, or never
            self.people.plan(model)
            self.truth.plan(model, rows_of(self.platform.data[model]))
        self.suppressed = Suppressed(self.truth.models, self.truth.rows, self.count_event)
        # Drawn apart, so that a run without erasures is the same as before there were any.
        erases = random.Random(f"erasures of {seed}").random() < _ERASE
        self.erasures = Erasures(self) if erases else None
        subjects = self.erasures.subjects if self.erasures else ()
        self.producers = Producers(self.rng, self.log, self.count, self.platform.data, subjects)

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

    def cut(self, sent: int) -> int:
        """Return how many commands of a pipeline arrive when its sending fails."""
        arrive = self.rng.choice([0, self.rng.randrange(sent)])
        if arrive:
            self.count("pipeline cut between two commands")
        return arrive

    def appending(self, message: Message) -> None:
        """Check that nothing is visible before its commit is."""
        if message.topic in _EVENTS:
            self.truth.check_visible(message)

    def appended(self, record: Record) -> None:
        """Judge a record as it lands."""
        if record.partition.topic == topics.COMMITS:
            judged = self.truth.take(record)
            self.note(f"  {judged}")
            if judged.endswith("void"):
                self.count_event("commit in vain")
            elif self.erasures is not None:
                self.suppressed.take_commit(judged.partition(":")[0])
        elif self.erasures is not None:
            self.suppressed.take(record)

    def broken(self, messages: Sequence[Message]) -> None:
        """Let messages that were cut off land later, or never."""
        if self._running is not None and self.rng.random() < 0.5:
            self.in_flight += messages

    def joined(self, consumer: MemoryConsumer) -> None:
        """Remember whose consumer this is."""
        if self._running is not None:
            self._consumers[self._running.name] = consumer

    def _body_of(self, receipt: Mapping[str, Any]) -> dict[str, Any]:
        return self.producers.answered_by(receipt)

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

    @staticmethod
    def keys(model: str) -> ModelKeys:
        """Return a model's keys."""
        return ModelKeys(model)

    @staticmethod
    def partition_keys(index: int) -> PartitionKeys:
        """Return the keys of a commits partition."""
        return PartitionKeys(index)

    def undecided(self) -> list[str]:
        """Return the requests and erasures that have no final outcome yet."""
        requests = undecided(self.platform, self.producers, self.truth)
        return requests + self.suppressed.unanswered()

    def pass_time(self, seconds: float) -> None:
        """Let the virtual time pass."""
        self._elapsed += seconds

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
            self.people.keep_image()
            for _ in range(2):
                self.processes.start_worker()
            self.processes.start_refresher()
            for _ in range(self.rng.randint(*_TURNS)):
                self.pass_time(self.rng.expovariate(1.0))
                self._act()
            self._heal()
            check(self)
            self._count_changes()
        finally:
            for actor in self._everybody():
                if not actor.done:
                    self._turn(actor, kill=True)
            self.report.requests = self.producers.sent
            self.report.versions = sum(len(m.versions) for m in self.truth.models.values())
            self.platform.close()
            self.disk.close()
        return self.report

    def _act(self) -> None:
        people, processes = self.people, self.processes
        actions: dict[Callable[[], object], float] = {
            self._send: 18, self._step: 50, self._fail: 10, self._kill: 4, self._evict: 4,
            processes.start_worker: 3, processes.start_stranger: 0.3, processes.start_refresher: 2,
            self._start_registrar: 1, self._restart_store: 1, people.keep_image: 4,
            self.go_back: 4, self._wipe: 0.15, self._overtake: 3, self._order: 3, self._land: 4,
            self.producers.deliver: 4, self._leap: 0.3, people.drop_results: 0.5,
            people.rotate: 0.3, people.add_partitions: 0.4, people.make_again: 0.5,
            people.retain: 0.7,
        }  # fmt: skip
        if self.erasures is not None:
            actions |= {self.erasures.send: 8, self.erasures.start_worker: 3}
        self.rng.choices(list(actions), list(actions.values()))[0]()

    def _send(self) -> None:
        self.note(self.producers.send())

    def _order(self) -> None:
        size, model = self.rng.choice(list(RefreshSize)), self.rng.choice(self.models)
        try:
            self.platform.order(model, size)
        except UnknownModel:
            return  # the store has lost it
        self.note(f"order {size} of {model}")

    def _leap(self) -> None:
        self.pass_time(7 * 3600.0)
        self.count("clock leaps by seven hours")
        self.note("seven hours pass")

    # -- actors -------------------------------------------------------------------------------

    def _living(self) -> list[Actor]:
        return [actor for actor in self._everybody() if not actor.done]

    def _everybody(self) -> list[Actor]:
        return [
            *self.processes.workers,
            *self.processes.refreshers,
            *self._registrars,
            *self._erasers,
        ]

    @property
    def _erasers(self) -> list[Actor]:
        return [] if self.erasures is None else self.erasures.workers

    def _start_registrar(self) -> None:
        if sum(not actor.done for actor in self._registrars) < 2:
            self._registrars.append(self.people.start_registrar())

    def busy(self) -> bool:
        """Return whether somebody is amid something."""
        return any(actor.at not in BETWEEN for actor in self._living())

    def stop_everybody(self) -> None:
        """Stop all processes, as before maintenance."""
        for actor in self._living():
            self._turn(actor, kill=True)
        for actor in self._everybody():
            self._expel(actor)

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
                where = self._where(actor)
                actor.give_turn(points, fault=self._raise, fault_at=where or points // 2)
            else:
                actor.give_turn(points, until=until)
        finally:
            self._running = None
        if actor.failure is not None:
            raise AssertionError(f"{actor.name} failed at {actor.at!r}") from actor.failure

    def _where(self, actor: Actor) -> str | None:
        """Return a point of interest; None for any point."""
        return self.rng.choice([None, *(ERASURE_POINTS if actor in self._erasers else _POINTS)])

    def _step(self) -> None:
        """Let somebody run for a while, whole turns or a few points."""
        living = self._living()
        if living:
            actor = self.rng.choice(living)
            points = self.rng.choice([1, 3, 10, 30, 100, 400])
            self._turn(actor, points, until=self._where(actor))
            self.note(f"{actor.name} +{points}: {actor.at}")
            self._profit(actor)

    def _profit(self, actor: Actor) -> None:
        """Do what hurts most where an actor is held now, some of the time."""
        chance = self.rng.random()
        if actor.at in (*_HURTS, *ERASURE_STEPS) and chance < 0.3:
            if chance < 0.1:
                self.go_back()
            elif chance < 0.2:
                self.people.keep_image()
            else:
                self._overtake(actor)
        elif actor.at in _STAGINGS and chance < 0.5:
            self.people.keep_image()  # going back to it loses the swap, and some of the result

    def _overtake(self, held_at: Actor | None = None) -> None:
        """Let another worker take over from one that is held amid its steps, and go first."""
        held = [a for a in self.processes.workers if not a.done and a.at not in BETWEEN]
        actor = held_at or (self.rng.choice(held) if held else None)
        same = self._erasers if actor in self._erasers else self.processes.workers
        others = [a for a in same if not a.done and a is not actor]
        if actor is not None and others:
            self._expel(actor)
            self.count("zombie")
            self._turn(self.rng.choice(others), 800)
            self.note(f"overtake {actor.name} at {actor.at}")

    # -- faults -------------------------------------------------------------------------------

    def _fail(self) -> None:
        living = self._living()
        registering = [actor for actor in self._registrars if not actor.done]
        if registering and self.rng.random() < 0.3:
            living = registering  # they are few, and live short
        if living:
            actor = self.rng.choice(living)
            self._turn(actor, self.rng.choice([20, 60, 200, 800]), fault=True)
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
            if actor in self._erasers:
                self.count("erasure worker killed")
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

    def _restart_store(self) -> None:
        """Break every connection; nothing is lost."""
        self.people.go_back(self.disk.image(), "store restarts")

    def go_back(self) -> None:
        """Let an earlier state of the store come back, or one of a past that never was."""
        image = self.rng.choice(self.people.images)
        if self.rng.random() < 0.3:
            self.people.go_back(image, "a cluster's shard goes back", self._tag())
        else:
            self.people.go_back(image, "store goes back")
        if self.rng.random() < 0.1:
            self.people.drop_results()

    def _tag(self) -> str:
        return self.rng.choice(["", *(PartitionKeys(commit_partition(m)).tag for m in self.models)])

    def _wipe(self) -> None:
        """Lose the store, or a part of it."""
        if not self.trimmed:  # else nothing has what it was
            tag = self.rng.choice([None, self._tag()])
            self.people.go_back(Image({}, {}) if tag else NOTHING, "store wiped", tag)

    def _land(self) -> None:
        """Let a message land whose sender was cut off, or has ended."""
        if self.in_flight:
            message = self.in_flight.pop(self.rng.randrange(len(self.in_flight)))
            commits = message.topic == topics.COMMITS
            self.count("commit lands late" if commits else "append lands late")
            self.note(f"late: {message.topic} {message.key!r}")
            with self.log.changed:
                self.log.append(message)

    # -- the end ------------------------------------------------------------------------------

    def _heal(self) -> None:
        """Let everybody who lives finish, the dead be noticed, and fresh workers do the rest."""
        self.processes.stopping = True
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
        while self.in_flight:
            if self.rng.random() < 0.5:
                self._land()
            else:
                self.in_flight.pop()
        self.platform.seals = self.people.seals
        self.processes.drain()
        self.people.release()
        for _ in range(3):
            if not self.undecided():
                break
            self.pass_time(7200.0)  # what has failed lately is ordered again
            self.processes.drain()

    def _count_changes(self) -> None:
        for fold in self.truth.models.values():
            for _, _, header in fold.commits:
                for inserts, rows, *_ in header.get("changes", ()):
                    self.report.events[f"row {'inserted' if inserts else 'corrected'}"] += len(rows)
