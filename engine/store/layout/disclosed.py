"""How the store keeps what versions have disclosed of a row: a field of `DatasetKeys.disclosed`.

It has 25 bytes for each version that changed the row: the number of the version (uint64), what
became of the row (one letter), and Cook's distance and length of `engine.disclosure.Price`
(float64; NaN: not known). Commits append to it, and nothing of a row's values is in it.
"""

from __future__ import annotations

import math
import struct
from dataclasses import dataclass
from enum import StrEnum

from lethe.engine.errors import CorruptState

_ENTRY = struct.Struct("<Qcdd")


class RowFate(StrEnum):
    """What a version did to a row."""

    DELETED = "deleted"
    CORRECTED = "corrected"
    INSERTED = "inserted"


_BY_LETTER = {fate[0].encode(): fate for fate in RowFate}


@dataclass(frozen=True, slots=True)
class Disclosure:
    """What a version discloses of a row, together with the version before it.

    ``distance`` and ``length`` as in `engine.disclosure.Price`; None: not known.
    """

    version: int
    fate: RowFate
    distance: float | None
    length: float | None

    def pack(self) -> bytes:
        """Return it as it is stored."""
        numbers = (math.nan if n is None else n for n in (self.distance, self.length))
        return _ENTRY.pack(self.version, self.fate[0].encode(), *numbers)


def unpack_disclosures(stored: bytes, what: str) -> list[Disclosure]:
    """Return what is stored of a row, in the order of the versions.

    Raises
    ------
    CorruptState
        It is nothing that `Disclosure.pack` wrote.
    """
    found: list[Disclosure] = []
    if len(stored) % _ENTRY.size == 0:
        for version, letter, distance, length in _ENTRY.iter_unpack(stored):
            numbers = (None if math.isnan(n) else n for n in (distance, length))
            if letter in _BY_LETTER:
                found.append(Disclosure(version, _BY_LETTER[letter], *numbers))
    if len(found) * _ENTRY.size != len(stored):
        raise CorruptState(f"{what}: its disclosures do not parse; run `lethe check`")
    return found
