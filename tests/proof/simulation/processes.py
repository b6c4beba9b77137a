"""The worker processes of a run: how they are started, what they do, and fresh ones that finish."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from lethe.consumers.contract.sealing import SealKeys
from lethe.consumers.service.loop import TRANSIENT
from lethe.consumers.workers.deletion_worker import BatchLimits, DeletionWorker
from lethe.consumers.workers.erasure_worker import ErasureWorker
from lethe.consumers.workers.refresh_worker import RefreshWorker
from tests.proof.simulation.people import secret_of
from tests.proof.simulation.turns import Actor
from tests.support.platform import Inline

if TYPE_CHECKING:
    from tests.proof.simulation.world import World


class Processes:
    """The deletion and refresh workers of a run; the director gives them their turns."""

    def __init__(self, world: World) -> None:
        self._world = world
        self.workers: list[Actor] = []
        self.refreshers: list[Actor] = []
        self.stopping = False

    def start_worker(self) -> None:
        """Start a deletion worker with the secrets that there are now."""
        world = self._world
        if sum(not actor.done for actor in self.workers) < 3:
            seals = world.people.seals
            self.workers.append(Actor(world.name("worker"), lambda: self._delete(seals)))

    def start_stranger(self) -> None:
        """Start a worker with a secret that nobody else has: it may halt for itself alone."""
        world = self._world
        if sum(not actor.done for actor in self.workers) < 3:
            world.count("worker with a wrong secret")
            seals = SealKeys([secret_of("wrong")])
            self.workers.append(Actor(world.name("stranger"), lambda: self._delete(seals)))
            world.note("start a worker with a wrong secret")

    def start_refresher(self) -> None:
        """Start a refresh worker."""
        world = self._world
        if sum(not actor.done for actor in self.refreshers) < 2:
            self.refreshers.append(Actor(world.name("refresher"), self._refresh))

    def _delete(self, seals: SealKeys) -> None:
        world = self._world
        worker = DeletionWorker(
            world.log,
            world.disk.store(world.point, world.cut),
            seals,
            limits=BatchLimits(records=world.rng.choice([1, 4, 256]), poll_seconds=0.0),
            batching=world.batching,
            metrics=world.metrics,
            now=world.now,
            at_step=lambda step: world.point(f"step: {step}"),
        )
        self.serve(worker)

    def _refresh(self) -> None:
        world = self._world
        worker = RefreshWorker(
            world.log,
            world.disk.store(world.point, world.cut),
            metrics=world.metrics,
            now=world.now,
            at_step=lambda step: world.point(f"step: {step}"),
            computing=Inline(),
            limit=world.limit,
        )
        self.serve(worker)

    def serve(self, worker: DeletionWorker | RefreshWorker | ErasureWorker) -> None:
        """Let a worker take turns until the run heals."""
        world = self._world
        while not self.stopping:
            world.point("turn")
            try:
                worker.run_once(0.0)
            except TRANSIENT:
                worker.recover()
        worker.close()

    def drain(self) -> None:
        """Let fresh workers finish, without faults; no model may be halted for them."""
        world = self._world
        if world.erasures is None:
            self._drain()
        else:
            world.erasures.drain(self._drain)

    def _drain(self) -> None:
        world = self._world
        world.pass_time(world.batching.seconds)  # nothing has to wait for company any longer
        fresh = DeletionWorker(
            world.log,
            world.disk.store(lambda _: None),
            world.people.seals,
            batching=world.batching,
            metrics=world.metrics,
            now=world.now,
        )
        helper = RefreshWorker(
            world.log,
            world.disk.store(lambda _: None),
            metrics=world.metrics,
            now=world.now,
            computing=Inline(),
        )
        try:
            world.platform.drain(fresh, helper)
            assert not len(fresh._halts), f"halted: {fresh._halts._reasons}"
            # `LATE_SECONDS` pass: what an overtaken publisher sent late may be the last of its key.
            fresh._newest.send_due(math.inf)
        finally:
            fresh.close()
            helper.close()
