"""What an audit reports: one finding per check, and the faults behind it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import StrEnum

_SHOWN = 3


@dataclass
class Faults:
    """The faults of a check: the first few, and how many there are."""

    shown: list[str] = field(default_factory=list)
    count: int = 0

    def add(self, text: str) -> None:
        """Add one more."""
        self.count += 1
        if self.count <= _SHOWN:
            self.shown.append(text)

    def __bool__(self) -> bool:
        return self.count > 0

    def __str__(self) -> str:
        """Return the faults in one line."""
        more = self.count - len(self.shown)
        return "; ".join(self.shown) + (f"; and {more} more" if more else "")

    def __iadd__(self, other: Faults) -> Faults:
        """Add the faults of another."""
        for text in other.shown:
            self.add(text)
        self.count += other.count - len(other.shown)
        return self


class Result(StrEnum):
    """The outcome of a check.

    ``NOT_PROVED``: no trusted key vouches for something that was read, or something that versions
    name is not there. ``NOT_CHECKED``: the auditor lacks what the check needs.
    """

    OK = "OK"
    FAILED = "FAILED"
    NOT_PROVED = "NOT PROVED"
    NOT_CHECKED = "NOT CHECKED"


class Verdict(StrEnum):
    """What all findings of an audit come to."""

    HOLDS = "no check failed"
    NOT_PROVED = "NOT PROVED"
    REFUSED = "REFUSED"

    @classmethod
    def of(cls, findings: Sequence[Finding]) -> Verdict:
        """Return the verdict; one failed check is enough to refuse."""
        results = {one.result for one in findings}
        if Result.FAILED in results:
            return cls.REFUSED
        return cls.NOT_PROVED if Result.NOT_PROVED in results else cls.HOLDS


@dataclass(frozen=True, slots=True)
class Finding:
    """One line of an audit."""

    check: str
    result: Result
    detail: str

    @classmethod
    def of(cls, check: str, faults: Faults, fine: str) -> Finding:
        """Return FAILED with the faults, or OK with ``fine`` as the detail."""
        return cls(check, Result.FAILED, str(faults)) if faults else cls(check, Result.OK, fine)

    @classmethod
    def unproved(cls, check: str, reason: str) -> Finding:
        """Return NOT PROVED with the reason."""
        return cls(check, Result.NOT_PROVED, reason)

    @classmethod
    def passed_over(cls, check: str, reason: str) -> Finding:
        """Return NOT CHECKED with the reason."""
        return cls(check, Result.NOT_CHECKED, reason)
