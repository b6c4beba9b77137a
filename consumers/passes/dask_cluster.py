"""Passes over rows in files on Dask: on a cluster at an address, or on processes of this machine.

Dask pickles what it sends, so whoever reaches a scheduler has the rights of its workers. Processes
of this machine are reached on loopback, and with certificates that are made for them.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import CancelledError
from contextlib import suppress
from importlib.metadata import version
from importlib.util import find_spec
from threading import Lock
from typing import TYPE_CHECKING, Any, TypeVar

from lethe.engine.errors import ClusterUnavailable, InvalidData, LetheError

if TYPE_CHECKING:
    from lethe.engine.rowstore.passes import Block

T = TypeVar("T")

_CONNECT_SECONDS = 30
_SILENCE_SECONDS = 30
"""Without a result: then it is asked whether there is any worker."""

_AHEAD = 2
"""Tasks of a thread of the cluster, and as many more: it has the next while one is on its way."""


_WITHOUT_PAGES = {
    "distributed.scheduler.http.routes": [],  # they tell any user what is computed
    "distributed.worker.http.routes": [],
    "distributed.worker.profile.enabled": False,
}


class DaskWorkers:
    """Computes passes on Dask. Many threads may use it; it connects with the first pass.

    Parameters
    ----------
    address
        Of a scheduler: ``tcp://host:8786``, or ``tls://`` with certificates in Dask's own
        configuration. None: processes of this machine.
    processes
        How many of them, with one thread each.

    Raises
    ------
    InvalidData
        Dask is not installed.

    Notes
    -----
    Errors are those of `engine.rowstore.passes.Workers`. After `ClusterUnavailable`, the next pass
    connects again.
    """

    def __init__(self, address: str | None, processes: int = 1) -> None:
        if find_spec("distributed") is None:
            raise InvalidData(
                "a pass over rows on Dask needs the package distributed, which is not installed: "
                "pip install 'lethe-engine[dask]'"
            )
        self._address = address
        self._processes = processes
        self._lock = Lock()
        self._cluster: Any = None
        self._client: Any = None

    def map(
        self, compute: Callable[[Sequence[Block]], T], tasks: Iterable[Sequence[Block]]
    ) -> Iterator[T]:
        """Yield what ``compute`` returns of each task, in their order."""
        client = self._connected()
        try:
            self._check_versions(client)
            yield from _mapped(client, compute, tasks)
        except LetheError:
            raise
        except (OSError, RuntimeError, CancelledError, asyncio.CancelledError) as error:
            if not _is_of_dask(error):
                raise
            self.close()
            raise self._unavailable(
                f"{type(error).__name__}: {' '.join(str(error).split())}; check the scheduler and "
                "the memory of its workers"
            ) from error

    def close(self) -> None:
        """Disconnect, and end the processes of this machine."""
        with self._lock:
            for one in (self._client, self._cluster):
                if one is not None:
                    with suppress(OSError, RuntimeError):
                        one.close(timeout=_CONNECT_SECONDS)
            self._client = self._cluster = None

    def _connected(self) -> Any:
        """Return the client of a cluster that has workers."""
        with self._lock:
            if self._client is not None and self._client.status == "running":
                return self._client
        self.close()
        import dask  # noqa: PLC0415 (as the next)
        from distributed import Client, LocalCluster  # noqa: PLC0415 (an extra, and it takes a second)

        for name in ("distributed", "distributed.client", "tornado.application"):
            logging.getLogger(name).setLevel(logging.CRITICAL)  # what matters is raised
        with self._lock:
            try:
                if self._address is None:
                    with dask.config.set(_WITHOUT_PAGES):
                        self._cluster = LocalCluster(
                            n_workers=self._processes,
                            threads_per_worker=1,
                            host="127.0.0.1",
                            security=True,  # any user of this machine reaches loopback
                            dashboard_address="127.0.0.1:0",
                            memory_limit=None,  # or it would write what it holds to a disk
                            silence_logs=logging.CRITICAL,
                        )
                self._client = Client(
                    self._cluster or self._address, timeout=_CONNECT_SECONDS, set_as_default=False
                )
                self._client.wait_for_workers(1, timeout=_CONNECT_SECONDS)
            except (OSError, ValueError, TypeError, RuntimeError) as error:
                reason = " ".join(str(error).split()) or type(error).__name__
                raise self._unavailable(
                    f"{reason}; check the address, and that it has workers"
                ) from error
            return self._client

    def _check_versions(self, client: Any) -> None:
        """Refuse workers that have another version of Lethe, or none: to unpickle ends those."""
        mine = version("lethe-engine")
        found = client.run(version, "lethe-engine", on_error="return")
        for worker, theirs in found.items():
            if theirs != mine:
                has = f"lethe-engine {theirs}" if isinstance(theirs, str) else "no lethe-engine"
                raise self._unavailable(
                    f"its worker {worker} has {has}, and this process {mine}; install the same "
                    "version there, lethe-engine[dask]"
                )

    def _unavailable(self, reason: str) -> ClusterUnavailable:
        where = f"at {self._address}" if self._address else "of this machine"
        return ClusterUnavailable(f"the Dask cluster {where}: {reason}")


def _mapped(
    client: Any, compute: Callable[[Sequence[Block]], T], tasks: Iterable[Sequence[Block]]
) -> Iterator[T]:
    # A task of its own: each worker gets it once, and it is computed again if that worker is lost.
    held = client.submit(_same, compute, pure=False)
    ahead = _AHEAD * (1 + sum(client.nthreads().values()))
    waiting: deque[Any] = deque()
    try:
        for task in tasks:
            if len(waiting) == ahead:
                yield _result(client, waiting[0])
                waiting.popleft()
            waiting.append(client.submit(_computed, held, task, pure=False))
        while waiting:
            yield _result(client, waiting[0])
            waiting.popleft()
    finally:  # whoever gives up leaves nothing to do
        for future in (*waiting, held):
            future.release()


def _same(compute: Callable[[Sequence[Block]], T]) -> Callable[[Sequence[Block]], T]:
    return compute


def _computed(compute: Callable[[Sequence[Block]], T], blocks: Sequence[Block]) -> T:
    return compute(blocks)


def _result(client: Any, future: Any) -> Any:
    while True:
        try:
            return future.result(timeout=_SILENCE_SECONDS)
        except TimeoutError:
            if not client.nthreads():
                raise ClusterUnavailable(
                    f"the Dask cluster at {client.scheduler.address} has no worker left; start some"
                ) from None


def _is_of_dask(error: BaseException) -> bool:
    return type(error).__module__.partition(".")[0] == "distributed" or not isinstance(
        error, RuntimeError
    )
