"""A model's log of final receipts: a Merkle tree that only grows (`engine.merkle`).

The head keeps its frontier, O(log n) hashes, which is all that a commit needs; the hashes of all
leaves lie in a list of their own, for proofs. Every version carries the tree's head.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Self

import redis
from pydantic import BaseModel, ConfigDict, StringConstraints, model_validator

from engine.errors import CorruptState
from engine.merkle import HASH_BYTES, Frontier
from engine.store.connection import reachable
from engine.store.keys import ModelKeys
from engine.store.reading import Count

Hash = Annotated[str, StringConstraints(pattern="^[0-9a-f]{64}$")]
"""A SHA-256 in lower-case hexadecimal."""

_READ = 10_000  # hashes a round trip: 320 KB


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
        """Return what versions carry of it."""
        return LogHead(size=self.size, root=self.frontier().root.hex())


def read_leaves(client: redis.Redis, keys: ModelKeys) -> list[bytes]:
    """Return the leaf hashes of a model's log, in order. Cost O(n) times 32 bytes.

    Raises
    ------
    CorruptState
        An entry is no hash.
    """
    leaves: list[bytes] = []
    while True:
        with reachable(client):
            chunk = client.lrange(keys.receipt_log, len(leaves), len(leaves) + _READ - 1)
        found = [leaf for leaf in chunk if isinstance(leaf, bytes) and len(leaf) == HASH_BYTES]
        if len(found) != len(chunk):
            raise CorruptState(f"{keys.receipt_log}: an entry is no hash; restore the store")
        leaves += found
        if len(chunk) < _READ:
            return leaves
