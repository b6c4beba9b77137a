"""The end of a run: whether everything is decided, and the last rebuilds."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Collection, Sequence

import redis

from lethe.consumers.contract import topics
from lethe.consumers.log.base import Log, Producer, Reader
from lethe.consumers.versions.refresh_schedule import is_stuck
from lethe.engine.errors import Unavailable
from lethe.engine.refresh.size import RefreshSize
from lethe.engine.store.layout.keys import ModelKeys, PartitionKeys
from lethe.engine.store.server.connection import connect
from lethe.engine.store.store import ModelStore
from tests.proof.chaos.crew import wait_until
from tests.proof.chaos.load import Plan, refresh_order

HEAL_SECONDS = 300.0
_TIMER_SECONDS = 15.0
_REQUESTS = (topics.ERASURES, topics.REFRESH_JOBS, topics.DELETIONS, topics.ROW_CHANGES)


class Rest:
    """Waits until a platform is at rest.

    ``waiting`` returns what has no final receipt, ``stores`` a store with connections of its own,
    and ``url`` is its address.
    """

    def __init__(
        self,
        log: Log,
        plans: Sequence[Plan],
        waiting: Callable[[], Collection[object]],
        stores: Callable[[], ModelStore],
        url: str,
    ) -> None:
        self._log = log
        self._plans = plans
        self._waiting = waiting
        self._stores = stores
        self._url = url
        self._behind: list[str] = []

    def wait(self) -> None:
        """Wait until everything is decided.

        Raises
        ------
        TimeoutError
            It is not in time.
        """
        raw, store, reader = connect(self._url), self._stores(), self._log.reader()
        producer, deadline = self._log.producer(), time.monotonic() + HEAL_SECONDS
        due = time.monotonic() + _TIMER_SECONDS
        try:
            while not self._at_rest(raw, store, reader) or self._waiting():
                if time.monotonic() > deadline:
                    raise TimeoutError(f"not everything is decided within {HEAL_SECONDS:g} s")
                if time.monotonic() > due:
                    due = time.monotonic() + _TIMER_SECONDS
                    self._order_what_is_stuck(store, producer)
        finally:
            for one in (raw, store, reader, producer):
                one.close()

    def _order_what_is_stuck(self, store: ModelStore, producer: Producer) -> None:
        """Do what the timer of `lethe refresh --due` does (docs/operations.md).

        A refresh whose worker was killed three times has failed, and no commit comes any more that
        orders another one.
        """
        with contextlib.suppress(Unavailable):
            for plan in self._plans:
                state = store.load_model(plan.name)
                if is_stuck(state):
                    generation = state.meta.generation
                    order = refresh_order(RefreshSize.REBUILD, plan.name, generation, state.version)
                    producer.publish([order])

    def _at_rest(self, raw: redis.Redis, store: ModelStore, reader: Reader) -> bool:
        """Return whether every record is passed and nothing waits in the store."""
        time.sleep(0.2)
        with contextlib.suppress(Unavailable, redis.ConnectionError, redis.TimeoutError):
            self._behind = [
                *(
                    f"{partition} at {passed} of {end}"
                    for topic in _REQUESTS
                    for partition, end in reader.ends(reader.partitions(topic)).items()
                    if end > (passed := store.cursors.watermark(str(partition)) or 0)
                ),
                *(
                    f"{partition} at {cursors} of {end}"
                    for partition, end in reader.ends(reader.partitions(topics.COMMITS)).items()
                    if end > (cursors := store.cursors.read(PartitionKeys(partition.index))).lowest
                ),
                *(
                    f"deferred requests of {plan.name}"
                    for plan in self._plans
                    if raw.hlen(ModelKeys(plan.name).deferred)
                ),
            ]
            return not self._behind
        return False

    def missing(self) -> str:
        """Return what was not at rest when it was last looked at."""
        waiting = sorted(map(str, self._waiting()))
        return (
            f"{len(waiting)} requests without a final receipt, such as {waiting[:3]}; "
            f"{self._behind}"
        )

    def rebuild(self) -> None:
        """Rebuild every model, so that nothing derived from deleted rows is left; wait for that."""
        store, producer = self._stores(), self._log.producer()
        before = {}
        for plan in self._plans:
            state = store.load_model(plan.name)
            if state.meta.rows_live:
                before[plan.name] = state.meta.generation
                order = refresh_order(
                    RefreshSize.REBUILD, plan.name, before[plan.name], state.version
                )
                producer.publish([order])
        wait_until(
            lambda: all(
                store.load_model(name).meta.generation > old for name, old in before.items()
            ),
            HEAL_SECONDS,
            "the last rebuilds",
        )
        store.close()
        producer.close()
        self.wait()
