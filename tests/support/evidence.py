"""The receipt log, checked from what was published and from what is stored."""

from __future__ import annotations

from typing import Any

from lethe.consumers.commits.packed_receipt import unpack
from lethe.engine.merkle import Frontier, leaf_hash
from lethe.engine.store.layout.records import LogHead
from lethe.engine.store.server.connection import text
from tests.support.platform import Platform


def published_entries(platform: Platform, model_id: str) -> dict[str, bytes]:
    """Return the leaf hashes of the published final receipts, in order, by request.

    They are read from the topic alone. Receipts of before the model was registered are no part
    of its log.
    """
    known: dict[str, bytes] = {}
    for receipt, value in platform.published_receipts(model_id):
        outside = receipt.code in ("REQUEST_ID_CONFLICT", "UNKNOWN_MODEL")
        if receipt.final and not outside:
            first = known.setdefault(receipt.request_id, value)
            assert first == value, f"{receipt.request_id}: two final receipts"
    return {request_id: leaf_hash(value) for request_id, value in known.items()}


def stored_leaves(platform: Platform, model_id: str = "m") -> list[bytes]:
    """Return the leaf hashes that follow from the request index: final receipts by place."""
    stored: Any = platform.raw().hgetall(platform.load(model_id).keys.requests)
    known = [unpack(value, model_id, text(name)) for name, value in stored.items()]
    finals = sorted((one for one in known if one.final), key=lambda one: one.place)
    assert [one.place for one in finals] == list(range(len(finals))), "places are not dense"
    return [leaf_hash(one.receipt.value()) for one in finals]


def check_receipt_log(platform: Platform, model_id: str) -> None:
    """Every version names the log of the receipts that were published up to it, none left out."""
    state = platform.load(model_id)
    entries = published_entries(platform, model_id)
    leaves = list(entries.values())
    stored = stored_leaves(platform, model_id)
    log = state.meta.receipt_log
    assert log is not None
    assert stored == leaves, "the stored log is not the published receipts"
    assert log.frontier() == Frontier().appended(leaves), "the head is not that of the stored log"
    size = 0
    for version in platform.versions(model_id):
        head = version.receipt_log
        assert head is not None, f"version {version.version} names no receipt log"
        assert head.size >= size, f"version {version.version}: its receipt log went back"
        size = head.size
        root = Frontier().appended(leaves[:size]).root.hex()
        assert head == LogHead(size=size, root=root), f"version {version.version}: another log"
        own = {entries[request_id] for request_id in version.request_ids}
        assert own <= set(leaves[:size]), f"version {version.version} lacks its own receipts"
