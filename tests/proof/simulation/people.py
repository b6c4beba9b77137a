"""What people do to a platform that runs: register, replace, unregister, add partitions, mend."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from lethe.consumers.contract import topics
from lethe.consumers.contract.sealing import SealKeys
from lethe.consumers.registration.checks import can_have_exact_sums
from lethe.consumers.registration.in_files import FileRegistrar
from lethe.consumers.service.loop import TRANSIENT
from lethe.consumers.service.telemetry.steps import no_hook
from lethe.consumers.service.topic_watch import loss_of
from lethe.consumers.suppression.marks import DEFAULT_NAMESPACE
from lethe.engine.error.budget import OverBudget
from lethe.engine.error.terms import ObjectiveNoise, OutputNoise
from lethe.engine.errors import LetheError
from lethe.engine.rowstore.buckets import Buckets
from lethe.engine.rowstore.files import files_at
from lethe.engine.store.layout.config import LimitsRecord, ModelConfig
from lethe.engine.store.layout.keys import ModelKeys, commit_partition
from lethe.engine.store.membership import models_that_lack_rows
from lethe.engine.store.row_files import folder_of
from lethe.engine.store.server.connection import text
from lethe.engine.store.topics import KnownTopic
from tests.proof import tables
from tests.proof.simulation.checks import BY_ORDER, CERTIFIED, TABLE
from tests.proof.simulation.store import Image
from tests.proof.simulation.turns import Actor
from tests.proof.tables import training_data, with_columns
from tests.support.families import Data, make
from tests.support.platform import Blocks, config_of

if TYPE_CHECKING:
    from tests.proof.simulation.world import World

_TERMS = (ObjectiveNoise(1.0, 1e-4, 5.0), OutputNoise(1.0, 1e-4, 1e-3, 1000))
_TABLES = {TABLE: tables.COLUMNS, BY_ORDER: tables.BY_ORDER}
_FAMILIES = ("benign", "sparse", "duplicated", "wide", "wide", "classes", *_TABLES, CERTIFIED)
_RULES = (OverBudget.COMPLETE, OverBudget.COMPLETE, OverBudget.PUBLISH, OverBudget.HOLD)
_COUNTS = 0.15  # of the models that can be, are of counts
_COUPLED = 0.4  # of those of several classes, share one softmax
_PARTITIONS = 6  # of a topic, at most
_IMAGES = 8  # earlier states of the store that could come back, at most


def secret_of(name: str) -> bytes:
    """Return a secret that commits are sealed with."""
    return hashlib.sha256(name.encode()).digest()


@cache
def data_of(family: str, kind: str) -> Data:
    """Return a family's data; runs share it."""
    if family in _TABLES:
        n = 60 if kind == "linear" else 300
        return tables.draw(n, np.random.default_rng(0), kind, _TABLES[family])
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
        self._registering: dict[str, list[Actor]] = {}
        self.images: list[Image] = []
        self.excused: set[str] = set()  # models that may have lost rows
        self.forgotten: frozenset[str] = frozenset()  # registrations that no store knows of now
        self.secrets = [secret_of("first")]

    @property
    def seals(self) -> SealKeys:
        """The secrets that a process gets which starts now."""
        return SealKeys(self.secrets)

    # -- models -------------------------------------------------------------------------------

    def plan(self, model: str) -> None:
        """Decide what a model is, before it is registered."""
        rng = self._rng
        family = rng.choice(_FAMILIES)
        kind = "logistic" if family == "classes" else rng.choice(["linear", "linear", "logistic"])
        if family not in ("classes", *_TABLES, CERTIFIED) and rng.random() < _COUNTS:
            kind = "poisson"
        if family == "classes" and rng.random() < _COUPLED:
            kind = "softmax"
        certified = family == CERTIFIED
        method = "exact" if certified else rng.choice(["pru", "pru", "exact", "influence"])
        method = "exact" if family in _TABLES and method == "influence" else method
        limits = LimitsRecord(
            floor_rows=rng.choice([1, 3, 8, 256]),
            fraction_of_d=1e-9,
            completions=rng.choice([2, 64]),
        )
        budget = 1.0 if certified else rng.choice([0.02, 0.1, 0.5])
        data = data_of(family, kind)
        terms = rng.choice(_TERMS) if certified else None
        rule = OverBudget.COMPLETE if certified else rng.choice(_RULES)
        linear = kind == "linear" and method != "influence" and terms is None
        sums = linear and rng.random() < 0.5
        one = data.y.shape[1] == 1 and family not in _TABLES
        discloses = linear and method == "exact" and one and not sums
        config = config_of(data, model, method, budget, limits, terms, rule, discloses)
        config = with_columns(config, data)
        sums = sums and can_have_exact_sums(config)
        config = config.model_copy(update={"exact_sums": sums})
        files = rng.random() < (0.5 if sums else 0.3) and kind != "softmax"
        if files:
            where = {"rows_url": self._world.platform.folder()}
            config = config.model_copy(update=where | {"subject_namespace": DEFAULT_NAMESPACE})
        self._configs[model] = config
        self._world.platform.data[model] = data
        what = f"{kind} {family} {method} {budget} {rule}{' disclosing' if discloses else ''}"
        what += " with exact sums" if sums else ""
        what += " and rows in files" if files else ""
        self._world.note(f"plan {model} in {commit_partition(model)}: {what}")

    def register(self, model: str, *, replace_model: bool = False) -> None:
        """Register a model at once, by the director's own hand."""
        world = self._world
        look = world.erasures.registering(model) if world.erasures else no_hook
        platform = world.platform
        registrar = FileRegistrar(
            platform.store,
            platform.producer,
            platform.reader,
            platform.seals,
            now=world.now,
            at_step=look,
        )
        self._give(registrar, model, replace_model=replace_model)

    def _give(self, registrar: FileRegistrar, model: str, *, replace_model: bool) -> None:
        """Register a model: with its rows in files, if it is to have some, or often if replaced."""
        config, data = self._configs[model], training_data(self._world.platform.data[model])
        if config.rows_url is not None and not (replace_model and self._rng.random() < 0.3):
            registrar.register_in_files(
                config, Blocks(data), replace_model=replace_model, allow_change=replace_model
            )
            return
        registrar.register(
            config.model_copy(update={"rows_url": None}),
            data,
            replace_model=replace_model,
            allow_change=replace_model,  # a category may have gone with the rows of erased subjects
        )

    def rows_in_files(self, model: str, folder: str) -> frozenset[str]:
        """Return the rows that a registration has written to files."""
        url = self._configs[model].rows_url
        files = [] if url is None else [*(Path(url) / folder_of(model) / folder).glob("*")]
        roots = [path.name for path in files if path.read_bytes().startswith(b'{"format"')]
        return frozenset(
            row
            for root in roots
            for bucket in Buckets(files_at(str(files[0].parent)), root, model).scan()
            for row in bucket.ids
        )

    def start_registrar(self) -> Actor:
        """Return a process that registers a model, registers one again, or unregisters one."""
        world = self._world
        model = self._rng.choice(list(self._configs))
        there = world.truth.registered(model)
        leaves = there and self._rng.random() < 0.2
        what = "unregistered" if leaves else "replaced" if there else "registered"
        world.count(f"model {what} during the run")
        actor = Actor(world.name("registrar"), lambda: self._register(model, what))
        world.note(f"{actor.name}: {model} is {what}")
        self._registering.setdefault(model, []).append(actor)
        return actor

    def _register(self, model: str, what: str) -> None:
        world = self._world
        look = world.erasures.registering(model) if world.erasures else no_hook

        def at_step(step: str) -> None:
            look(step)
            world.point(f"step: {step}")

        registrar = FileRegistrar(
            world.disk.store(world.point, world.cut),
            world.log.producer(),
            world.log.reader(),
            self.seals,
            now=world.now,
            at_step=at_step,
        )
        try:
            if what == "unregistered":
                registrar.unregister(model)
            else:
                self._give(registrar, model, replace_model=what == "replaced")
            world.note(f"  {model} is {what}")
        except (*TRANSIENT, LetheError) as error:
            world.note(f"  {model} is not {what}: {error}")

    def release(self) -> None:
        """Do for models that have lost rows what docs/operations.md says: register again."""
        world = self._world
        for model in sorted(self._configs):
            if not world.truth.registered(model):
                continue
            if not models_that_lack_rows(world.platform.store.client, [model]):
                continue
            assert model in self.excused, f"{model} has lost rows, and nothing explains it"
            self.register(model, replace_model=True)
            world.count_event("release by registering again")
            world.note(f"register {model} again: it has lost rows")

    # -- the store's past ---------------------------------------------------------------------

    def keep_image(self) -> None:
        """Keep the store as it is: a replica that catches up, or a backup."""
        self.images.append(self._world.disk.image())
        if len(self.images) > _IMAGES:
            self.images.pop(self._rng.randrange(len(self.images)))

    def go_back(self, image: Image, what: str, tag: str | None = None) -> None:
        """Make an earlier state the store's; of the keys of one hash tag only, if it is named."""
        world = self._world
        if tag is not None:
            image = world.disk.image().with_part(image, tag)
        for model in self._configs:
            found = world.truth.generation(model)
            alive = [one for one in self._registering.get(model, ()) if not one.done]
            if alive or world.in_flight:
                self.excused.add(model)  # what is staged may be gone
            if found is None:
                continue
            number, generation = found
            fixed = world.keys(model).generation(generation).fixed
            if image.commit(model) < number and not image.marks.get(fixed):
                self.excused.add(model)
        world.count(what)
        world.note(what + ("" if tag is None else f" ({tag or 'keys without a tag'})"))
        noted = self._noted()
        if world.disk.go_back(image):
            world.count_event("commits lost by the store")
        self.forgotten |= noted - self._noted()
        self._accept_topics()

    def _noted(self) -> frozenset[str]:
        """Return the registrations that the store knows to be under way, or to have ended."""
        raw = self._world.platform.raw()
        keys = (ModelKeys(model).stagings for model in self._configs)
        return frozenset(text(name) for key in keys for name in raw.hkeys(key))

    def _accept_topics(self) -> None:
        """Do for topics of which the store knows a former one what docs/operations.md says."""
        known = self._world.platform.store.topics
        for topic, former in known.read().items():
            [first, *more] = [held.identity for held in self._world.log.partitions(topic)]
            if first.topic_id != former.topic_id:
                now = KnownTopic(first.topic_id, 1 + len(more))
                known.accept(now, loss_of(topic, "the store went back"))
                self._world.note(f"go on with another {topic}")

    def drop_results(self) -> None:
        """Let the store forget the results of refreshes, as when they have expired."""
        world = self._world
        raw = world.platform.raw()
        names = list(raw.scan_iter("lethe:*:job:*"))
        if names:
            raw.delete(*names)
            world.count("results of refreshes gone")
            world.note(f"drop {len(names)} results")

    # -- keys ---------------------------------------------------------------------------------

    def rotate(self) -> None:
        """Begin to seal with another secret; processes that run keep those that they have."""
        world = self._world
        if len(self.secrets) == 1:
            self.secrets.insert(0, secret_of("second"))
            world.truth.add_secret(self.secrets[0])
            world.count("seal secret rotated")
            world.note("rotate the secret")

    # -- topics -------------------------------------------------------------------------------

    def add_partitions(self) -> None:
        """Add a partition to a topic."""
        log = self._world.log
        names = [
            topics.DELETIONS,
            topics.ROW_CHANGES,
            topics.RECEIPTS,
            topics.VERSIONS,
            topics.COMMITS,
        ]
        topic = self._rng.choice(names)
        now = len(log.partitions(topic))
        if now < _PARTITIONS or topic == topics.COMMITS:
            log.add_partitions(topic, now + 1)
            self._world.count("partitions added")
            self._world.note(f"add a partition to {topic}")

    def make_again(self) -> None:
        """Make a topic of requests again: drained, and all processes stopped.

        The newest requests are sent again, as one does who is not sure.
        """
        world = self._world
        world.stop_everybody()
        world.processes.drain()
        if world.undecided():
            return  # a model that has lost rows has requests in it that wait
        topic = self._rng.choice([topics.DELETIONS, topics.DELETIONS, topics.ROW_CHANGES])
        if topic == topics.ROW_CHANGES:
            self.images = [world.disk.image()]  # older ones need the values that go with it
        newest = [held.records[-3:] for held in world.log.partitions(topic)]
        world.log.delete_topic(topic)
        world.log.ensure_topics(topics.specs(self._rng.choice([1, 2, 3])))
        self._accept_topics()
        for records in newest:
            world.producers.resend(records)
        world.count("topic made again")
        world.note("make the topic again")

    def retain(self) -> None:
        """Let retention remove requests and commits that no state of the store needs any more."""
        world = self._world
        del self.images[:-2]  # retention is longer than backups are kept
        images = (world.disk.image(), *self.images)
        for held in world.log.partitions(topics.DELETIONS):
            mark = min(image.watermark(str(held.identity)) for image in images)
            if mark > held.begin:
                world.log.trim(held.identity, mark)
                world.count("retention removes old deletions")
        self._retain_changes(images)
        if world.busy():
            return  # not under the eyes of who reads: retention takes days
        for held in world.log.partitions(topics.COMMITS):
            mark = min(image.lowest(held.identity.index) for image in images)
            if mark > held.begin:
                world.log.trim(held.identity, mark)
                world.count("retention removes old commits")
                world.trimmed = True

    def _retain_changes(self, images: Sequence[Image]) -> None:
        """Let retention remove changes of rows that no fold from a state of the store can need."""
        world = self._world
        needed: dict[str, int] = {}
        for model, fold in world.truth.models.items():
            lowest = min(image.lowest(commit_partition(model)) for image in images)
            for offset, _, header in fold.commits:
                for _, _, partition, at, _ in header.get("changes", ()) if offset >= lowest else ():
                    needed[partition] = min(at, needed.get(partition, at))
        for held in world.log.partitions(topics.ROW_CHANGES):
            name = str(held.identity)
            mark = min(image.watermark(name) for image in images)
            mark = min(mark, needed.get(name, mark))
            if mark > held.begin:
                world.log.trim(held.identity, mark)
                world.count("retention removes old changes of rows")
