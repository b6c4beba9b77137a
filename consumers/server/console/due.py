"""How long ago an erasure was requested, against the days it may take. Pure."""

from __future__ import annotations

import sqlite3
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from lethe.consumers.contract.events import rfc3339

SOON_DAYS = 7
"""An erasure that is due within a week is marked: a rebuild that it waits for may take days."""


@dataclass(frozen=True, slots=True)
class Due:
    """When an erasure must be complete, or how long it took.

    Attributes
    ----------
    days
        Whole days from the request until now, or until it was answered.
    at_least
        Whether the request is not known: it was asked for before the first receipt.
    on
        The day on which it is due.
    late, soon
        Whether it is open and that day has passed, or comes within `SOON_DAYS`.
    """

    days: int
    at_least: bool
    on: str
    late: bool
    soon: bool


def due_of(row: sqlite3.Row, limit: int, now: datetime | None = None) -> Due:
    """Return when an erasure of the index is due, ``limit`` days after it was asked for."""
    now = datetime.now(UTC) if now is None else now
    asked = datetime.fromisoformat(row["asked_at"])
    until = now if row["open"] else datetime.fromisoformat(row["at"])
    try:
        due = asked + timedelta(days=limit)
    except OverflowError:  # asked for at the end of all calendars
        due = datetime.max.replace(tzinfo=UTC)
    late = bool(row["open"]) and now > due
    return Due(
        max(0, (until - asked).days),
        not row["asked"],
        due.date().isoformat(),
        late,
        soon=bool(row["open"]) and not late and due - now <= timedelta(days=SOON_DAYS),
    )


def late_before(limit: int, now: datetime | None = None) -> str:
    """Return the RFC 3339 time before which what is late now was requested."""
    return rfc3339((datetime.now(UTC) if now is None else now) - timedelta(days=limit))
