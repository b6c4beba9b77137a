"""Packed files (zip) within a limit: what they unpack to is known before a library unpacks them.

Deflate makes a thousand bytes of one, a file in a file a million, and the sizes in a directory of
zip are claims: Python's `zipfile` unpacks first and compares afterwards.
"""

from __future__ import annotations

import io
import json
import zipfile
from collections.abc import Iterator
from typing import Any

from lethe.engine.errors import InvalidData

_ZIP = b"PK"
_METHODS = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)
"""`zipfile` unpacks the others (bzip2, LZMA) without a limit."""

_DEPTH = 2
"""Deepest nesting of packed files: a `.skops` file holds sparse matrices as `.npz` files."""


class Unpacked:
    """The members of a zip file, unpacked, and of the zip files among them.

    Parameters
    ----------
    data
        The file.
    limit
        The bytes that all members may have together.
    what
        The file, for messages.

    Raises
    ------
    InvalidData
        They have more, or are packed in a way that cannot be limited.
    zipfile.BadZipFile
        It is not a zip file.
    """

    def __init__(self, data: bytes, limit: int, what: str) -> None:
        self._limit, self._left, self._what = limit, limit, what
        self.members = self._unpacked(data, _DEPTH)

    def _unpacked(self, data: bytes, depth: int) -> dict[str, bytes]:
        members = {}
        with zipfile.ZipFile(io.BytesIO(data)) as file:
            if depth == 0 or sum(one.file_size for one in file.infolist()) > self._left:
                raise self._too_large(self._limit)
            for name in dict.fromkeys(file.namelist()):
                if file.getinfo(name).compress_type not in _METHODS:
                    raise InvalidData(f"{self._what}: {name!r} is neither stored nor deflated")
                with file.open(name) as member:
                    content = member.read(self._left + 1)
                self._left -= len(content)
                if self._left < 0:
                    raise self._too_large(self._limit)
                if content.startswith(_ZIP):
                    content = _stored(self._unpacked(content, depth - 1))
                members[name] = content
        return members

    def stored(self) -> bytes:
        """Return the same zip file without compression."""
        return _stored(self.members)

    def check_named(self, name: str, limit: int) -> None:
        """Check a JSON member of at most ``limit`` bytes, and each member as often as it is named.

        Raises
        ------
        InvalidData
            A library that unpacks each member where it is named would unpack more.
        """
        if len(self.members[name]) > limit:
            raise self._too_large(limit)
        named = _texts(json.loads(self.members[name]))
        size = sum(len(self.members[text]) for text in named if text in self.members)
        if size > self._limit:
            raise self._too_large(self._limit)

    def _too_large(self, limit: int) -> InvalidData:
        return InvalidData(
            f"{self._what}: unpacks to more than {limit} bytes; is it the right file?"
        )


def _stored(members: dict[str, bytes]) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_STORED) as file:
        for name, content in members.items():
            file.writestr(name, content)
    return buffer.getvalue()


def _texts(document: Any) -> Iterator[str]:
    """Yield the texts in parsed JSON, however deep it is nested."""
    waiting = [document]
    while waiting:
        one = waiting.pop()
        if isinstance(one, str):
            yield one
        elif isinstance(one, dict):
            waiting += one.values()
        elif isinstance(one, list):
            waiting += one
