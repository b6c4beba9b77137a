"""Small records that heads and events share, and their types."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Literal, TypeAlias

from pydantic import BaseModel, ConfigDict, Field, PrivateAttr, StringConstraints

from lethe.engine.error.budget import over_budget
from lethe.engine.merkle import Frontier
from lethe.engine.store.layout.reading import Count

SECRET_BYTES = 32
"""Length of the secret that salts commitments."""

Status = Literal["ACTIVE", "EMPTY", "INTERCEPT_PENALISED", "UNREGISTERED"]
Finite = Annotated[float, Field(allow_inf_nan=False)]
Hash = Annotated[str, StringConstraints(pattern="^[0-9a-f]{64}$")]
"""A SHA-256 in lower-case hexadecimal."""


class Stored(BaseModel):
    """An immutable record; unknown fields are ignored."""

    model_config = ConfigDict(frozen=True, extra="ignore")


class ErrorRecord(Stored):
    """The ``error`` object of versions and receipts (docs/events.md).

    If the kind is ``unknown``, value, bound and relative are None.
    """

    value: Finite | None
    kind: Literal["exact", "estimate", "certificate", "unknown", "rounded"]
    bound: Finite | None
    certified_version: int | None
    budget: Finite
    relative: Finite | None

    @property
    def over(self) -> bool:
        """Whether it counts as over its budget; an unknown error does."""
        return over_budget(self.relative, self.budget)


class CertificateRecord(Stored):
    """The ``certificate`` object of versions and receipts: what was promised, and what is spent.

    Of a model with noise in its objective (`engine.error.terms.ObjectiveNoise`).
    """

    epsilon: Finite
    delta: Finite
    sigma: Finite
    spent: Finite
    budget: Finite


class OutputCertificateRecord(Stored):
    """The same of a model with noise on its output (`engine.error.terms.OutputNoise`).

    ``epsilon`` is the total of all ``versions``, ``epsilon_spent`` what the ``noised`` so far
    amount to, both at ``delta``. Nothing here depends on the rows: how far theta_exact is from
    retraining would reveal something of them.
    """

    epsilon: Finite
    delta: Finite
    sigma: Finite
    alpha: Finite
    versions: Count
    noised: Count
    epsilon_spent: Finite


Certificate: TypeAlias = CertificateRecord | OutputCertificateRecord


class LogHead(Stored):
    """The head of a log: its size, and the root of the tree over its entries."""

    size: Count
    root: Hash


class ReceiptLog(Stored):
    """A model's log of final receipts: an append-only Merkle tree (`engine.merkle`), as stored.

    The head keeps its frontier, O(log n) hashes, which is all that a commit needs. The hashes of
    all leaves, for proofs, follow from the receipts (`consumers.commits.packed_receipt`), each of
    which has its position. Every version carries the tree's head.
    """

    size: Count = 0
    peaks: tuple[Hash, ...] = ()

    _frontier: Frontier = PrivateAttr()

    def model_post_init(self, context: object) -> None:
        """Check that size and peaks fit together."""
        del context
        self._frontier = Frontier(self.size, tuple(bytes.fromhex(peak) for peak in self.peaks))

    def frontier(self) -> Frontier:
        """Return the frontier."""
        return self._frontier

    def appended(self, leaves: Sequence[bytes]) -> ReceiptLog:
        """Return the log with further leaf hashes."""
        if not leaves:
            return self
        longer = self._frontier.appended(leaves)
        return ReceiptLog(size=longer.size, peaks=tuple(peak.hex() for peak in longer.peaks))

    def head(self) -> LogHead:
        """Return the head that versions carry."""
        return LogHead(size=self.size, root=self._frontier.root.hex())


def outputs(target_names: Sequence[str], class_names: Sequence[str]) -> int:
    """Return the number of columns of theta: two classes need only one."""
    return len(class_names) if len(class_names) > 2 else len(target_names)
