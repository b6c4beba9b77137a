"""What goes wrong, drawn from a seed.

A deck of faults is shuffled by the seed: the first deck has one of each kind, those after it as
many of each as its weight says. Faults of the store, of Kafka and of workers go on at the same
time; two of the same kind of server do not.
"""

from __future__ import annotations

import contextlib
import random
import threading
import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

from lethe.consumers.contract import topics
from lethe.consumers.log.base import Log, Message
from lethe.consumers.log.scan import scan
from tests.proof.chaos.crew import SESSION_SECONDS, Crew, Member, wait_until
from tests.proof.chaos.history import Record
from tests.proof.chaos.proxy import Proxies
from tests.proof.chaos.recovering import Gate, make_again
from tests.proof.chaos.store_cluster import FAULTS, Store, StoreCluster
from tests.proof.chaos.store_pair import StorePair
from tests.support.servers import KafkaProcess

WEIGHTS = {
    "worker: SIGKILL": 14,
    "worker: SIGSTOP past its session": 8,
    "refresh worker: SIGKILL": 6,
    "erasure worker: SIGKILL": 8,
    "erasure worker: SIGSTOP past its session": 5,
    "redis: tail of its file lost": 22,
    "redis: failover to a lagging replica": 6,
    "redis: a backup is restored": 6,
    "redis: SIGKILL": 9,
    "redis: connections reset": 9,
    "redis: cut": 6,
    "redis: slow": 6,
    "redis: stands still": 5,
    "redis: out of memory": 4,
    "redis: disk full": 4,
    "kafka: connections reset": 7,
    "kafka: cut": 4,
    "kafka: slow": 5,
    "kafka: stands still": 3,
    "kafka: SIGKILL": 1,
    "kafka: restart": 1,
    "kafka: a commit lands in another partition": 12,
    "kafka: a topic of requests is made again": 12,
}

ON_A_CLUSTER = {
    **{kind: weight for kind, weight in WEIGHTS.items() if not kind.startswith("redis:")},
    **{f"redis: {what}": weight for what, weight in FAULTS.items()},
}

_PATIENCE = 4.0  # times the pause
NEEDS_A_FILE = ("redis: tail of its file lost", "redis: disk full")
ROLES = {"worker": "deletions", "refresh worker": "refresh", "erasure worker": "erasures"}
IN_PEACE = "worker: SIGKILL, and nothing else"

_NEW, _OLD_SHARE = 4, 0.2
"""Of restored backups: how many are new, and how often one of any age is taken."""


@dataclass(frozen=True, slots=True)
class Happened:
    """A fault: which, when it began and ended, on whom."""

    kind: str
    begin: float
    end: float
    whom: str = ""


@dataclass
class Faults:
    """Draws faults and makes them happen until told to stop."""

    rng: random.Random
    crew: Crew
    store: Store
    broker: KafkaProcess
    proxies: Proxies
    log: Log
    gate: Gate
    happened: list[Happened] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)
    former: list[list[Record]] = field(default_factory=list)
    deck: list[str] = field(default_factory=list)
    kafka_busy: threading.Lock = field(default_factory=threading.Lock)
    decks: int = 0
    decided: Callable[[], int] = lambda: 0

    def run(self, stop: threading.Event, pause: float) -> None:
        """Begin a fault every ``pause`` seconds on average; return when all have ended.

        A fault waits, though not for long, until something was decided since the last one: faults
        of a system that stands still show nothing, and on a slow machine it would for ever.
        """
        with ThreadPoolExecutor(6, thread_name_prefix="fault") as pool:
            decided = self.decided()
            while not stop.wait(self.rng.uniform(0.4, 1.6) * pause):
                deadline = time.monotonic() + _PATIENCE * pause
                while self.decided() == decided and time.monotonic() < deadline:
                    if stop.wait(0.05):
                        return
                decided = self.decided()
                kind = self._draw()
                self.crew.replace_deserters()
                pool.submit(self._cause, kind, random.Random(self.rng.random()), stop)

    def kill_one(self) -> None:
        """Kill a deletion worker; nothing else goes on."""
        busy: list[Member] = []

        def somebody_works() -> bool:
            busy[:] = [m for m in self.crew.of("deletions") if self.crew.holding(m)]
            return bool(busy)

        try:
            wait_until(somebody_works, 30.0, "a worker that holds a partition")
        except TimeoutError:
            return
        member = self.rng.choice(busy)
        held = self.crew.holding(member)
        begin = time.time()
        self.crew.kill(member)
        self.happened.append(Happened(IN_PEACE, begin, time.time(), member.name))
        with contextlib.suppress(TimeoutError):
            wait_until(lambda: self.crew.applied(held, begin), 30.0, "the next applied request")

    def counts(self) -> Counter[str]:
        """Return how often each kind happened."""
        return Counter(one.kind for one in self.happened)

    def _draw(self) -> str:
        if not self.deck:
            weights = ON_A_CLUSTER if isinstance(self.store, StoreCluster) else WEIGHTS
            cards = [kind for kind, n in weights.items() for _ in range(n if self.decks else 1)]
            self.rng.shuffle(cards)
            self.deck = cards
            self.decks += 1
        return self.deck.pop()

    def _cause(self, kind: str, rng: random.Random, stop: threading.Event) -> None:
        server, _, what = kind.partition(": ")
        busy: contextlib.AbstractContextManager[object] = contextlib.nullcontext()
        if server in ("redis", "kafka"):
            busy = self.store.busy if server == "redis" else self.kafka_busy
        try:
            with busy:
                if stop.is_set():
                    return
                begin = time.time()
                whom = self._act(kind, server, what, rng)
                if whom is not None:
                    self.happened.append(Happened(kind, begin, time.time(), whom))
        except Exception as error:
            self.errors.append(f"{kind}: {type(error).__name__}: {error}")

    def _act(self, kind: str, server: str, what: str, rng: random.Random) -> str | None:
        """Do it; return whom it befell, None if there was nobody."""
        if server == "redis":
            if isinstance(self.store, StoreCluster):
                return self.store.befall(what, rng)
            return self._to_the_pair(self.store, kind, what, rng)
        match kind:
            case _ if server in ROLES:
                kills = what == "SIGKILL"
                act = self.crew.kill if kills else lambda member: self._freeze(member, rng)
                return self._to_one(ROLES[server], rng, act)
            case "kafka: SIGKILL" | "kafka: restart":
                (self.broker.kill if what == "SIGKILL" else self.broker.stop)()
                self.broker.start()
            case "kafka: a commit lands in another partition":
                return self._misplace(rng)
            case "kafka: a topic of requests is made again":
                topic = rng.choice([topics.DELETIONS, topics.ERASURES])
                self.former.append(make_again(self.log, self.crew, self.gate, topic))
                return topic
            case _:
                self._on_the_way(server, what, rng)
        return server

    def _to_the_pair(self, store: StorePair, kind: str, what: str, rng: random.Random) -> str:
        if kind in NEEDS_A_FILE and store.durability == "none":
            kind = "redis: SIGKILL"  # which loses as much there
        match kind:
            case "redis: tail of its file lost":
                store.truncate(rng.uniform(0.0, 0.4), rng.randrange(2000))
            case "redis: failover to a lagging replica":
                store.fail_over(rng.uniform(0.0, 0.6))
            case "redis: a backup is restored":
                every, new = store.backups, store.backups[-_NEW:]
                # Any age, though seldom an old one: from the first one on, everything is folded.
                store.restore(rng.choice(every if rng.random() < _OLD_SHARE else new))
            case "redis: SIGKILL":
                store.kill()
            case "redis: out of memory":
                store.run_out_of_memory(rng.uniform(0.3, 1.5))
            case "redis: disk full":
                store.fill_disk(rng.uniform(0.3, 1.5), rng.randrange(20_000))
            case _:
                self._on_the_way("redis", what, rng)
        return "redis"

    def _on_the_way(self, route: str, what: str, rng: random.Random) -> None:
        """Disturb the connections to a server."""
        seconds = rng.uniform(0.3, 2.5)
        match what:
            case "connections reset":
                self.proxies.tell("reset", route)
            case "cut":
                self.proxies.tell("close", route)
                time.sleep(seconds)
                self.proxies.tell("open", route)
            case "slow":
                self.proxies.tell("slow", route, seconds=rng.choice([0.005, 0.02, 0.1]))
                time.sleep(seconds)
                self.proxies.tell("slow", route, seconds=0.0)
            case "stands still":
                self.proxies.tell("hold", route)
                time.sleep(seconds * (2.5 if route == "kafka" else 1.0))
                self.proxies.tell("go", route)
            case _:
                raise ValueError(f"no such fault: {what}")

    def _misplace(self, rng: random.Random) -> str | None:
        """Copy a commit into a partition that is not its model's."""
        with contextlib.closing(self.log.reader()) as reader:
            partitions = list(reader.partitions(topics.COMMITS))
            rng.shuffle(partitions)
            for home in partitions:
                bounds = reader.bounds(home)
                for record in scan(reader, home, max(bounds.begin, bounds.end - 1), bounds.end):
                    elsewhere = rng.choice([one.index for one in partitions if one != home])
                    copy = Message(
                        topics.COMMITS, record.key or b"", record.value, partition=elsewhere
                    )
                    with contextlib.closing(self.log.producer()) as producer:
                        producer.publish([copy])
                    return f"{home.index} to {elsewhere}"
        return None

    def _to_one(self, role: str, rng: random.Random, act: Callable[[Member], None]) -> str | None:
        with self.crew.lock:
            there = self.crew.of(role)
            least = 2 if role == "deletions" else 1
            if len(there) < least:  # the others are stopped
                return None
            member = rng.choice(there)
            member.taken = True
        act(member)
        return member.name

    def _freeze(self, member: Member, rng: random.Random) -> None:
        self.crew.stop(member)
        time.sleep(SESSION_SECONDS + rng.uniform(0.3, 2.0))
        self.crew.go_on(member)
