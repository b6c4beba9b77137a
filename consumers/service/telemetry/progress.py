"""How long-running work reports its progress."""

from __future__ import annotations

from collections.abc import Callable

Progress = Callable[[str, int, int], None]
"""Called with the activity, the amount done, and the total (0: unknown)."""


def no_progress(_what: str, _done: int, _all: int) -> None:
    """Report nothing."""
