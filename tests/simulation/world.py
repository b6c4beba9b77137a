"""One simulated run: workers, requests and faults from a seed, then the checks of the promises."""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import Executor, Future
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

from redis.exceptions import ConnectionError as RedisConnectionError

from consumers import topics
from consumers.audit.auditing import audit_model
from consumers.audit.finding import Result
from consumers.batching import Batching
from consumers.deletion_worker import BatchLimits, DeletionWorker
from consumers.log.memory import MemoryConsumer, MemoryLog, Moment
from consumers.loop import TRANSIENT
from consumers.refresh_queue import RefreshLimit
from consumers.refresh_worker import RefreshWorker
from engine.errors import LogUnavailable, NotDurable
from engine.policy import Size
from engine.store.head import LimitsRecord
from tests.simulation.store import Disk
from tests.simulation.turns import Actor, Killed
from tests.support.invariants import check_model
from tests.support.platform import Platform

_BEGIN = datetime(2026, 1, 1, tzinfo=UTC)
_TURNS = (30, 120)
_HEAL_TURNS = 200
_POINTS = (
    "step: load", "step: compute", "step: commit", "step: durable", "step: publish",
    "step: erase", "step: advance", "step: refresh_snapshot", "step: refresh_write", "barrier",
    "log: publish before", "log: publish between", "log: publish after", "store: answer",
)  # fmt: skip
_BETWEEN = ("start", "turn", "step: poll", "log: poll before", "log: poll after")
_FAMILIES = ("benign", "sparse", "duplicated", "wide")


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
    faults
        How often each kind happened.
    requests, versions
        How many were sent, and published.
    trace
        What the director did, in order.
    """

    seed: int
    faults: Counter[str] = field(default_factory=Counter)
    requests: int = 0
    versions: int = 0
    trace: list[str] = field(default_factory=list)


class SimulatedLog(MemoryLog):
    """A log whose consumers are known to belong to the actor that made them."""

    def __init__(self, world: World) -> None:
        super().__init__(hook=world.log_hook, clock=world.seconds)
        self._world = world

    def consumer(self, group: str, topics: Sequence[str]) -> MemoryConsumer:
        """Join a group."""
        consumer = super().consumer(group, topics)
        self._world.joined(consumer)
        return consumer


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
        self._consumers: dict[str, MemoryConsumer] = {}
        self._made = 0
        self.disk = Disk(url)
        self.log = SimulatedLog(self)
        self.platform = Platform(self.log, url, partitions=self.rng.choice([1, 2]), relaxed=True)
        self.models: list[str] = []
        self._garbage = 0
        self._limit = RefreshLimit(self.rng.choice([0.0, 0.0, 15.0]), self.rng.choice([1, 3]))
        self._batching = Batching(self.rng.choice([1, 1, 1, 2, 6]), self.rng.choice([5.0, 40.0]))
        self._replica: list[bytes] = []

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

    def log_hook(self, moment: Moment) -> None:
        """Pass a point of the log."""
        self.point(f"log: {moment.call} {moment.stage}")

    def joined(self, consumer: MemoryConsumer) -> None:
        """Remember whose consumer this is."""
        if self._running is not None:
            self._consumers[self._running.name] = consumer

    # -- the run ------------------------------------------------------------------------------

    def run(self) -> Report:
        """Run; raise what is wrong at the end.

        Raises
        ------
        AssertionError
            A promise is broken.
        """
        try:
            self._register()
            self.disk.sync()
            self._replicate()
            for _ in range(2):
                self._start_worker()
            self._start_refresher()
            for _ in range(self.rng.randint(*_TURNS)):
                self._elapsed += self.rng.expovariate(1.0)
                self._act()
            self._heal()
            self._check()
        finally:
            for actor in (*self._workers, *self._refreshers):
                if not actor.done:
                    self._turn(actor, kill=True)
            self.platform.close()
            self.disk.close()
        return self.report

    def _register(self) -> None:
        for number in range(self.rng.choice([1, 1, 2])):
            kind = self.rng.choice(["linear", "logistic"])
            family = self.rng.choice(_FAMILIES)
            method = self.rng.choice(["pru", "pru", "exact", "influence"])
            limits = LimitsRecord(
                floor_rows=self.rng.choice([3, 8, 256]),
                fraction_of_d=1e-9,
                completions=self.rng.choice([2, 64]),
            )
            budget = self.rng.choice([0.02, 0.1, 0.5])
            model = f"m{number}"
            self.platform.register(model, family, kind, method=method, budget=budget, limits=limits)
            self.models.append(model)
            self._note(f"register {model} {kind} {family} {method} {budget}")

    def _act(self) -> None:
        action = self.rng.choices(
            [
                self._send, self._step, self._fail, self._kill, self._evict,
                self._start_worker, self._start_refresher, self._crash_store, self._order,
                self._replicate, self._fail_over,
            ],
            [18, 50, 10, 4, 4, 3, 2, 2, 3, 4, 2],
        )[0]  # fmt: skip
        action()

    def _note(self, text: str) -> None:
        self.report.trace.append(text)

    # -- requests -----------------------------------------------------------------------------

    def _send(self) -> None:
        model = self.rng.choice(self.models)
        kind = self.rng.random()
        self.report.requests += 1
        if kind < 0.7:
            rows = self.rng.sample(range(self._n(model)), self.rng.choice([1, 1, 2, 5, 12]))
            name = self.platform.send_index(model, *rows)
            self._note(f"send {name} to {model}: {rows}")
        elif kind < 0.85 and self.platform.asked:
            self._repeat()
        elif kind < 0.95:
            self.platform.send(model, "stranger", f"row-{self.rng.randrange(self._n(model))}")
        else:
            self._garbage += 1
            self.platform.send_raw(b"not a request %d" % self._garbage, model.encode())
            self._note("send garbage")

    def _n(self, model: str) -> int:
        return len(self.platform.data[model].X)

    def _repeat(self) -> None:
        """Send an earlier request again: the same body, or another one under its name."""
        (model, name), rows = self.rng.choice(list(self.platform.asked.items()))
        if self.rng.random() < 0.3:
            rows = (f"row-{self.rng.randrange(self._n(model))}",)
        body = {"request_id": name, "model_id": model, "row_ids": rows}
        self.platform.send_raw(json.dumps(body).encode(), model.encode())
        self._note(f"repeat {name}: {rows}")

    def _order(self) -> None:
        size = self.rng.choice(list(Size))
        self.platform.order(self.rng.choice(self.models), size)
        self._note(f"order {size}")

    # -- actors -------------------------------------------------------------------------------

    def _living(self) -> list[Actor]:
        return [actor for actor in (*self._workers, *self._refreshers) if not actor.done]

    def _start_worker(self) -> None:
        if sum(not actor.done for actor in self._workers) < 3:
            self._made += 1
            self._workers.append(Actor(f"worker-{self._made}", self._delete))

    def _start_refresher(self) -> None:
        if sum(not actor.done for actor in self._refreshers) < 2:
            self._made += 1
            self._refreshers.append(Actor(f"refresher-{self._made}", self._refresh))

    def _delete(self) -> None:
        worker = DeletionWorker(
            self.log,
            self.disk.store(self.point),
            limits=BatchLimits(records=self.rng.choice([1, 4, 256]), poll_seconds=0.0),
            batching=self._batching,
            now=self.now,
            at_step=lambda step: self.point(f"step: {step}"),
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
            self._note(f"{actor.name} +{points}: {actor.at}")

    # -- faults -------------------------------------------------------------------------------

    def _fail(self) -> None:
        living = self._living()
        if living:
            actor = self.rng.choice(living)
            self._turn(actor, self.rng.choice([5, 20, 60, 200]), fault=True)
            self._note(f"{actor.name} failed once: now at {actor.at}")

    def _raise(self, name: str) -> None:
        self.report.faults[name] += 1
        self._note(f"fault at {name}")
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
            self.report.faults[f"killed at {actor.at}"] += 1
            self._note(f"kill {actor.name} at {actor.at}")
            if self.rng.random() < 0.5:
                self._expel(actor)

    def _evict(self) -> None:
        """Take the partitions from a member that is held: it goes on as a zombie, or is dead."""
        named = [a for a in (*self._workers, *self._refreshers) if a.name in self._consumers]
        if named:
            actor = self.rng.choice(named)
            self._expel(actor)
            if not actor.done:
                self.report.faults["zombie"] += 1
            self._note(f"evict {actor.name}")

    def _expel(self, actor: Actor) -> None:
        if actor.name in self._consumers:
            self.log.evict(self._consumers[actor.name])

    def _crash_store(self) -> None:
        self.disk.crash()
        self._replicate()  # replicas follow the server that restarted
        self.report.faults["store crash"] += 1
        self._note("store crash")

    def _replicate(self) -> None:
        """Let a replica catch up."""
        self._replica = self.disk.image()

    def _fail_over(self) -> None:
        """Go back to the replica.

        A worker that is stopped between reading the outbox and sending could send what is lost by
        then (docs/commit.md says what closes that): such workers end here.
        """
        for actor in self._workers:
            if not actor.done and actor.at not in _BETWEEN:
                self._turn(actor, kill=True)
        self.disk.fail_over(self._replica)
        self.report.faults["failover to a lagging replica"] += 1
        self._note("failover")

    # -- the end ------------------------------------------------------------------------------

    def _heal(self) -> None:
        """Let everybody who lives finish, the dead be noticed, and fresh workers do the rest."""
        self._stopping = True
        self._note("heal")
        for actor in self._living():
            for _ in range(_HEAL_TURNS):
                if actor.done:
                    break
                self._turn(actor, 1000)
            assert actor.done, f"{actor.name} does not end: it is at {actor.at!r}"
        for actor in (*self._workers, *self._refreshers):
            self._expel(actor)
        self._elapsed += self._batching.seconds  # nothing has to wait for company any longer
        fresh = DeletionWorker(
            self.log, self.disk.store(lambda _: None), batching=self._batching, now=self.now
        )
        helper = RefreshWorker(
            self.log, self.disk.store(lambda _: None), now=self.now, computing=Inline()
        )
        self.platform.drain(fresh, helper)
        fresh.close()
        helper.close()

    def _check(self) -> None:
        for model in self.models:
            finals = self.platform.finals(model)
            asked = [name for (asked_of, name) in self.platform.asked if asked_of == model]
            missing = [name for name in asked if name not in finals]
            assert not missing, f"{model}: no final receipt of {missing}"
            check_model(self.platform, model)
            self._check_company(model)
            self._audit(model)
            self.report.versions += len(self.platform.versions(model))
        letters = [record.value for record in self.platform.records(topics.DEAD_LETTERS)]
        expected = {b"not a request %d" % (i + 1) for i in range(self._garbage)}
        assert set(letters) == expected, "dead letters are not the garbage that was sent"

    def _audit(self, model: str) -> None:
        """Let `lethe audit` judge the history and the state, as a stranger would."""
        reader, store = self.log.reader(), self.disk.store(lambda _: None)
        found = audit_model(store, reader, model, bound=False).findings
        wrong = [f"{one.check}: {one.detail}" for one in found if one.result is Result.FAILED]
        open_ = [one.check for one in found if one.result is Result.NOT_CHECKED]
        assert not wrong, f"{model}: the audit refuses {wrong}"
        assert open_ == ["signatures"], f"{model}: the audit could not check {open_}"

    def _check_company(self, model: str) -> None:
        """Check that no version leaves out a few rows whose requests could have waited longer."""
        sent = {
            (record.partition.index, record.offset): record.timestamp_ms / 1000
            for record in self.platform.records(topics.DELETIONS)
        }
        deleted = 0
        for version in self.platform.versions(model):
            gone, deleted = version.rows_deleted - deleted, version.rows_deleted
            if version.refresh is None and version.source is not None:
                since = sent[version.source.partition, version.source.first_offset]
                waited = version.created_at.timestamp() - since
                enough = gone >= self._batching.rows or waited > self._batching.seconds - 0.01
                assert enough, f"{model}: version {version.version} leaves out {gone} rows"
