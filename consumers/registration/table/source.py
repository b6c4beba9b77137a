"""What ``--data`` names: one file, a directory of files of one kind, or a URL of either."""

from __future__ import annotations

import io
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, TypeAlias, cast
from urllib.parse import urlsplit

import pyarrow as pa
from pyarrow import fs

from lethe.engine.errors import InvalidData

Data: TypeAlias = Path | str
"""A path, or a URL as text."""

MAX_FILES = 10_000
"""Files of a directory: each footer takes a millisecond to read, and some KB."""

_SUFFIXES = (".csv", ".parquet")
_IGNORED = (".", "_")
"""How names begin that are no data: hidden files, and what Spark writes beside them (_SUCCESS)."""

_LINES_BUFFER = 1 << 20


IN_FILES = "keep the rows in files (--rows URL, docs/scale.md)"


class TableTooLarge(InvalidData):
    """A table has more rows than the store takes; they can be kept in files."""


@dataclass(frozen=True, slots=True)
class DataFile:
    """One file of a table.

    Attributes
    ----------
    shown
        What messages call it; of a URL, without credentials.
    within
        Its name in its directory, followed by a comma, for places; nothing if it is the table.
    size
        Bytes.
    """

    shown: str
    within: str
    size: int
    _path: str
    _files: fs.FileSystem | None

    @property
    def is_csv(self) -> bool:
        """Return whether its name ends in .csv."""
        return self.shown.lower().endswith(".csv")

    def for_arrow(self) -> Any:
        """Return what Arrow opens."""
        return self._path if self._files is None else self._files.open_input_file(self._path)

    def open(self) -> BinaryIO:
        """Open it to be read as bytes, line by line."""
        if self._files is None:
            return Path(self._path).open("rb")
        raw = self._files.open_input_file(self._path)
        return cast("BinaryIO", io.BufferedReader(raw, _LINES_BUFFER))


@dataclass(frozen=True, slots=True)
class Source:
    """The files of a table, by name, all CSV or all Parquet; ``shown`` is what messages say."""

    shown: str
    name: str
    files: tuple[DataFile, ...]

    @property
    def is_csv(self) -> bool:
        """Return whether these are CSV files."""
        return self.files[0].is_csv

    @property
    def size(self) -> int:
        """Return the bytes of all files."""
        return sum(file.size for file in self.files)


def find(data: Data) -> Source:
    """Return the files that a path or a URL names; nothing is read.

    In a directory, files are sorted by name, and hidden ones and those that begin with an
    underscore are left out.

    Raises
    ------
    InvalidData
        There is none, or the directory holds something else; the message says what to do.
    """
    if isinstance(data, Path):
        with reading(str(data)):
            return _found(None, str(data), str(data))
    shown = _without_credentials(data)
    with reading(shown):
        files, path = _file_system(data, shown)
        return _found(files, path, shown)


@contextmanager
def reading(shown: str) -> Iterator[None]:
    """Say of a file that cannot be read why."""
    try:
        yield
    except OSError as error:
        reason = (error.strerror or str(error)).partition("\n")[0]
        raise InvalidData(f"{shown}: cannot be read ({reason}); check the path") from error


def _found(files: fs.FileSystem | None, path: str, shown: str) -> Source:
    listing = _listing(files, path)
    if listing is None:
        if not shown.lower().endswith(_SUFFIXES):
            raise InvalidData(f"{shown}: the name must end in .parquet or .csv")
        if files is None:
            Path(path).open("rb").close()  # it may not be there, or not be ours to read
        one = DataFile(shown, "", _size(files, path), path, files)
        return Source(shown, _name(shown), (one,))
    names = sorted(name for name in listing if not name.startswith(_IGNORED))
    if not names:
        raise InvalidData(f"{shown}: is a directory without .parquet or .csv files")
    strange = next((name for name in names if not name.lower().endswith(_SUFFIXES)), None)
    strange = strange or next((name for name in names if listing[name]), None)
    if strange is not None:
        what = "a directory, too" if listing[strange] else "no .parquet or .csv file"
        raise InvalidData(
            f"{shown}: is a directory that holds {strange}, which is {what}; name one that holds "
            "nothing but files of data"
        )
    other = next((name for name in names if _suffix(name) != _suffix(names[0])), None)
    if other is not None:
        raise InvalidData(
            f"{shown}: holds files of two kinds, {names[0]} and {other}; leave only one kind in it"
        )
    if len(names) > MAX_FILES:
        raise InvalidData(f"{shown}: holds {len(names)} files, more than {MAX_FILES}; merge some")
    of = [
        DataFile(f"{shown.rstrip('/')}/{name}", f"{name}, ", _size(files, inner), inner, files)
        for name in names
        for inner in (f"{path.rstrip('/')}/{name}",)
    ]
    return Source(shown, _name(shown), tuple(of))


def _listing(files: fs.FileSystem | None, path: str) -> dict[str, bool] | None:
    """Return the names in a directory, and whether each is a directory; None of a file."""
    if files is None:
        if not Path(path).is_dir():
            return None
        return {one.name: one.is_dir() for one in Path(path).iterdir()}
    about = files.get_file_info(path)
    if about.type == fs.FileType.NotFound:
        raise FileNotFoundError(2, "No such file or directory")
    if about.type != fs.FileType.Directory:
        return None
    inside = files.get_file_info(fs.FileSelector(path))
    return {one.base_name: one.type == fs.FileType.Directory for one in inside}


def _size(files: fs.FileSystem | None, path: str) -> int:
    return Path(path).stat().st_size if files is None else int(files.get_file_info(path).size or 0)


def _suffix(name: str) -> str:
    return Path(name).suffix.lower()


def _name(shown: str) -> str:
    return shown.rstrip("/").rpartition("/")[2] or shown


def _without_credentials(url: str) -> str:
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}"


def _file_system(url: str, shown: str) -> tuple[fs.FileSystem, str]:
    """Return the file system of a URL, Arrow's own or one of fsspec, and the path in it."""
    try:
        found: tuple[fs.FileSystem, str] = fs.FileSystem.from_uri(url)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        pass
    else:
        return found
    try:
        from fsspec.core import url_to_fs  # noqa: PLC0415 (Lethe does not bring it)
    except ImportError:
        raise InvalidData(
            f"{shown}: URLs of file, s3, gs, abfs and hdfs are read; for others install fsspec, "
            "and the package that it needs for this one"
        ) from None
    try:
        other, path = url_to_fs(url)
    except (ValueError, ImportError) as error:
        reason = str(error).replace(url, shown).partition("\n")[0]
        raise InvalidData(f"{shown}: cannot be opened ({reason})") from None
    return fs.PyFileSystem(fs.FSSpecHandler(other)), path
