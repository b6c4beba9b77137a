"""What the topics have shown, as routes ask for it; `consumers.server.index` keeps it on disk."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from lethe.consumers.contract.erasure_events import SubjectErasureCompleted
from lethe.consumers.contract.receipt import Receipt


class Published(Protocol):
    """Receipts and versions, as far as the topics have been read; for any thread."""

    def receipt(self, model_id: str, request_id: str) -> Receipt | None:
        """Return the newest receipt of a request."""
        ...

    def erasure(self, erasure_id: str) -> SubjectErasureCompleted | None:
        """Return the newest combined receipt of an erasure, final or not."""
        ...

    def versions(self, model_id: str, after: int, limit: int) -> Sequence[tuple[int, bytes]]:
        """Return the first versions above number ``after``, ascending: number and JSON value."""
        ...

    def newest(self, model_id: str) -> int:
        """Return the number of a model's newest version; -1 if there is none."""
        ...

    def wait(self, seen: int, seconds: float) -> int:
        """Return how much was added so far, once that is not ``seen``, or after ``seconds``."""
        ...
