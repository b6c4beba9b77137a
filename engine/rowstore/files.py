"""Where files of rows lie: a directory, or object storage under a URL.

A file is written whole under a name that no other content has, so that it is never overwritten by
something else, and it is there after a crash once `Files.put` returns.
"""

from __future__ import annotations

import math
import os
import re
import secrets
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from functools import cache
from pathlib import Path, PurePosixPath
from typing import Any, Protocol, TypeVar
from urllib.parse import unquote, urlsplit

import pyarrow as pa
from pyarrow import fs

from lethe.engine.errors import InvalidData, StoreUnavailable

_OURS = re.compile(r"\A(?:[0-9a-f]{64}|\.[0-9a-f]{64}\.[0-9a-f-]+)\Z")
"""Names of files, and of those that a crash left unfinished: nothing else is ever removed."""

T = TypeVar("T")

_OBJECT_STORAGE = ("s3", "gs", "gcs", "abfs", "abfss")
"""Schemes whose services show a file whole or not at all, which HDFS does not."""


class Files(Protocol):
    """Some files with names of letters, digits, dots and hyphens; many threads may use it."""

    url: str

    def put(self, name: str, data: bytes) -> None:
        """Write a file; it is durable once this returns. The same content may be there already.

        Raises
        ------
        StoreUnavailable
            It cannot be written: the message says where and why.
        """

    def settle(self) -> None:
        """Return once other processes can read what was put; raises `StoreUnavailable` as `put`.

        Called before anybody else learns the names of new files.
        """

    def get(self, name: str) -> bytes | None:
        """Return a file, or None if there is none; raises `StoreUnavailable` as `put`."""

    def delete(self, names: Iterable[str]) -> None:
        """Remove files, those that are there; raises `StoreUnavailable` as `put`."""

    def names(self, *, older_than: float = 0.0) -> list[str]:
        """Return the names of all files, in order; raises `StoreUnavailable` as `put`.

        ``older_than``: only of those that were written so many seconds ago.
        """

    def folders(self) -> list[str]:
        """Return the names of the folders beside the files; raises `StoreUnavailable` as `put`."""


class Directory:
    """Files in a directory of this machine, or of one that it has mounted."""

    def __init__(self, path: Path) -> None:
        self.url = str(path)
        self._path = path

    def put(self, name: str, data: bytes) -> None:
        """Write a file: its content first, then its name, each of them to the disk."""
        unfinished = self._path / f".{name}.{secrets.token_hex(8)}"
        try:
            self._make()
            with open(unfinished, "xb", opener=_private) as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            unfinished.rename(self._path / name)
            _sync(self._path)
        except OSError as error:
            with suppress(OSError):
                unfinished.unlink()
            raise self._unavailable(error) from error

    def settle(self) -> None:
        """Return: what was put is there."""

    def get(self, name: str) -> bytes | None:
        """Return a file, or None if there is none."""
        try:
            return (self._path / name).read_bytes()
        except FileNotFoundError:
            return None
        except OSError as error:
            raise self._unavailable(error) from error

    def delete(self, names: Iterable[str]) -> None:
        """Remove files, and the directory once it is empty."""
        try:
            for name in names:
                (self._path / name).unlink(missing_ok=True)
            if self._path.is_dir():
                _sync(self._path)
                with suppress(OSError):  # it has files
                    self._path.rmdir()
        except OSError as error:
            raise self._unavailable(error) from error

    def names(self, *, older_than: float = 0.0) -> list[str]:
        """Return the names of all files, also of those that a crash left unfinished."""
        latest = time.time() - older_than if older_than else math.inf
        try:
            with os.scandir(self._path) as entries:
                return sorted(
                    entry.name
                    for entry in entries
                    if _OURS.match(entry.name)
                    and (modified := _modified(entry)) is not None
                    and modified <= latest
                )
        except FileNotFoundError:
            return []
        except OSError as error:
            raise self._unavailable(error) from error

    def folders(self) -> list[str]:
        """Return the names of the folders beside the files."""
        try:
            with os.scandir(self._path) as entries:
                return sorted(entry.name for entry in entries if entry.is_dir())
        except FileNotFoundError:
            return []
        except OSError as error:
            raise self._unavailable(error) from error

    def _make(self) -> None:
        missing = [path for path in (self._path, *self._path.parents) if not path.exists()]
        self._path.mkdir(parents=True, exist_ok=True, mode=0o700)
        for path in missing:
            _sync(path.parent)

    def _unavailable(self, error: OSError) -> StoreUnavailable:
        return _unavailable(self.url, error)


class ObjectStorage:
    """Files of object storage that pyarrow has: S3, Google Cloud Storage, Azure."""

    def __init__(self, url: str, system: Any, root: str, opened: tuple[str, ...] = ()) -> None:
        self.url = url
        self._opened = opened
        self._system = system
        self._root = root.rstrip("/")

    def __reduce__(self) -> tuple[Callable[..., Files], tuple[str, ...]]:
        """Be pickled by its URL: whoever opens that uses credentials of its own."""
        return _opened_once, self._opened

    def put(self, name: str, data: bytes) -> None:
        """Write a file. Object storage shows it whole or not at all."""
        path = f"{self._root}/{name}"

        def write() -> None:
            try:
                stream = self._system.open_output_stream(path)
            except FileNotFoundError:  # a file system with directories
                self._system.create_dir(self._root, recursive=True)
                stream = self._system.open_output_stream(path)
            with stream:
                stream.write(data)

        self._asked(write)

    def settle(self) -> None:
        """Return: what was put is there."""

    def get(self, name: str) -> bytes | None:
        """Return a file, or None if there is none."""

        def read() -> bytes | None:
            try:
                with self._system.open_input_stream(f"{self._root}/{name}") as stream:
                    return bytes(stream.read())
            except FileNotFoundError:
                return None

        return self._asked(read)

    def delete(self, names: Iterable[str]) -> None:
        """Remove files, those that are there."""

        def remove() -> None:
            for name in names:
                with suppress(FileNotFoundError):
                    self._system.delete_file(f"{self._root}/{name}")

        self._asked(remove)

    def names(self, *, older_than: float = 0.0) -> list[str]:
        """Return the names of all files."""
        latest = time.time() - older_than if older_than else math.inf
        selector = fs.FileSelector(self._root, allow_not_found=True)
        found = self._asked(self._system.get_file_info, selector)
        return sorted(
            info.base_name
            for info in found
            if info.type == fs.FileType.File
            and _OURS.match(info.base_name)
            and (info.mtime_ns or 0) / 1e9 <= latest
        )

    def folders(self) -> list[str]:
        """Return the names of the folders beside the files."""
        selector = fs.FileSelector(self._root, allow_not_found=True)
        found = self._asked(self._system.get_file_info, selector)
        return sorted(info.base_name for info in found if info.type == fs.FileType.Directory)

    def _asked(self, ask: Callable[..., T], *arguments: object) -> T:
        try:
            return ask(*arguments)
        except (OSError, pa.ArrowException) as error:
            raise _unavailable(self.url, error) from error


def _modified(entry: os.DirEntry[str]) -> float | None:
    """Return when a file was written; None if it is gone by now, or no file."""
    try:
        return entry.stat().st_mtime if entry.is_file() else None
    except FileNotFoundError:
        return None


def _private(path: str, flags: int) -> int:
    """Open a file that only its owner reads."""
    return os.open(path, flags, 0o600)


def _unavailable(url: str, error: Exception) -> StoreUnavailable:
    reason = getattr(error, "strerror", None) or str(error).partition("\n")[0]
    return StoreUnavailable(
        f"rows at {url}: {reason}; check that the place exists, has room, and may be read and "
        "written by this process"
    )


def absolute(url: str | None) -> str | None:
    """Return a URL, or the whole of a path: other processes have other working directories."""
    if url is None or len(urlsplit(url).scheme) > 1:
        return url
    return str(Path(url).absolute())


def files_at(url: str, *folders: str) -> Files:
    """Return the files in a folder below a URL or a path.

    Raises
    ------
    InvalidData
        There is no such file system: the message names those that there are.
    StoreUnavailable
        It does not answer.
    """
    place = url.rpartition("@")[2]
    try:
        parts = urlsplit(url)
        if len(parts.scheme) < 2:  # a path; of one letter is a drive
            return Directory(Path(url, *folders).absolute())
        if parts.scheme == "file":
            return Directory(Path(unquote(parts.path), *folders))
        host = parts.netloc if parts.password is None else parts.netloc.rpartition("@")[2]
        place = f"{parts.scheme}://{host}{parts.path.rstrip('/')}"  # options may be secret, too
        system, root = _system_at(url, parts.scheme)
    except OSError as error:
        raise _unavailable(place, error) from None
    except (pa.ArrowException, ValueError) as error:
        reason = str(error).partition("\n")[0].replace(url, place)
        raise InvalidData(
            f"rows at {place}: {reason}; give a directory, or a URL that "
            "begins with file://, s3://, gs:// or abfss://"
        ) from None
    below = str(PurePosixPath(root, *folders))
    return ObjectStorage("/".join([place, *folders]), system, below, (url, *folders))


@cache
def _opened_once(*place: str) -> Files:
    return files_at(*place)


def _system_at(url: str, scheme: str) -> tuple[fs.FileSystem, str]:
    if scheme not in _OBJECT_STORAGE:
        raise ValueError(f"there is no storage at {scheme}://")
    system, root = fs.FileSystem.from_uri(url)
    return system, root


def _sync(path: Path) -> None:
    directory = os.open(path, os.O_RDONLY)
    try:
        os.fsync(directory)
    finally:
        os.close(directory)
