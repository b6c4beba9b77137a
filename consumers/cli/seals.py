"""The keys that seal commits, for commands that only read: without them they can check less."""

from __future__ import annotations

from redis.exceptions import NoPermissionError

from lethe.consumers.contract.sealing import SealKeys, read_seal_keys, stored_seal_keys
from lethe.consumers.service.connect import Runtime
from lethe.engine.errors import StoreUnavailable
from lethe.engine.store.store import ModelStore


def seals_of_auditor(runtime: Runtime, store: ModelStore) -> SealKeys | None:
    """Return the keys that open commits, from the configured file or else from the store.

    None: there are none, or this user may not read those of the store.

    Raises
    ------
    InvalidData
        The configured file cannot be used.
    """
    path = runtime.settings.seal_key_file
    if path is not None:
        return read_seal_keys(path)
    try:
        return stored_seal_keys(store, make=False)
    except StoreUnavailable as error:
        if isinstance(error.__cause__, NoPermissionError):
            return None
        raise
