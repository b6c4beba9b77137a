"""Files for harnesses of what is read from a file."""

from __future__ import annotations

import tempfile
from functools import cache
from pathlib import Path


@cache
def scratch() -> Path:
    """Return a directory of this process."""
    return Path(tempfile.mkdtemp(prefix="lethe-fuzz-"))


def written(data: bytes, name: str) -> Path:
    """Return a file with this content, which only its owner may read."""
    path = scratch() / name
    path.write_bytes(data)
    path.chmod(0o600)
    return path
