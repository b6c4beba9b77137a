"""A TOML file that somebody wrote: read within a limit, and refused in one line."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

from lethe.engine.errors import InvalidData


def read_toml(path: Path, max_bytes: int) -> dict[str, Any]:
    """Return the document in a file.

    Raises
    ------
    InvalidData
        The file cannot be read, is longer than ``max_bytes``, or is not TOML in UTF-8.
    """
    try:
        with path.open("rb") as file:
            content = file.read(max_bytes + 1)
        if len(content) > max_bytes:
            raise InvalidData(f"{path}: more than {max_bytes} bytes; is it the right file?")
        return tomllib.loads(content.decode("utf-8"))
    except OSError as error:
        raise InvalidData(f"{path}: cannot be read ({error.strerror}); check the path") from None
    except (ValueError, RecursionError) as error:  # a ValueError also of thousands of digits
        raise InvalidData(f"{path}: is not TOML in UTF-8 ({error})") from None
