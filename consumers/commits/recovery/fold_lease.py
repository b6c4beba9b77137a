"""Long folds of one partition run one after another, so that the second worker finds them done.

Only time is at stake. A worker that does not wait repeats the work, with the same outcome; so the
lease is short, nobody checks it before a write, and a store that loses it loses nothing.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable

import redis

from lethe.engine.store.layout.keys import PartitionKeys
from lethe.engine.store.server.connection import reachable, text

SECONDS = 3.0
"""Life of a lease. Its holder renews it after each part of a fold, which takes about a second."""

_POLL_SECONDS = 0.05


class FoldLease:
    """The lease of one partition's long folds, for one fold.

    Parameters
    ----------
    client, keys
        The store, and the partition.
    wait
        Called while another worker folds, so that the caller is not taken for dead.
    """

    def __init__(self, client: redis.Redis, keys: PartitionKeys, wait: Callable[[], None]) -> None:
        self._client = client
        self._key = keys.fold_lease
        self._wait = wait
        self._name = secrets.token_hex(8)
        self._held = False

    def take(self) -> bool:
        """Take the lease once it is free; return whether another worker held it before."""
        if self._held:
            self.renew()
            return False
        waited = False
        while not self._set(only_new=True):
            waited = True
            self._wait()
            time.sleep(_POLL_SECONDS)
        self._held = True
        return waited

    def renew(self) -> None:
        """Extend the lease, if it was taken."""
        if self._held:
            self._set(only_new=False)

    def give_up(self) -> None:
        """Release the lease, if it was taken and is still ours."""
        if not self._held:
            return
        self._held = False
        with reachable(self._client):
            holder = self._client.get(self._key)
            if isinstance(holder, bytes) and text(holder) == self._name:
                self._client.delete(self._key)

    def _set(self, *, only_new: bool) -> bool:
        with reachable(self._client):
            acquired = self._client.set(self._key, self._name, px=int(SECONDS * 1000), nx=only_new)
        return bool(acquired)
