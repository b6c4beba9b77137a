"""How long work tells what it is doing."""

from __future__ import annotations

from collections.abc import Callable

Progress = Callable[[str, int, int], None]
"""Called with what is done, how much of it, and how much there is (0: unknown)."""


def no_progress(_what: str, _done: int, _all: int) -> None:
    """Tell nobody."""
