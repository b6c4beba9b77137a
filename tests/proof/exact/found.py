"""What streams of changes came to."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field, fields

CHANGES = 200
STOPS = 4


@dataclass(slots=True)
class Found:
    """What streams came to.

    Attributes
    ----------
    streams, same
        Streams, and those with the bytes of a fresh fit, in another order, at every stop.
    in_fractions, equal
        Streams whose end was solved in fractions, and those that are it, rounded once.
    changes, rational
        Changes while every row was as it should be, and those that rational arithmetic decided.
    slips, slips_rational
        The same while a number or a row was 10 to a million times too large.
    bounds, false
        Published errors that were judged, and those that are below the truth.
    refused
        Changes that were refused: none is out of range.
    digest
        SHA-256 of the exact answer of every version, whatever projection was published.
    wrong
        What was not as promised.
    """

    streams: int = 0
    same: int = 0
    in_fractions: int = 0
    equal: int = 0
    changes: int = 0
    rational: int = 0
    slips: int = 0
    slips_rational: int = 0
    bounds: int = 0
    false: int = 0
    refused: int = 0
    digest: str = ""
    wrong: list[str] = field(default_factory=list)

    def add(self, other: Found) -> None:
        """Count other streams, too; the digest is that of both, in order."""
        for one in fields(self):
            value = getattr(self, one.name)
            if one.name == "digest":
                self.digest = hashlib.sha256((value + other.digest).encode()).hexdigest()
            else:
                setattr(self, one.name, value + getattr(other, one.name))
