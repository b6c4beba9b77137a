"""The names of the four sizes of a refresh (docs/algebra.md, Refreshes)."""

from __future__ import annotations

from enum import StrEnum


class RefreshSize(StrEnum):
    """How much a refresh does, smallest first."""

    COMPLETE = "complete"
    POLISH = "polish"
    COMPACT = "compact"
    REBUILD = "rebuild"
