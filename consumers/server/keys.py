"""Keys of the HTTP API: who calls, and which models they may touch.

The file holds a SHA-256 of each key, one a line, and never a key. A key is 32 random bytes, so
nobody finds it from its hash, and a slow hash, which is for passwords, would gain nothing.
"""

from __future__ import annotations

import hashlib
import os
import re
import secrets
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from fnmatch import fnmatchcase
from pathlib import Path
from types import MappingProxyType

from lethe.consumers.contract.events import rfc3339
from lethe.engine.errors import InvalidData, Unauthenticated

PREFIX = "lethe_"
"""What every key begins with, so that scanners for leaked secrets can find one."""

LOOK_SECONDS = 1.0
"""How often the file is looked at: a key that was removed from it ends within this time."""

MAX_KEYS = 10_000
MAX_FILE_BYTES = 4 << 20
"""Limits of the file: it is read again at every change."""

_NAME = re.compile(r"[A-Za-z0-9._-]{1,64}")
_HASH = re.compile(r"[0-9a-f]{64}")
_NEVER = "-"


@dataclass(frozen=True, slots=True)
class Caller:
    """Who calls.

    Attributes
    ----------
    name
        The key's name, for logs.
    models
        Patterns (``*``, ``?``, ``[...]``) of the models that the key may touch.
    expires
        When the key ends; None: never.
    """

    name: str
    models: tuple[str, ...]
    expires: datetime | None = None

    def allows(self, model_id: str) -> bool:
        """Return whether the key may touch a model."""
        return any(fnmatchcase(model_id, pattern) for pattern in self.models)

    @property
    def allows_all(self) -> bool:
        """Whether it is for every model, as an erasure is."""
        return "*" in self.models


ANYONE = Caller("anyone", ("*",))
"""Who calls a server without keys: somebody on this machine."""


class Keys:
    """The keys of a file, which is read again when it has changed; for any thread.

    Raises
    ------
    InvalidData
        The file cannot be used.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._lock = threading.Lock()
        self._stamp = _stamp(path)
        self._callers = read_keys(path)
        self._looked_at = time.monotonic()

    def caller(self, key: str) -> Caller:
        """Return who a key belongs to.

        Raises
        ------
        Unauthenticated
            There is no such key, or it has expired.
        InvalidData
            The file was changed and cannot be used: no key counts until it is repaired.
        """
        hashed = hashlib.sha256(key.encode("utf-8", errors="replace")).hexdigest()
        caller = self._current().get(hashed)
        if caller is None:
            raise Unauthenticated("this key is not known; `lethe key issue` creates one")
        if caller.expires is not None and caller.expires <= datetime.now(UTC):
            raise Unauthenticated(
                f"this key expired at {rfc3339(caller.expires)}; `lethe key issue` creates another"
            )
        return caller

    def find(self, key: str) -> Caller | None:
        """Return who a key belongs to; None if it does not count."""
        try:
            return self.caller(key)
        except Unauthenticated:
            return None

    def _current(self) -> Mapping[str, Caller]:
        with self._lock:
            if time.monotonic() - self._looked_at > LOOK_SECONDS:
                stamp = _stamp(self._path)
                if stamp != self._stamp:
                    self._callers = read_keys(self._path)
                    self._stamp = stamp
                self._looked_at = time.monotonic()
            return self._callers


def _stamp(path: Path) -> tuple[int, int, int] | None:
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_mtime_ns, status.st_size, status.st_ino


def read_keys(path: Path) -> Mapping[str, Caller]:
    """Return the callers in a file, by the hash of their key.

    A line holds the hash, the name, when the key expires (RFC 3339, or ``-``) and the patterns of
    its models. ``#`` begins a comment.

    Raises
    ------
    InvalidData
        The file cannot be read, or a line is not of this form.
    """
    try:
        with path.open("rb") as file:
            content = file.read(MAX_FILE_BYTES + 1)
    except OSError as error:
        raise InvalidData(f"{path}: cannot be read ({error.strerror})") from None
    if len(content) > MAX_FILE_BYTES:
        raise InvalidData(f"{path}: more than {MAX_FILE_BYTES} bytes")
    try:
        text = content.decode("utf-8")
    except UnicodeDecodeError:
        raise InvalidData(f"{path}: is not a file of keys (`lethe key issue`)") from None
    callers: dict[str, Caller] = {}
    for number, line in enumerate(text.splitlines(), 1):
        words = line.partition("#")[0].split()
        if words:
            hashed, caller = _parsed(words, f"{path}, line {number}")
            callers[hashed] = caller
    if len(callers) > MAX_KEYS:
        raise InvalidData(f"{path}: more than {MAX_KEYS} keys")
    return MappingProxyType(callers)


def _parsed(words: Sequence[str], what: str) -> tuple[str, Caller]:
    hashed, name, expires, *models = [*words, "", ""][: max(len(words), 3)]
    if not _HASH.fullmatch(hashed) or not _NAME.fullmatch(name) or not models:
        raise InvalidData(
            f"{what}: is not a key: write its SHA-256, a name, when it expires (or -), and models"
        )
    try:
        end = None if expires == _NEVER else datetime.fromisoformat(expires).astimezone(UTC)
    except (ValueError, OverflowError):
        raise InvalidData(
            f"{what}: {expires!r} is not a time such as 2027-01-31T00:00:00Z"
        ) from None
    return hashed, Caller(name, tuple(models), end)


def issue_key(path: Path, name: str, models: Sequence[str], expires: datetime | None) -> str:
    """Add a new key to a file, which is created if it is missing; return the key.

    The key is not stored: nobody can show it again.

    Raises
    ------
    InvalidData
        The file cannot be used or written, the name is taken, or a name or pattern has characters
        that the file cannot hold.
    """
    if not _NAME.fullmatch(name):
        raise InvalidData(f"{name!r} cannot name a key: use 1 to 64 letters, digits, '.', '_', '-'")
    unfit = [one for one in models if not one or one != "".join(one.partition("#")[0].split())]
    if unfit:
        raise InvalidData(
            f"{unfit[0]!r} is not a pattern of models: it may have no spaces and no '#'; write "
            "'?' for them"
        )
    if path.exists() and name in {caller.name for caller in read_keys(path).values()}:
        raise InvalidData(
            f"{path} has a key {name!r}; remove its line to revoke it, or choose another"
        )
    key = PREFIX + secrets.token_urlsafe(32)
    end = _NEVER if expires is None else rfc3339(expires)
    words = (hashlib.sha256(key.encode()).hexdigest(), name, end, *models)
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT, 0o600)
        with os.fdopen(descriptor, "ab+") as file:
            begin = b"\n" if _lacks_line_end(path) else b""
            file.write(begin + " ".join(words).encode() + b"\n")
            file.flush()
            os.fsync(file.fileno())
    except OSError as error:
        raise InvalidData(f"{path} cannot be written: {error.strerror}") from None
    return key


def _lacks_line_end(path: Path) -> bool:
    content = path.read_bytes()
    return bool(content) and not content.endswith(b"\n")
