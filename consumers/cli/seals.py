"""The keys that commits are sealed with, for who only reads: without them there is less to see."""

from __future__ import annotations

from redis.exceptions import NoPermissionError

from lethe.consumers.contract.sealing import SealKeys, read_seal_keys, stored_seal_keys
from lethe.consumers.service.connect import Runtime
from lethe.engine.errors import StoreUnavailable
from lethe.engine.store.store import ModelStore


def seals_of_auditor(runtime: Runtime, store: ModelStore) -> SealKeys | None:
    """Return what opens commits: of the file that is named, or of the store.

    None: there is nothing of either, or this user may not read the store's.

    Raises
    ------
    InvalidData
        The file that is named cannot be used.
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
