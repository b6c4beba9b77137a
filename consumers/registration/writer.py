"""A `Registrar` or a `Recovery` on the servers of a runtime."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import TypeVar

from lethe.consumers.registration.log_loss import Recovery
from lethe.consumers.registration.register import Registrar
from lethe.consumers.service.connect import Runtime
from lethe.consumers.service.telemetry.progress import Progress
from lethe.engine.store.store import ModelStore

Committing = TypeVar("Committing")


@contextmanager
def registrar(
    runtime: Runtime, store: ModelStore, progress: Progress, *, lost_keys: bool = False
) -> Iterator[Registrar]:
    """Yield a registrar on the servers of a runtime; missing topics are created.

    ``lost_keys``: commits that the keys here cannot open are given up.

    Raises
    ------
    KeyUnknown
        The keys here cannot open the newest commits of the models.
    """
    with _committing(Registrar, runtime, store, progress, lost_keys=lost_keys) as opened:
        yield opened


@contextmanager
def recovery(runtime: Runtime, store: ModelStore, progress: Progress) -> Iterator[Recovery]:
    """Yield a `Recovery`, as `registrar` does."""
    with _committing(Recovery, runtime, store, progress) as opened:
        yield opened


@contextmanager
def _committing(
    make: Callable[..., Committing],
    runtime: Runtime,
    store: ModelStore,
    progress: Progress,
    *,
    lost_keys: bool = False,
) -> Iterator[Committing]:
    runtime.ensure_topics()
    seals = runtime.seals(store, lost=lost_keys)
    with ExitStack() as stack:
        producer, reader = runtime.log.producer(), runtime.log.reader()
        stack.callback(producer.close)
        stack.callback(reader.close)
        yield make(
            store,
            producer,
            reader,
            seals,
            signer=runtime.signer(),
            trusted=runtime.trusted(),
            progress=progress,
        )
