"""One run: set up, let things go wrong for a while, heal, wait, read back."""

from __future__ import annotations

import random
import threading
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from lethe.consumers.contract import topics
from lethe.consumers.registration.in_files import FileRegistrar
from lethe.consumers.registration.register import Registrar
from lethe.consumers.service.configuration.settings import load_settings
from lethe.consumers.service.kafka_client import kafka_log
from lethe.engine.errors import LetheError, Unavailable
from lethe.engine.refresh.size import RefreshSize
from lethe.engine.store.layout.keys import COMMIT_PARTITIONS
from lethe.engine.store.server.barrier import Barrier
from lethe.engine.store.server.connection import connect
from lethe.engine.store.store import ModelStore
from tests.proof.chaos.agreement import read_rows
from tests.proof.chaos.collect import (
    ROW_FILES,
    count_remains,
    read_final,
    read_topics,
    remove_orphans,
)
from tests.proof.chaos.crew import SESSION_SECONDS, Crew
from tests.proof.chaos.erasing import Askers, children
from tests.proof.chaos.faults import Faults
from tests.proof.chaos.history import History
from tests.proof.chaos.load import Plan, Producers, plans, refresh_order
from tests.proof.chaos.proxy import Proxies
from tests.proof.chaos.readers import Sight, Watcher, look, receipts_to, subscribe
from tests.proof.chaos.recording import read_diaries
from tests.proof.chaos.recovering import Gate, Operator
from tests.proof.chaos.rest import HEAL_SECONDS, Rest
from tests.proof.chaos.store_cluster import Store, StoreCluster
from tests.proof.chaos.store_pair import DURABILITIES, Durability, StorePair
from tests.proof.independent_fold import Disagreement
from tests.proof.tables import training_data, with_columns
from tests.support.command import Lethe
from tests.support.platform import SECRET, Blocks, config_of, seals, with_row_files
from tests.support.servers import KafkaProcess, free_port

_WORKERS = 3
_REFRESHERS = 2
_ERASERS = 2
_ERASURE_SHARE, _LEAST_ERASURES = 0.004, 0.2
"""Of the rate of requests, each takes three rows of every model; and a second, at least."""


@dataclass
class Settings:
    """What a run is told.

    Attributes
    ----------
    seconds
        How long things go wrong.
    seed
        Draws models, requests and faults. What comes of them depends on the machine as well.
    pause
        Seconds between the beginnings of faults, on average.
    rate
        Requests a second, while the workers keep up.
    durability
        What the store promises: one of `DURABILITIES`, or ``mixed`` for a third of the run each.
    partitions
        Of each topic of requests. With as many as of commits (the default), one
        worker alone writes a model's commits; with fewer, every worker follows all of them.
    cluster
        Whether the store is a cluster of three primaries and their replicas, which fail over.
    """

    seconds: float
    seed: int
    pause: float = 2.0
    rate: float = 100.0
    durability: Durability | Literal["mixed"] = "mixed"
    partitions: int = COMMIT_PARTITIONS
    cluster: bool = False

    @property
    def phases(self) -> tuple[Durability, ...]:
        """What the store promises, one after the other; a cluster the same throughout."""
        if self.cluster:
            return (StoreCluster.durability,)
        return DURABILITIES if self.durability == "mixed" else (self.durability,)

    @property
    def kills(self) -> int:
        """Workers killed while nothing else goes wrong."""
        return int(min(20, max(1, self.seconds // 60)))

    @property
    def rows(self) -> int:
        """Rows of a model: enough to last."""
        return int(min(6000, max(1200, 3.5 * self.seconds)))


@dataclass
class Outcome:
    """What a run came to, beside its history."""

    faults: Faults
    store: Store
    producers: Producers
    askers: Askers
    operator: Operator
    sight: Sight
    liveness: float | None = None
    halts: Counter[str] = field(default_factory=Counter)
    failures: list[str] = field(default_factory=list)
    seconds: dict[str, float] = field(default_factory=dict)


class Run:
    """Everything of one run. Use it as a context manager: what it started ends with it."""

    def __init__(self, settings: Settings, directory: Path, say: Callable[[str], None]) -> None:
        self.settings = settings
        self._directory = directory
        self._say = say
        self._rng = random.Random(settings.seed)
        self._stop_load = threading.Event()
        self._stop_watch = threading.Event()
        self._load: list[threading.Thread] = []
        self._watch: list[threading.Thread] = []
        self._closing: list[Callable[[], None]] = []
        self.sight = Sight()
        self.history = History()

    def __enter__(self) -> Run:
        return self

    def __exit__(self, *_: object) -> None:
        self._stop_load.set()
        self._stop_watch.set()
        for close in reversed(self._closing):
            close()

    # -- the run --------------------------------------------------------------------------------

    def run(self) -> Outcome:
        """Run, and return what came of it; `history` is filled then."""
        self._set_up()
        outcome = Outcome(
            self.faults, self.store, self.producers, self.askers, self.operator, self.sight
        )
        self._say(f"{len(self._plans)} models are registered; faults begin")
        begin = time.monotonic()
        self._start_load()
        self._be_chaotic()
        self._say("healing")
        self._heal()
        self._kill_in_peace()
        self._stop_loading()
        healed = time.monotonic()
        rest = Rest(self.log, self._plans, self._waiting, self._model_store, self.store.url)
        try:
            rest.wait()
            outcome.liveness = time.monotonic() - healed
            self._say(f"everything is decided {outcome.liveness:.1f} s after the last fault")
            rest.rebuild()
            self._say("the last rebuilds are done")
        except TimeoutError as error:
            outcome.failures.append(f"liveness: {error}; {rest.missing()}")
            self._say(outcome.failures[-1])
        self._read_back(outcome)
        outcome.seconds["all"] = time.monotonic() - begin
        return outcome

    def _set_up(self) -> None:
        self.proxies = Proxies()
        self._closing.append(self.proxies.close)
        advertised = free_port()
        self.broker = KafkaProcess(self._directory / "kafka", advertise=advertised)
        self._closing.append(self.broker.close)
        self.store = (
            StoreCluster(self._directory)
            if self.settings.cluster
            else StorePair(self._directory, self.proxies)
        )
        self._closing.append(self.store.close)
        self.proxies.tell("listen", "kafka", port=advertised, target=0)  # before others take it
        self.store.start()
        self.broker.start()
        target = int(self.broker.bootstrap.rpartition(":")[2])
        self.proxies.tell("open", "kafka", target=target)
        self.log = kafka_log(load_settings({}), "chaos", bootstrap=f"127.0.0.1:{advertised}")
        self.log.ensure_topics(topics.specs(self.settings.partitions))
        self._plans = plans(self._rng, self.settings.rows)
        self.history.data = {plan.name: plan.data for plan in self._plans}
        with self.store.undisturbed():
            for plan in self._plans:
                self._register(plan)
        planned = self.settings.rate * self.settings.seconds
        gate = Gate()
        self.producers = Producers(self.log, gate, self._plans, self.settings.rate, planned)
        self.producers.stop = self._stop_load
        subjects = self.settings.rows // 3
        self.askers = Askers(
            self.log, gate, subjects, max(_LEAST_ERASURES, _ERASURE_SHARE * self.settings.rate)
        )
        orders = {
            "bootstrap": f"127.0.0.1:{advertised}",
            "redis": self.store.url,
            "records": 256,
        }
        self.crew = Crew(self._directory, orders)
        self._closing.append(self.crew.close)
        for _ in range(_WORKERS):
            self.crew.start("deletions")
        for _ in range(_REFRESHERS):
            self.crew.start("refresh")
        for _ in range(_ERASERS):
            self.crew.start("erasures")
        rng = random.Random(self._rng.random())
        self.faults = Faults(rng, self.crew, self.store, self.broker, self.proxies, self.log, gate)
        servers = {
            "LETHE_KAFKA_BOOTSTRAP_SERVERS": f"127.0.0.1:{advertised}",
            "LETHE_REDIS_URL": self.store.url,
            "LETHE_PARTITIONS": str(self.settings.partitions),
        }
        self.operator = Operator(
            self.crew,
            Lethe(self._directory / "operator", **servers),
            [self.producers.send_again, self.askers.send_again],
            self.store.losses,
        )
        self.faults.decided = lambda: len(self.producers.answered)

    def _register(self, plan: Plan) -> None:
        store, producer, reader = self._model_store(), self.log.producer(), self.log.reader()
        config = config_of(
            plan.data,
            plan.name,
            plan.method,
            plan.budget,
            plan.limits,
            disclosure=plan.disclosure,
        ).model_copy(update={"exact_sums": plan.exact_sums})
        try:
            if plan.in_files:
                config = with_row_files(config, str(self._directory / ROW_FILES))
                config = with_columns(config, plan.data)
                files = FileRegistrar(store, producer, reader, seals())
                files.register_in_files(config, Blocks(training_data(plan.data)))
                return
            registrar = Registrar(store, producer, reader, seals())
            registrar.register(with_columns(config, plan.data), training_data(plan.data))
        finally:
            for one in (store, producer, reader):
                one.close()

    def _model_store(self) -> ModelStore:
        client = connect(self.store.url)
        return ModelStore(client, Barrier(client, required=False))

    def _waiting(self) -> set[object]:
        return {*self.producers.waiting(), *self.askers.waiting()}

    # -- load and watchers ----------------------------------------------------------------------

    def _start_load(self) -> None:
        names = [plan.name for plan in self._plans]
        seeds = [self._rng.randrange(1 << 32) for _ in range(3)]
        for seed in seeds:
            self._thread(self._load, self.producers.run, seed, 1 / len(seeds))
        self._thread(self._load, self._order_refreshes, self._rng.randrange(1 << 32))
        self._thread(self._load, self.askers.run, self._rng.randrange(1 << 32), self._stop_load)
        watcher = Watcher(
            self.log,
            [topics.RECEIPTS, topics.VERSIONS, topics.ERASURE_RECEIPTS],
            receipts_to(self.producers.answer, self.askers.answer, self.sight),
        )
        self._thread(self._watch, watcher.run, self._stop_watch)
        self._thread(self._watch, self.operator.run, self._stop_watch)
        for name in names[:1] + names[2:3]:
            self._thread(self._watch, subscribe, self.log, name, self.sight, self._stop_watch)
        self._thread(self._watch, look, self.store.url, names, self.sight, self._stop_watch)

    def _thread(self, kept: list[threading.Thread], run: Callable[..., None], *what: Any) -> None:
        thread = threading.Thread(target=run, args=what, name=run.__name__, daemon=True)
        thread.start()
        kept.append(thread)

    def _order_refreshes(self, seed: int) -> None:
        rng = random.Random(seed)
        producer, store = self.log.producer(), None
        while not self._stop_load.wait(rng.uniform(1.0, 4.0)):
            try:
                store = store or self._model_store()
                self._order_one(store, producer, rng)
            except Unavailable:
                store = None
        producer.close()

    def _order_one(self, store: ModelStore, producer: Any, rng: random.Random) -> None:
        state = store.load_model(rng.choice(self._plans).name)
        size = rng.choice([None, *RefreshSize])
        generation = state.meta.generation
        producer.publish([refresh_order(size, state.model_id, generation, state.version)])

    def _be_chaotic(self) -> None:
        stop = threading.Event()
        faults = threading.Thread(target=self.faults.run, args=(stop, self.settings.pause))
        faults.start()
        told = time.monotonic()
        for phase in self.settings.phases:
            self._promise(phase)
            deadline = time.monotonic() + self.settings.seconds / len(self.settings.phases)
            while time.monotonic() < deadline:
                time.sleep(0.5)
                self.store.tend()
                if time.monotonic() - told > 30:
                    told = time.monotonic()
                    self._say(self._progress())
        stop.set()
        faults.join()

    def _promise(self, durability: Durability) -> None:
        """Let the store promise more or less, and start workers that know of it."""
        if durability != self.store.durability:
            self._say(f"from now on the store syncs: {durability}")
            self.store.promise(durability)
            self.crew.kill_all()

    def _progress(self) -> str:
        return (
            f"{len(self.faults.happened)} faults, {self.producers.sent} requests sent, "
            f"{len(self.producers.waiting())} wait, {len(self.store.losses)} losses, "
            f"{len(self.faults.errors)} faults failed"
        )

    # -- afterwards -----------------------------------------------------------------------------

    def _heal(self) -> None:
        """Everybody runs, everything is connected; what must not stay unsure is sent again."""
        for route in (*self.store.routes, "kafka"):
            self.proxies.tell("slow", route, seconds=0.0)
            self.proxies.tell("go", route)
            self.proxies.tell("open", route)
        for member in list(self.crew.members):
            if member.stopped:
                self.crew.go_on(member)
        self.crew.replace_deserters()

    def _kill_in_peace(self) -> None:
        """Kill one worker after another while nothing else goes wrong: how long it takes."""
        for _ in range(self.settings.kills):
            time.sleep(SESSION_SECONDS)  # those that were stopped find out
            self.faults.kill_one()

    def _stop_loading(self) -> None:
        self._stop_load.set()
        for thread in self._load:
            thread.join(HEAL_SECONDS)

    def _read_back(self, outcome: Outcome) -> None:
        self._stop_watch.set()
        for thread in self._watch:
            thread.join(20)
        self.crew.replace_deserters()
        self._say("reading back")
        store, raw = self._model_store(), connect(self.store.url)
        self.history.former = self.faults.former
        read_topics(self.log, self.history)
        try:
            read_rows(self.history, SECRET)
        except Disagreement as error:
            outcome.failures.append(f"rows: {error}")
        for plan in self._plans:
            try:
                self.history.finals[plan.name] = read_final(store, raw, plan.name)
                remove_orphans(store, plan.name)
            except LetheError as error:
                outcome.failures.append(f"{plan.name}: {type(error).__name__}: {error}")
        self.history.asked = self.producers.asked()
        self.history.asked += children(self.history.topics[topics.DELETIONS])
        self.history.garbage = dict(self.producers.garbage)
        self.history.live = self.sight.live
        self.history.reads = self.sight.reads
        self.history.broken = self.sight.broken
        self.history.deserters = list(self.crew.deserters)
        if not outcome.failures:
            self._say("looking for bytes of deleted rows")
            count_remains(self.history, self.store, raw, self._directory)
        store.close()
        self.crew.close()
        outcome.halts = self.crew.halts()
        self.history.diaries = read_diaries(self.crew.diaries)
