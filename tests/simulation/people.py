"""What people do to a platform that runs: register, replace, add partitions, mend, and err."""

from __future__ import annotations

import json
from functools import cache
from itertools import takewhile
from typing import TYPE_CHECKING

import numpy as np

from consumers import topics
from consumers.events import Receipt
from consumers.loop import TRANSIENT
from consumers.registration import register
from engine.certified import Terms
from engine.errors import LetheError, UnknownModel
from engine.store.head import LimitsRecord, ModelConfig
from engine.store.keys import ModelKeys, shard_of
from tests.families import Data, make
from tests.simulation.checks import CERTIFIED
from tests.simulation.turns import Actor
from tests.support.platform import config_of, training_data

if TYPE_CHECKING:
    from tests.simulation.world import World

_FAMILIES = ("benign", "sparse", "duplicated", "wide", "wide", "classes", CERTIFIED)
_FAR = 12  # more than there can be in a topic that was just made again
_FORKED = "f" * 64


@cache
def data_of(family: str, kind: str) -> Data:
    """Return a family's data; runs share it."""
    if family != CERTIFIED:
        return make(family, kind)
    rng = np.random.default_rng(0)
    X = rng.standard_normal((60, 3)) / np.sqrt(3)
    signal = 2 * X.sum(axis=1, keepdims=True)
    y = signal + 0.3 * rng.standard_normal((60, 1))
    if kind == "logistic":
        y = (rng.random((60, 1)) < 1 / (1 + np.exp(-signal))).astype(np.float64)
    return Data(CERTIFIED, kind, X, y, np.ones(60), 1.0, True, np.arange(30))


class People:
    """Operators and administrators of a run; the director lets them act."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._rng = world.rng
        self._configs: dict[str, ModelConfig] = {}
        self._whole: dict[str, str] = {}  # digests of models that were forked by hand
        self._apart: dict[str, dict[bytes, tuple[int, bytes]]] = {}  # of servers that were cut off
        self.forked: set[str] = set()  # models that were forked by hand, once
        self.excused: set[str] = set()  # models that may halt
        self.released: set[str] = set()

    # -- models -------------------------------------------------------------------------------

    def plan(self, model: str) -> None:
        """Decide what a model is, before it is registered."""
        rng = self._rng
        family = rng.choice(_FAMILIES)
        kind = "logistic" if family == "classes" else rng.choice(["linear", "logistic"])
        certified = family == CERTIFIED
        method = "exact" if certified else rng.choice(["pru", "pru", "exact", "influence"])
        limits = LimitsRecord(
            floor_rows=rng.choice([1, 3, 8, 256]),
            fraction_of_d=1e-9,
            completions=rng.choice([2, 64]),
        )
        budget = 1.0 if certified else rng.choice([0.02, 0.1, 0.5])
        data = data_of(family, kind)
        terms = Terms(1.0, 1e-4, 5.0) if certified else None
        self._configs[model] = config_of(data, model, method, budget, limits, terms)
        self._world.platform.data[model] = data
        self._world.note(f"plan {model}: {kind} {family} {method} {budget}")

    def register(self, model: str, *, replace_model: bool = False) -> None:
        """Register a model at once, by the director's own hand."""
        world = self._world
        register(
            world.platform.store,
            world.platform.producer,
            world.platform.reader,
            self._configs[model],
            training_data(world.platform.data[model]),
            replace_model=replace_model,
            now=world.now,
        )

    def start_registrar(self) -> Actor | None:
        """Return a process that registers a model, or registers one again."""
        world = self._world
        model = self._rng.choice(list(self._configs))
        try:
            world.platform.load(model)
            replace_model = True
        except UnknownModel:
            replace_model = False
        except LetheError:
            return None
        world.count(f"model {'replaced' if replace_model else 'registered'} during the run")
        world.note(f"a registrar for {model}, replace: {replace_model}")
        self.excused.add(model)  # a failover that loses a registration forks history
        return Actor(world.name("registrar"), lambda: self._register(model, replace_model))

    def _register(self, model: str, replace_model: bool) -> None:
        world = self._world
        try:
            register(
                world.disk.store(world.point),
                world.log.producer(),
                world.log.reader(),
                self._configs[model],
                training_data(world.platform.data[model]),
                replace_model=replace_model,
                now=world.now,
            )
        except (*TRANSIENT, LetheError) as error:
            world.note(f"not registered: {error}")

    # -- forks and releases -------------------------------------------------------------------

    def fork(self) -> None:
        """Restore something wrong: the newest version has another digest than was published."""
        world = self._world
        model = self._rng.choice(list(self._configs))
        keys = ModelKeys.of_model(model)
        raw = world.platform.raw()
        digest = raw.hget(keys.head, "digest")
        versions = world.platform.versions(model)
        whole = versions and isinstance(digest, bytes) and versions[-1].digest == digest.decode()
        if not whole or raw.xlen(keys.outbox):
            return
        self._whole[model] = versions[-1].digest
        self.forked.add(model)
        self.excused.add(model)
        raw.hset(keys.head, "digest", _FORKED)
        world.disk.restart()
        world.count("history forked by hand")
        world.note(f"fork {model}")

    def cut_off(self) -> None:
        """Let the store be cut off while commits wait to be published: others go on without it."""
        world = self._world
        raw = world.platform.raw()
        waiting = [m for m in self._configs if raw.xlen(ModelKeys.of_model(m).outbox)]
        if waiting:
            model = self._rng.choice(waiting)
            names = raw.scan_iter(f"lethe:{{{ModelKeys.of_model(model).tag}}}:*")
            dumps = [(name, raw.pttl(name), raw.dump(name)) for name in sorted(names)]
            self._apart[model] = {name: (max(0, ttl), held or b"") for name, ttl, held in dumps}
            world.note(f"cut off with commits of {model}")
            world.fail_over()

    def unite(self) -> None:
        """Restore a model from a server that was cut off: what it holds was decided by others.

        As with any store that went back, the marks are those of then: here none.
        """
        world = self._world
        if not self._apart:
            return
        model = self._rng.choice(list(self._apart))
        world.end_senders()
        raw = world.platform.raw()
        tag = ModelKeys.of_model(model).tag
        for name in [*raw.scan_iter(f"lethe:{{{tag}}}:*"), *raw.scan_iter("lethe:mark:*")]:
            raw.delete(name)
        for name, (ttl, held) in self._apart.pop(model).items():
            raw.restore(name, ttl, held)
        self.forked.add(model)
        self.excused.add(model)
        world.disk.restart()
        world.count("model restored from a server that was cut off")
        world.note(f"unite {model}")

    def restore(self) -> None:
        """Restore what was forked by hand, where it is still so."""
        world = self._world
        raw = world.platform.raw()
        for model, digest in self._whole.items():
            head = ModelKeys.of_model(model).head
            if raw.hget(head, "digest") == _FORKED.encode():
                raw.hset(head, "digest", digest)
                world.disk.restart()
                world.count_event("release by restoring")
                world.note(f"restore {model}")
        self._whole.clear()

    def release(self, halted: set[str]) -> None:
        """Do for halted models what docs/operations.md says: register again."""
        for model in sorted(halted):
            assert model in self.excused, f"{model} halted, and nothing was done that explains it"
            self.register(model, replace_model=True)
            self.released.add(model)
            self._world.count_event("release by registering again")
            self._world.note(f"register {model} again: it is halted")

    # -- topics -------------------------------------------------------------------------------

    def add_partitions(self) -> None:
        """Add a partition to a topic."""
        log = self._world.log
        topic = self._rng.choice([topics.DELETIONS, topics.RECEIPTS, topics.VERSIONS])
        if len(log.partitions(topic)) < 4:
            log.add_partitions(topic, len(log.partitions(topic)) + 1)
            self._world.count("partitions added")
            self._world.note(f"add a partition to {topic}")

    def make_again(self) -> None:
        """Make the topic of requests again: drained, and all processes stopped.

        The newest requests are sent again, as one does who is not sure.
        """
        world = self._world
        world.stop_everybody()
        if world.drain():
            return  # models that are halted have requests in it that nobody has decided
        # Receipts name no incarnation of the topic. One that lies at its old offset again is seen
        # through by the takeover, but may stand twice in the log of receipts when a failover
        # follows: open. People are told to send under new ids.
        newest = [
            [record for record in held.records[-3:] if record.offset >= _FAR]
            for held in world.log.partitions(topics.DELETIONS)
        ]
        world.log.delete_topic(topics.DELETIONS)
        world.log.ensure_topics(topics.specs(self._rng.choice([1, 2, 3])))
        for records in newest:
            world.producers.resend(records)
        world.disk.sync()
        world.replicate()
        world.count("topic made again")
        world.note("make the topic again")

    def retain(self) -> None:
        """Let retention remove decided requests, and their receipts: no store has lost them."""
        world = self._world
        images = (world.disk.image(), world.disk.synced, world.replica)
        marks: dict[int, int] = {}
        for held in world.log.partitions(topics.DELETIONS):
            mark = min(image.watermark(str(held.identity)) for image in images)
            marks[held.identity.index] = mark
            if mark > held.begin:
                world.log.trim(held.identity, mark)
                world.count("retention removes old deletions")
        for held in world.log.partitions(topics.RECEIPTS):
            sources = (Receipt.model_validate_json(r.value or b"").source for r in held.records)
            old = takewhile(lambda s: s.offset < marks.get(s.partition, 0), sources)
            count = sum(1 for _ in old)
            if count:
                world.log.trim(held.identity, held.begin + count)
                world.count("retention removes old receipts")

    def drop_results(self) -> None:
        """Let the store forget the results of refreshes, as when they have expired."""
        world = self._world
        raw = world.platform.raw()
        names = list(raw.scan_iter("lethe:*:job:*"))
        if names:
            raw.delete(*names)
            world.disk.sync()
            world.count("results of refreshes gone after a failover")
            world.note(f"drop {len(names)} results")

    def erase_lost(self) -> None:
        """Erase records of rows whose deletion was published and lost by the store.

        So it is where the rows' keys were dropped, or a backup was cleaned of them.
        """
        world = self._world
        raw = world.platform.raw()
        for model in self._configs:
            keys = ModelKeys.of_model(model)
            version, meta = raw.hmget(keys.head, ["version", "meta"])
            if version is None or meta is None:
                continue
            versions = world.platform.versions(model)
            newest = versions[-1].version if versions else -1
            live = keys.generation(json.loads(meta)["generation_key"])
            erased = 0
            for receipt in world.platform.receipts(model):
                if receipt.rows_deleted and int(version) < (receipt.version or 0) <= newest:
                    for row in world.rows_of(receipt):
                        erased += int(raw.hdel(live.rows(shard_of(row)), row))
            if erased:
                world.count("rows of lost deletions erased")
                world.note(f"erase {erased} lost rows of {model}")
