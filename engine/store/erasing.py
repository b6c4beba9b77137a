"""Step 8: erase the records of deleted rows, and what a refresh left behind."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

import redis

from engine.store import keys
from engine.store.connection import reachable, text
from engine.store.keys import GenerationKeys, ModelKeys
from engine.store.lookup import CHUNK
from engine.store.row_keys import RowKeys

Moment = Callable[[], None]
"""Called between two writes: crash tests stop there."""


def pass_by() -> None:
    """Nothing happens at this moment."""


class Eraser:
    """Removes from one Redis or Valkey what nobody needs any more; one thread uses an instance."""

    def __init__(self, client: redis.Redis, row_keys: RowKeys | None) -> None:
        self._client = client
        self._row_keys = row_keys

    def waiting(self, live: GenerationKeys) -> frozenset[str]:
        """Return the rows of a generation that are deleted, and perhaps not yet erased."""
        prefix = f"{live.name}/"
        with reachable(self._client):
            waiting = self._client.smembers(ModelKeys(live.tag).erase)
        names = (text(entry) for entry in waiting)
        return frozenset(name[len(prefix) :] for name in names if name.startswith(prefix))

    def erase(
        self,
        where: ModelKeys,
        *,
        erased: Moment = pass_by,
        discard: Moment = pass_by,
        discarded: Moment = pass_by,
    ) -> int:
        """Erase (step 8) the records of deleted rows. Idempotent; a restart finishes it.

        ``erased``, ``discard`` and ``discarded`` are called when records are gone and still named,
        and before and after the keys of a former generation go.

        Returns
        -------
        int
            How many were waiting.
        """
        done = 0
        more = True
        with reachable(self._client):
            while more:
                pipeline = self._client.pipeline(transaction=False)
                pipeline.srandmember(where.erase, CHUNK)
                pipeline.smembers(where.discarded)
                waiting, former = pipeline.execute()
                if waiting:
                    self._erase_rows(where, waiting, erased)
                for name in former:
                    discard()
                    self._discard(where, text(name), discarded)
                done += len(waiting)
                more = len(waiting) == CHUNK  # fewer: they were all
        return done

    def _erase_rows(self, where: ModelKeys, waiting: Sequence[bytes], erased: Moment) -> None:
        pipeline = self._client.pipeline(transaction=False)
        rows: dict[str, list[str]] = {}
        for entry in waiting:
            generation, _, row = text(entry).partition("/")
            rows.setdefault(generation, []).append(row)
            pipeline.hdel(where.generation(generation).rows(keys.shard_of(row)), row)
        if self._row_keys is not None:  # the keys first: they shred the copies elsewhere
            for generation, named in rows.items():
                self._row_keys.drop(where.generation(generation), named)
        pipeline.execute()
        erased()
        # Not in the same pipeline: a failed HDEL would not keep the SREM from happening.
        self._forget(where.erase, *waiting)

    def _forget(self, names: str, *erased: bytes | str) -> None:
        """Note the time, for the files' sake, and take the names off the list of what to erase."""
        pipeline = self._client.pipeline(transaction=False)
        pipeline.hset(keys.ERASURES, "last", repr(time.time()))
        pipeline.srem(names, *erased)
        pipeline.execute()

    def _discard(self, where: ModelKeys, name: str, discarded: Moment) -> None:
        """Remove what a swap left behind: ``gen:<name>`` or ``data:<name>``."""
        kind, _, rest = name.partition(":")
        old = where.generation(rest) if kind == "gen" else where.dataset(rest)
        if self._row_keys is not None and isinstance(old, GenerationKeys):
            self._row_keys.retire_generation(old)
        self._client.unlink(*old.everything())
        discarded()
        self._forget(where.discarded, name)
