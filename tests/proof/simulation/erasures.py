"""Erasures in a run: who asks for them, the workers that serve them, and what is judged of them."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from lethe.consumers.contract import topics
from lethe.consumers.contract.sealing import KeyUnknown, SealKeys
from lethe.consumers.erasures.receipts import PublishedReceipts
from lethe.consumers.log.base import Message
from lethe.consumers.service.telemetry.steps import Step
from lethe.consumers.suppression.suppressions import Suppressions
from lethe.consumers.workers.erasure_worker import ErasureWorker
from lethe.engine.store.layout.keys import ModelKeys
from lethe.engine.store.server.connection import text
from tests.proof.simulation.turns import Actor
from tests.support.erasures import turn

if TYPE_CHECKING:
    from tests.proof.simulation.world import World

_SUBJECTS = 4  # few, so that erasures, lifts and inserts meet
_MOST_WORKERS = 2
_ROUNDS = 12  # of erasure workers and others at the end; it takes some five
_IDS = 3  # of the erasures of a subject: repeats and conflicts are wanted

STEPS = tuple(f"step: {step}" for step in Step if step.startswith("erase_"))
POINTS = (
    *STEPS,
    "log: publish before", "log: publish after", "log: read", "store: answer",
)  # fmt: skip


class Erasures:
    """All that concerns erasures, of a run that has some; the director lets it act."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._rng = world.rng
        self._lifts = 0
        self.workers: list[Actor] = []
        self.subjects = [f"subject-{number}" for number in range(_SUBJECTS)]
        self._reader = world.log.reader()

    # -- people -------------------------------------------------------------------------------

    def send(self) -> None:
        """Ask for an erasure or a lift, for a new one or again; or for another one under its id."""
        subject, kind = self._rng.choice(self.subjects), self._rng.random()
        if kind < 0.3:
            if kind < 0.22:
                self._lifts += 1
            name = f"lift-{subject}-{self._lifts}"
        else:
            name = f"erasure-{self._rng.randrange(_IDS)}-of-{subject}"
        if kind > 0.92:
            subject = self._rng.choice(
                self.subjects
            )  # perhaps another one than its id was used for
        body = {"erasure_id": name, "subject_id": subject}
        if kind < 0.3:
            body |= {"lift": True}  # type: ignore[dict-item]  # JSON
        for _ in range(2 if self._rng.random() < 0.1 else 1):
            message = Message(topics.ERASURES, subject.encode(), json.dumps(body).encode())
            self._world.producers.publish(message)
        self._world.count("erasure or lift sent")
        self._world.note(f"send {name} of {subject}")

    # -- processes ----------------------------------------------------------------------------

    def start_worker(self) -> None:
        """Start an erasure worker with the secrets that there are now."""
        if sum(not actor.done for actor in self.workers) < _MOST_WORKERS:
            seals = self._world.people.seals
            name = self._world.name("eraser")
            self.workers.append(Actor(name, lambda: self._erase(seals)))

    def _erase(self, seals: SealKeys) -> None:
        world = self._world
        worker = ErasureWorker(
            world.log,
            world.disk.store(world.point, world.cut),
            seals,
            metrics=world.metrics,
            at_step=lambda step: world.point(f"step: {step}"),
            sweep_seconds=0.0,
        )
        try:
            world.processes.serve(worker)
        except KeyUnknown:  # the secret was rotated: the process ends, and is started again
            worker.close()
            world.count_event("erasure worker without the newest secret")

    def registering(self, model: str) -> Callable[[str], None]:
        """Return what looks, at each step of a registration, at what it has staged."""
        since = self._world.suppressed.now()
        mine: list[str] = []

        def at_step(step: str) -> None:
            if step == Step.REGISTER_APPEND:
                new = self._note_staged(model, mine)
                if not mine and len(new) == 1:  # else somebody else registers it, too
                    mine.extend(new)
                for name in mine:
                    rows = self._world.truth.staged[name]
                    self._world.suppressed.check_staged(model, rows, since)

        return at_step

    def _note_staged(self, model: str, again: Sequence[str]) -> list[str]:
        """Note the rows of what is staged and complete, ``again`` or first; return what is new."""
        world, keys = self._world, ModelKeys(model)
        raw, staged, new = world.platform.raw(), world.truth.staged, []
        for name in map(text, raw.hkeys(keys.stagings)):
            where = keys.generation(name)
            if raw.hexists(where.fixed, "complete") and (name not in staged or name in again):
                new += [] if name in staged else [name]
                rows = [row for key in where.every_rows() for row in raw.hkeys(key)]
                in_files = world.people.rows_in_files(model, name)
                staged[name] = frozenset(text(row) for row in rows) | in_files
        return new

    # -- the end ------------------------------------------------------------------------------

    def drain(self, others: Callable[[], None]) -> None:
        """Let a fresh worker finish, and the others between; what cannot be finished yet waits."""
        world = self._world
        store = world.disk.store(lambda _: None)
        worker = ErasureWorker(
            world.log, store, world.people.seals, metrics=world.metrics, sweep_seconds=0.0
        )
        try:
            for _ in range(_ROUNDS):
                turn(worker)
                others()
                if worker.idle():
                    others()  # what a search of registrations has asked for
                    return
        finally:
            worker.close()

    def check(self) -> None:
        """Check the promises about erasures at rest."""
        world = self._world
        suppressions = Suppressions(world.platform.store, self._reader, world.people.seals)
        suppressions.catch_up()
        kept = {
            r.key: json.loads(r.value or b"") for r in world.log.everything(topics.SUPPRESSIONS)
        }
        world.suppressed.check(suppressions.of("", self.subjects).keys(), kept.values())
        receipts = PublishedReceipts(world.platform.store.client, self._reader, None)
        receipts.catch_up()
        for name, receipt in receipts.find(world.suppressed.asked).items():
            first = world.suppressed.finals[name][0]
            assert receipt.value() == first, f"{name}: another receipt than the first counts"
