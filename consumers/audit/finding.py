"""What an audit says: one finding a check, and the faults that it counts."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum

_SHOWN = 3


@dataclass
class Faults:
    """What was found wrong: the first few, and how many."""

    shown: list[str] = field(default_factory=list)
    count: int = 0

    def add(self, text: str) -> None:
        """Note one more."""
        self.count += 1
        if self.count <= _SHOWN:
            self.shown.append(text)

    def __bool__(self) -> bool:
        return self.count > 0

    def __str__(self) -> str:
        """Return them in one line."""
        more = self.count - len(self.shown)
        return "; ".join(self.shown) + (f"; and {more} more" if more else "")

    def __iadd__(self, other: Faults) -> Faults:
        """Take another's."""
        for text in other.shown:
            self.add(text)
        self.count += other.count - len(other.shown)
        return self


class Result(StrEnum):
    """What became of a check."""

    OK = "OK"
    FAILED = "FAILED"
    NOT_CHECKED = "NOT CHECKED"


@dataclass(frozen=True, slots=True)
class Finding:
    """One line of an audit."""

    check: str
    result: Result
    detail: str

    @classmethod
    def of(cls, check: str, faults: Faults, fine: str) -> Finding:
        """Return FAILED with the faults, or OK with what was found instead."""
        return cls(check, Result.FAILED, str(faults)) if faults else cls(check, Result.OK, fine)

    @classmethod
    def passed_over(cls, check: str, reason: str) -> Finding:
        """Return NOT CHECKED."""
        return cls(check, Result.NOT_CHECKED, reason)
