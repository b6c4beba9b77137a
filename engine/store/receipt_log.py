"""A model's log of final receipts: an append-only Merkle tree (`engine.merkle`).

The head keeps its frontier, O(log n) hashes, which is all that a commit needs. The hashes of all
leaves, for proofs, follow from the receipts (`consumers.commits.packed`), each of which has its
position. Every version carries the tree's head.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Self

from pydantic import BaseModel, ConfigDict, StringConstraints, model_validator

from lethe.engine.merkle import Frontier
from lethe.engine.store.reading import Count

Hash = Annotated[str, StringConstraints(pattern="^[0-9a-f]{64}$")]
"""A SHA-256 in lower-case hexadecimal."""


class LogHead(BaseModel):
    """The head of a log: its size, and the root of the tree over its entries."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    size: Count
    root: Hash


class ReceiptLog(BaseModel):
    """The log as its writer needs it: `engine.merkle.Frontier` as it is stored."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    size: Count = 0
    peaks: tuple[Hash, ...] = ()

    @model_validator(mode="after")
    def _fits(self) -> Self:
        self.frontier()
        return self

    @classmethod
    def of(cls, frontier: Frontier) -> ReceiptLog:
        """Return a frontier as it is stored."""
        return cls(size=frontier.size, peaks=tuple(peak.hex() for peak in frontier.peaks))

    def frontier(self) -> Frontier:
        """Return the frontier."""
        return Frontier(self.size, tuple(bytes.fromhex(peak) for peak in self.peaks))

    def appended(self, leaves: Sequence[bytes]) -> ReceiptLog:
        """Return the log with further leaf hashes."""
        return ReceiptLog.of(self.frontier().appended(leaves)) if leaves else self

    def head(self) -> LogHead:
        """Return the head that versions carry."""
        return LogHead(size=self.size, root=self.frontier().root.hex())
