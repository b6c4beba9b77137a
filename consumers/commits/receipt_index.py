"""The receipts that the store keeps of a model, and the log that the final ones form.

The head has only the frontier of the receipt log. Every receipt is stored with its place in the
log, so the hashes of all leaves follow from the request index, for proofs and for audits.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from lethe.consumers.commits.packed_receipt import Indexed, unpack
from lethe.engine.errors import CorruptState
from lethe.engine.merkle import leaf_hash
from lethe.engine.store.layout.keys import ModelKeys
from lethe.engine.store.server.connection import reachable, text
from lethe.engine.store.store import ModelStore

_SCAN_COUNT = 1000


def kept_receipts(store: ModelStore, keys: ModelKeys) -> Iterator[tuple[str, Indexed]]:
    """Yield each request of a model's index once, with what the index holds about it.

    Raises
    ------
    CorruptState
        An entry is not a receipt.
    """
    seen: set[str] = set()
    cursor: int = 0
    while True:
        entries: Any
        with reachable(store.client):
            cursor, entries = store.client.hscan(keys.requests, cursor, count=_SCAN_COUNT)
        for name, stored in entries.items():
            request = text(name)
            if request not in seen:  # a scan may hand out an entry twice
                seen.add(request)
                yield request, unpack(stored, keys.model_id, request)
        if cursor == 0:
            return


def leaves_of(store: ModelStore, keys: ModelKeys, size: int) -> list[bytes]:
    """Return the first ``size`` leaf hashes of a model's receipt log. Cost O(all requests).

    Raises
    ------
    CorruptState
        The index does not have every place exactly once.
    """
    leaves: list[bytes | None] = [None] * size
    for request, kept in kept_receipts(store, keys):
        if not kept.final or kept.place >= size:
            continue
        if kept.place < 0 or leaves[kept.place] is not None:
            raise CorruptState(
                f"model {keys.model_id!r}: request {request!r} has place {kept.place} in its "
                "receipt log, which does not exist or is taken twice; run `lethe audit`"
            )
        leaves[kept.place] = leaf_hash(kept.receipt.value())
    missing = leaves.count(None)
    if missing:
        raise CorruptState(
            f"model {keys.model_id!r}: {missing} of the {size} receipts in its log are not in the "
            "store; restore the store, or let the workers fold what it lost from the log"
        )
    return [leaf for leaf in leaves if leaf is not None]
