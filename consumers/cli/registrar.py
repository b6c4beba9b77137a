"""What `lethe register`, `unregister` and `recover` have in common: who commits from here."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import TypeVar

from lethe.consumers.registration.recovery import Recovery
from lethe.consumers.registration.register import Registrar
from lethe.consumers.service.connect import Runtime
from lethe.consumers.service.progress import Progress
from lethe.engine.store.store import ModelStore

Committing = TypeVar("Committing")


@contextmanager
def registrar(
    runtime: Runtime, store: ModelStore, progress: Progress, *, lost_keys: bool = False
) -> Iterator[Registrar]:
    """Return a registrar on the servers of a runtime; missing topics are created.

    ``lost_keys``: what the keys here do not open is given up.

    Raises
    ------
    KeyUnknown
        The keys here do not open what models are at.
    """
    with _committing(Registrar, runtime, store, progress, lost_keys=lost_keys) as made:
        yield made


@contextmanager
def recovery(runtime: Runtime, store: ModelStore, progress: Progress) -> Iterator[Recovery]:
    """Return what recovers models, as `registrar`."""
    with _committing(Recovery, runtime, store, progress) as made:
        yield made


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
