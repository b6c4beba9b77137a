"""Files of ids, one a line."""

from __future__ import annotations

import sys
from pathlib import Path

from lethe.engine.errors import InvalidRequest
from lethe.engine.ids import MAX_ID_LENGTH

_BYTES_EACH = 4 * MAX_ID_LENGTH + 2
"""The most that an id takes, with its line end."""


def most_bytes(most: int, ids: int = 1) -> int:
    """Return the most that ``most`` lines of ``ids`` ids take, with a byte order mark."""
    return most * ids * _BYTES_EACH + 3


def read_lines(path: Path, most: int, what: str, *, ids: int = 1) -> tuple[str, ...]:
    """Return the lines of a file, or of standard input (``-``), without those that are blank.

    Parameters
    ----------
    path, what
        The file, and what a line names.
    most, ids
        How many lines it may have, and how many ids there may be in one.

    Raises
    ------
    InvalidRequest
        It cannot be read, is larger than that, is not UTF-8, or names nothing.
    """
    limit = most_bytes(most, ids)
    try:
        if str(path) == "-":
            content = sys.stdin.buffer.read(limit + 1)
        else:
            with path.open("rb") as file:
                content = file.read(limit + 1)
    except OSError as error:
        raise InvalidRequest(f"{path}: cannot be read ({error.strerror}); check the path") from None
    if len(content) > limit:
        raise InvalidRequest(
            f"{path}: more than {limit} bytes, the most that {most} {what}s can take; send several "
            "requests"
        )
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise InvalidRequest(f"{path}: is not UTF-8 text with one {what} per line") from None
    lines = tuple(line.strip() for line in text.split("\n") if line.strip())
    if not lines:
        raise InvalidRequest(f"{path}: names no {what}; nothing was sent")
    return lines
