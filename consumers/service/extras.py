"""Optional extras of the package: one line to say that one is missing, and how to get it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from lethe.engine.errors import InvalidData


@contextmanager
def extra(name: str, needed_for: str) -> Iterator[None]:
    """Import packages of an extra in a ``with`` block; only imports belong in it.

    Raises
    ------
    InvalidData
        One of them is not installed.
    """
    try:
        yield
    except ModuleNotFoundError as error:
        if error.name is None or error.name.split(".")[0] == "lethe":
            raise
        raise InvalidData(
            f"{needed_for} needs the package {error.name}, which is not installed: "
            f"pip install 'lethe-engine[{name}]'"
        ) from None
