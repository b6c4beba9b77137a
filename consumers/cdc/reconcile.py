"""A table against a model: which live rows the table no longer has. Pure."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection, Iterator, Sequence

from lethe.consumers.contract.events import MAX_REQUEST_BYTES, MAX_ROWS, DeletionRequest
from lethe.consumers.contract.requests import in_parts

_ENVELOPE_BYTES = 4096  # of a request, besides the ids of its rows


def missing_rows(live: Collection[str], table: Collection[str]) -> list[str]:
    """Return the live rows that the table lacks, sorted: the same rows make the same requests."""
    return sorted(set(live).difference(table))


def deletions_of(model_id: str, rows: Sequence[str]) -> Iterator[DeletionRequest]:
    """Yield requests to delete rows, each as large as a request may be.

    The id of a request follows from its rows. Sent again, it has no effect, and neither does a
    request for some of those rows.
    """
    for part in in_parts(rows, _bytes_of, MAX_ROWS, MAX_REQUEST_BYTES - _ENVELOPE_BYTES):
        content = json.dumps(["reconcile", model_id, *part]).encode()
        yield DeletionRequest(
            request_id=hashlib.sha256(content).hexdigest()[:32],
            model_id=model_id,
            row_ids=part,
            reason="lethe reconcile",
        )


def _bytes_of(row: str) -> int:
    return len(json.dumps(row, ensure_ascii=False).encode()) + 1
