"""Runs the workers of a process, each in a thread with a store of its own."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, TypeVar

from lethe.consumers.cdc.mapping import Mapping
from lethe.consumers.contract import topics
from lethe.consumers.contract.sealing import handover
from lethe.consumers.contract.signatures import Signer, TrustedKeys
from lethe.consumers.deletions.authenticate import RequestKeys, read_request_keys
from lethe.consumers.deletions.batching import Batching
from lethe.consumers.log.base import Record
from lethe.consumers.refresh.queue import RefreshLimit
from lethe.consumers.service.configuration.settings import Settings
from lethe.consumers.service.configuration.signing_keys import request_signer
from lethe.consumers.service.connect import Runtime
from lethe.consumers.service.extras import extra
from lethe.consumers.service.telemetry.health import Health
from lethe.consumers.service.telemetry.logs import logger
from lethe.consumers.service.telemetry.metrics import Metrics
from lethe.consumers.service.telemetry.steps import AtStep, no_hook
from lethe.consumers.workers.deletion_worker import BatchLimits, DeletionWorker
from lethe.consumers.workers.drained import Drained
from lethe.consumers.workers.erasure_worker import ErasureWorker
from lethe.consumers.workers.intake_worker import IntakeWorker, read_shapes
from lethe.consumers.workers.leases import topics_by_role
from lethe.consumers.workers.partition_worker import PartitionWorker, Reporting
from lethe.consumers.workers.refresh_worker import RefreshWorker
from lethe.engine.errors import InvalidData, LetheError, RefreshFailed, Unavailable
from lethe.engine.store.server.connection import refuse_eviction
from lethe.engine.store.store import ModelStore

if TYPE_CHECKING:
    from lethe.consumers.service.telemetry.lineage import RefreshLineage

WORKERS = ("deletions", "refresh", "erasures")
"""The names of the workers, as ``lethe work`` takes them."""

POLL_SECONDS = 0.1
"""Pause between two looks at the workers, or at what is left to do."""

REFRESH_LANES = 2
"""Refreshes at once in a process: one of any size, and beside it a small one."""

_PATIENCE_SECONDS = 10.0  # before giving up on ever being idle: nothing happens, or nothing will
_FIRST_PAUSE = 0.1
_LONGEST_PAUSE = 5.0

_REFRESHING = frozenset({"deletions", "refresh"})
"""Workers that together do every refresh that is needed."""

T = TypeVar("T")


class ModelsHalted(LetheError):
    """Models are halted, and nothing else is left to do; a person has to act."""

    code = "HALTED"
    exit_code = 1


class _Patience:
    """Ends once the same thing has been in the way for some time."""

    def __init__(self) -> None:
        self._what: object = None
        self._since = 0.0

    def ends(self, what: object) -> bool:
        """Note what is in the way now, if anything; return whether it was for too long."""
        now = time.monotonic()
        if what != self._what:
            self._what, self._since = what, now
        return bool(what) and now - self._since > _PATIENCE_SECONDS


def _store_of(runtime: Runtime) -> ModelStore:
    """Return a worker's store, which must not remove keys by itself.

    Raises
    ------
    InvalidData
        Its ``maxmemory-policy`` evicts.
    """
    store = runtime.store()
    refuse_eviction(store.client)
    return store


class Supervisor:
    """Runs workers until ``stop`` is set, which also happens when one of them fails.

    Parameters
    ----------
    names
        Which workers to run: of `WORKERS`, and ``intake``.
    impatient
        Whether a server that is down when the workers start is an error; by default the workers
        wait for it.
    at_step
        The hook of the deletion and of the erasure worker (`consumers.service.telemetry.steps`).
    mapping
        What the intake worker reads.
    """

    def __init__(
        self,
        names: Sequence[str],
        *,
        impatient: bool = False,
        at_step: AtStep = no_hook,
        mapping: Mapping | None = None,
    ) -> None:
        self.stop = threading.Event()
        self.health = {name: Health() for name in names}
        self.metrics = Metrics()
        for name, health in self.health.items():
            self.metrics.watch(name, health)
        self._impatient = impatient
        self._at_step = at_step
        self._received: Callable[[Sequence[Record]], None] | None = None
        self.mapping = mapping
        self._log = logger("work")
        self._failures: list[BaseException] = []

    @contextmanager
    def running(self, runtime: Runtime) -> Iterator[None]:
        """Run the workers during a ``with`` block; raise the error that ended one, if any."""
        self._drop_erasures(runtime)
        with self._traced(runtime.settings):
            self._reach(runtime.ensure_topics)
            threads = [
                threading.Thread(target=self._run, args=(runtime, name), name=f"lethe-{name}")
                for name in self.health
            ]
            for thread in threads:
                thread.start()
            try:
                yield
            finally:
                self.stop.set()
                for thread in threads:
                    thread.join()
        self._raise_failure()

    @contextmanager
    def _traced(self, settings: Settings) -> Iterator[None]:
        """Trace the deletion worker during a ``with`` block, if the settings say so."""
        if not (settings.otel and "deletions" in self.health):
            yield
            return
        with extra("otel", "LETHE_OTEL"):
            from lethe.consumers.service.telemetry.tracing import open_tracing  # noqa: PLC0415 (an extra)
        tracing, close = open_tracing()
        hook = self._at_step

        def at_step(step: str) -> None:
            hook(step)
            tracing.at_step(step)

        self._at_step, self._received = at_step, tracing.received
        try:
            yield
        finally:
            close()

    def wait_until_idle(self, drained: Drained, *, poll_seconds: float = POLL_SECONDS) -> bool:
        """Return True once nothing is left to do, False if stopped before.

        Raises
        ------
        ModelsHalted
            Models are halted, and nothing else is left to do.
        RefreshFailed
            A refresh is needed that no worker will do; an operator has to act.
        Exception
            Whatever has ended a worker.
        """
        no_refresh, at_rest = _Patience(), _Patience()
        while not self.stop.wait(poll_seconds):
            idle, needed, halted, busy = False, "", 0, False
            try:
                idle = self._is_drained(drained)
                if idle and self.health.keys() >= _REFRESHING:
                    needed = drained.refreshes()
                halted = int(self._measured("lethe_halted_models"))
                busy = halted > 0 and self._is_busy(drained)
            except Unavailable as error:
                self._log.warning("waiting", action="retry", reason=str(error))
                self._pause(5)
            if idle and not needed and not halted:
                return True
            if no_refresh.ends(needed):
                raise RefreshFailed(needed)
            won = self._measured("lethe_commits_total", outcome="won") if halted else 0.0
            if at_rest.ends((halted, won) if halted and not busy else None):
                raise ModelsHalted(
                    f"halted models: {halted}; everything else is done. The log lines with "
                    "action=halt say why, `lethe check` says what to do"
                )
        self._raise_failure()
        return False

    def _is_drained(self, drained: Drained) -> bool:
        """Return whether everything that the workers of this process read is processed."""
        # Erasures first: what they ask of models is in the deletions topic before they count as
        # done. Then jobs: the result of one is there before it counts as done, too.
        read_by = topics_by_role()
        workers = [name for name in read_by if name in self.health]
        return (
            ("erasures" not in workers or drained.registrations())
            and drained.changes()
            and drained.topics(topic for name in workers for topic in read_by[name])
            and ("deletions" not in workers or drained.commits())
        )

    def _is_busy(self, drained: Drained) -> bool:
        """Return whether there is work that shows in no commit until it is done."""
        return (
            self._measured("lethe_held_requests") > 0
            or not drained.changes()
            or ("refresh" in self.health and not drained.topics([topics.REFRESH_JOBS]))
        )

    def _measured(self, name: str, **labels: str) -> float:
        return self.metrics.registry.get_sample_value(name, labels) or 0.0

    def _raise_failure(self) -> None:
        if self._failures:
            raise self._failures[0]

    def _run(self, runtime: Runtime, name: str) -> None:
        """Create a worker and run it; a failure of the worker stops them all."""
        try:
            store = self._reach(partial(_store_of, runtime))
            if store is None:
                return
            worker = self._reach(partial(self._worker, runtime, store, name))
            if worker is None:
                return
            try:
                worker.run(self.stop)
            finally:
                worker.close()
        except BaseException as error:  # raised again in the thread that waits
            self._failures.append(error)
        finally:
            self.stop.set()

    def _worker(self, runtime: Runtime, store: ModelStore, name: str) -> PartitionWorker:
        log, settings = runtime.log, runtime.settings
        reporting = Reporting(metrics=self.metrics, health=self.health[name], role=name)
        if name == "intake" and self.mapping is not None:
            shapes, signer = read_shapes(store, self.mapping), request_signer(settings)
            return IntakeWorker(log, store, self.mapping, shapes, signer=signer, **reporting)
        if name == "refresh":
            return RefreshWorker(
                log,
                store,
                lanes=[_store_of(runtime) for _ in range(REFRESH_LANES)],
                memory=math.inf if settings.refresh_memory is None else settings.refresh_memory,
                limit=RefreshLimit(settings.refresh_min_interval),
                lineage=_lineage(settings),
                **reporting,
            )
        reporting["at_step"] = self._at_step
        if name == "erasures":
            return ErasureWorker(
                log,
                store,
                runtime.seals(store),
                request_keys=self._request_keys(runtime),
                signer=partial(self._request_signer, runtime),
                trusted=_trusted(runtime),
                **reporting,
            )
        seals, file = runtime.seals(store), settings.seal_key_file
        warning = None if file is None else handover(store, seals, file)
        if warning is not None:
            self._log.warning(warning, action="seal")
        return DeletionWorker(
            log,
            store,
            seals,
            signer=runtime.signer(),
            limits=BatchLimits(records=settings.batch_records, rows=settings.batch_rows),
            batching=Batching(settings.min_batch, settings.max_wait),
            request_keys=self._request_keys(runtime),
            trusted=_trusted(runtime),
            received=self._received,
            **reporting,
        )

    def _request_keys(self, runtime: Runtime) -> RequestKeys | None:
        """Return whose requests count: also those that the erasure worker signs."""
        path = runtime.settings.request_keys
        if path is None:
            return None
        keys = read_request_keys(path)
        self._log.info("requests must be signed", action="request_keys", keys=len(keys))
        signer, trusted = runtime.signer()(), runtime.trusted()
        own = TrustedKeys() if signer is None else TrustedKeys.of([signer.public])
        return keys.with_unrestricted(own if trusted is None else own | trusted)

    def _request_signer(self, runtime: Runtime) -> Signer | None:
        """Return what the erasure worker signs its requests with, if requests must be signed."""
        settings = runtime.settings
        if settings.request_keys is None:
            return None
        return request_signer(settings) or runtime.signer()()

    def _drop_erasures(self, runtime: Runtime) -> None:
        """Do without the erasure worker if its requests would have to be signed and cannot be.

        Raises
        ------
        InvalidData
            It is the only one.
        """
        signed = runtime.settings.request_keys is not None
        if "erasures" not in self.health or not signed or self._request_signer(runtime):
            return
        advice = (
            "requests must be signed, and the erasure worker has no key to sign its own with: set "
            "LETHE_REQUEST_SIGNING_KEY or LETHE_SIGNING_KEY (`lethe key new` makes one)"
        )
        if len(self.health) == 1:
            raise InvalidData(advice)
        self._log.warning(f"{advice}; erasures wait", action="no_erasures")
        del self.health["erasures"]

    def _reach(self, act: Callable[[], T]) -> T | None:
        """Retry an action until the servers that it needs are up; None if stopped before."""
        attempt = 0
        while not self.stop.is_set():
            try:
                return act()
            except Unavailable as error:
                if self._impatient:
                    raise
                for health in self.health.values():
                    health.trouble(str(error))
                self._log.warning("waiting", action="retry", reason=str(error))
                self._pause(attempt)
                attempt += 1
        return None

    def _pause(self, attempt: int) -> None:
        """Wait before another try; a signal ends the wait."""
        self.stop.wait(min(_FIRST_PAUSE * 2 ** min(attempt, 10), _LONGEST_PAUSE))


def _trusted(runtime: Runtime) -> TrustedKeys | None:
    """Return whose commits and receipts a worker believes.

    Raises
    ------
    InvalidData
        Keys are trusted and the worker has none to sign with: nobody would believe what it writes.
    """
    trusted = runtime.trusted()
    if trusted is not None and runtime.signer()() is None:
        raise InvalidData(
            "LETHE_TRUSTED_KEYS is set, and this worker has no key to sign with, so that nobody "
            "would believe its commits and receipts: set LETHE_SIGNING_KEY (`lethe key new` makes "
            "one, whose public key goes into the trusted file)"
        )
    return trusted


def _lineage(settings: Settings) -> RefreshLineage | None:
    """Return what is told of refreshes, if the settings say so."""
    if not settings.openlineage:
        return None
    with extra("openlineage", "LETHE_OPENLINEAGE"):
        from lethe.consumers.service.telemetry.lineage import RefreshLineage  # noqa: PLC0415 (an extra)
    return RefreshLineage()
