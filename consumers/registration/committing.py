"""A `Registrar` or a `Recovery` on the servers of a runtime."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from contextlib import closing, contextmanager
from typing import TypeVar

from lethe.consumers.service.connect import Runtime
from lethe.consumers.service.telemetry.progress import Progress
from lethe.engine.store.store import ModelStore

Committing = TypeVar("Committing")


@contextmanager
def committing(
    make: Callable[..., Committing],
    runtime: Runtime,
    store: ModelStore,
    progress: Progress,
    *,
    lost_keys: bool = False,
    accepting: Collection[str] = (),
) -> Iterator[Committing]:
    """Yield what ``make`` (`Registrar`, `Recovery`) returns; missing topics are created.

    ``lost_keys``: commits that the keys here cannot open are given up. ``accepting``: topics that
    may be others than those that the store knows.

    Raises
    ------
    KeyUnknown
        The keys here cannot open the newest commits of the models.
    """
    runtime.ensure_topics(accepting)
    seals = runtime.seals(store, lost=lost_keys)
    with closing(runtime.log.producer()) as producer, closing(runtime.log.reader()) as reader:
        yield make(
            store,
            producer,
            reader,
            seals,
            signer=runtime.signer(),
            trusted=runtime.trusted(),
            progress=progress,
        )
