"""Passes over rows in files on Spark: on a cluster, or on cores of this machine (``local[N]``).

Spark pickles what it sends, so whoever may submit jobs has the rights of its executors.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from importlib.util import find_spec
from itertools import islice
from threading import Lock
from typing import TYPE_CHECKING, Any, TypeVar
from warnings import catch_warnings, simplefilter

from lethe.engine.errors import ClusterUnavailable, InvalidData, LetheError

if TYPE_CHECKING:
    from lethe.engine.rowstore.passes import Block

T = TypeVar("T")

_SILENCE_SECONDS = 30
"""Without a result: then it is asked whether there is any executor."""

_END_SECONDS = 30

_AHEAD = 8
"""Tasks of a core in one job: cores are idle only while the last of a job are computed."""

_SETTINGS = {
    "spark.ui.enabled": "false",  # it tells any user what is computed
    "spark.ui.showConsoleProgress": "false",
    "spark.log.level": "OFF",  # what matters is raised
}
_SETTINGS_HERE = {
    "spark.authenticate": "true",  # any user of this machine reaches loopback
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
}


class SparkWorkers:
    """Computes passes on Spark. Many threads may use it; it connects with the first pass.

    Parameters
    ----------
    master
        Spark's own name of a cluster: ``spark://host:7077``, ``yarn``, ``k8s://...``; or
        ``local[N]``, N cores of this machine.

    Raises
    ------
    InvalidData
        PySpark is not installed.

    Notes
    -----
    Errors are those of `engine.rowstore.passes.Workers`. After `ClusterUnavailable`, the next pass
    connects again.
    """

    def __init__(self, master: str) -> None:
        if find_spec("pyspark") is None:
            raise InvalidData(
                "a pass over rows on Spark needs the package pyspark, which is not installed: "
                "pip install 'lethe-engine[spark]'"
            )
        self._master = master
        self._lock = Lock()
        self._gateway: Any = None
        self._context: Any = None

    def map(
        self, compute: Callable[[Sequence[Block]], T], tasks: Iterable[Sequence[Block]]
    ) -> Iterator[T]:
        """Yield what ``compute`` returns of each task, in their order."""
        from py4j.protocol import Py4JError  # noqa: PLC0415 (an extra, and it takes a second)

        context = self._connected()
        rest = iter(tasks)
        try:
            while some := list(islice(rest, _AHEAD * int(context.defaultParallelism))):
                job = context.parallelize(some, len(some)).map(partial(_outcome, compute))
                for outcome in self._collected(context, job):
                    if isinstance(outcome, LetheError):
                        raise outcome
                    yield outcome
        except (Py4JError, OSError) as error:
            unavailable = self._unavailable(
                f"{_reason(error)}; check that it answers, and the memory of its executors"
            )
            self.close()
            raise unavailable from error

    def close(self) -> None:
        """Disconnect, and end the processes of this machine."""
        with self._lock:
            self._end()

    def _end(self) -> None:
        context, gateway = self._context, self._gateway
        self._context = self._gateway = None
        if context is not None:
            with suppress(Exception):  # it may have ended
                context.stop()
        if gateway is None:
            return
        from pyspark import SparkContext  # noqa: PLC0415 (as above)

        SparkContext._gateway = SparkContext._jvm = None  # else the next one would ask this process
        with suppress(Exception):
            gateway.shutdown()
        gateway.proc.stdin.close()  # then it ends
        try:
            gateway.proc.wait(_END_SECONDS)
        except subprocess.TimeoutExpired:
            gateway.proc.kill()
            gateway.proc.wait()

    def _connected(self) -> Any:
        """Return the context of a cluster."""
        from py4j.protocol import Py4JError  # noqa: PLC0415 (as above)

        with catch_warnings():
            simplefilter("ignore")  # about versions of pandas, which is not used
            import pyspark.testing  # noqa: F401, PLC0415 (the context imports it)
            from pyspark import SparkConf, SparkContext  # noqa: PLC0415 (as above)
            from pyspark.errors import PySparkException  # noqa: PLC0415 (as above)
            from pyspark.java_gateway import launch_gateway  # noqa: PLC0415 (as above)

        here = self._master.startswith("local")
        with self._lock:
            if self._context is None:
                conf = SparkConf().setMaster(self._master).setAppName("lethe")
                conf.setAll([*_SETTINGS.items(), *(_SETTINGS_HERE.items() if here else ())])
                try:
                    self._gateway = launch_gateway(conf, {"stderr": subprocess.DEVNULL})
                    self._context = SparkContext(conf=conf, gateway=self._gateway)
                except (Py4JError, PySparkException, OSError, ValueError) as error:
                    unavailable = self._unavailable(
                        f"{_reason(error)}; check its name, that it answers, and that Java 17 or "
                        "newer is here (JAVA_HOME)"
                    )
                    self._end()  # a process that was started is not left
                    raise unavailable from error
                if here and "PYSPARK_PYTHON" not in os.environ:
                    self._context.pythonExec = sys.executable
            return self._context

    def _collected(self, context: Any, job: Any) -> list[Any]:
        """Return the outcomes of a job. Spark itself waits for ever for executors."""
        with ThreadPoolExecutor(1) as waiting:
            outcomes = waiting.submit(job.collect)
            while True:
                try:
                    found: list[Any] = outcomes.result(timeout=_SILENCE_SECONDS)
                except TimeoutError:
                    if not self._has_executor(context):
                        context.cancelAllJobs()
                        raise self._unavailable("it has no executor; start some") from None
                else:
                    return found

    def _has_executor(self, context: Any) -> bool:
        others = 0 if self._master.startswith("local") else 1  # the driver is counted, too
        return int(context._jsc.sc().getExecutorMemoryStatus().size()) > others

    def _unavailable(self, reason: str) -> ClusterUnavailable:
        return ClusterUnavailable(f"Spark at {self._master}: {reason}")


def _outcome(compute: Callable[[Sequence[Block]], T], blocks: Sequence[Block]) -> T | LetheError:
    """Compute a task; an error of ours is returned, for Spark would pass on its text alone."""
    try:
        return compute(blocks)
    except LetheError as error:
        return error


def _reason(error: BaseException) -> str:
    """Return what happened, in one line: an error of Spark's has all the frames of its stack."""
    try:
        lines = [line.strip() for line in str(error).splitlines()]
    except Exception:  # it is asked of a process that has ended
        lines = []
    told = [line for line in lines if line and not line.startswith(("at ", "File ", ": org."))]
    return f"{type(error).__name__}: {' '.join(told[:2])[:300]}"
