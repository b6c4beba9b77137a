"""The names of the four kinds of refresh (docs/algebra.md, Refreshes)."""

from __future__ import annotations

from enum import StrEnum


class RefreshKind(StrEnum):
    """How much a refresh does, smallest first."""

    COMPLETE = "complete"
    POLISH = "polish"
    COMPACT = "compact"
    REBUILD = "rebuild"
