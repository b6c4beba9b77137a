"""An exported history as a file: what `lethe audit --export` writes and `--bundle` reads.

JSON lines (docs/audit.md). The first line names the model; then each line holds one record as it
stood in the log; then come the leaf hashes of the receipt log. The last line holds the number of
records, which reveals a truncated file. Nothing in the file is taken on trust: the length of every
line is limited before it is parsed, and `consumers.audit.auditor` judges what it says.
"""

from __future__ import annotations

import base64
import json
import os
import re
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any, TypeGuard

from lethe.consumers.audit.published.evidence import MAX_SAFE, from_base64, parse_evidence
from lethe.consumers.log.base import Partition, Record
from lethe.engine.errors import InvalidData
from lethe.engine.merkle import HASH_BYTES

FORMAT = 1
LINE_BYTES = 4 << 20
"""A log record has at most 1 MiB and 64 KiB; base64 adds a third."""
MAX_LINES = 50_000_000

STORED = -1
"""Partition and offset of a receipt that has left the log and that the state still keeps."""

_LEAVES = 16_384  # hashes per line
_INDEX = re.compile(r"0|[1-9][0-9]{0,8}")  # of a partition, as the name of a member


@dataclass(frozen=True, slots=True)
class Header:
    """The first line.

    Attributes
    ----------
    model_id, exported_at
        The model, and when its history was read.
    public_keys
        Keys that the exporter trusts: a hint for people; no check relies on them.
    begins
        First offset that each partition of the receipts topic still held; above 0, earlier
        receipts had left the log.
    registration
        What a refit needs and no event carries: ``ridge``, ``certified``.
    """

    model_id: str
    exported_at: str = ""
    public_keys: tuple[str, ...] = ()
    begins: Mapping[int, int] = field(default_factory=dict)
    registration: Mapping[str, Any] = field(default_factory=dict)


Item = Record | bytes
"""A record, or concatenated leaf hashes of the receipt log."""


@contextmanager
def new_file(path: Path, encoding: str = "ascii") -> Iterator[IO[str]]:
    """Write a text file, which gets its name once it is complete; until then an old one stays.

    Raises
    ------
    InvalidData
        The file cannot be written.
    """
    try:
        descriptor, name = tempfile.mkstemp(dir=path.parent or ".", prefix=f".{path.name}.")
        try:
            with os.fdopen(descriptor, "w", encoding=encoding) as file:
                yield file
            Path(name).replace(path)
        except BaseException:
            Path(name).unlink(missing_ok=True)
            raise
    except OSError as error:
        raise InvalidData(f"{path}: cannot be written ({error.strerror}); check the path") from None


def write_bundle(
    path: Path, header: Header, records: Iterable[Record], leaves: Sequence[bytes]
) -> int:
    """Write a file and return the number of its records; ``leaves`` are those of the receipt log.

    Raises
    ------
    InvalidData
        The file cannot be written.
    """
    with new_file(path) as file:
        _line(
            file,
            {
                "lethe_bundle": FORMAT,
                "model_id": header.model_id,
                "exported_at": header.exported_at,
                "public_keys": list(header.public_keys),
                "receipts_begin": {str(index): begin for index, begin in header.begins.items()},
                "registration": dict(header.registration),
            },
        )
        count = 0
        for record in records:
            count += 1
            _line(
                file,
                {
                    "topic": record.partition.topic,
                    "partition": record.partition.index,
                    "offset": record.offset,
                    "headers": [[name, _encoded(value)] for name, value in record.headers],
                    "value": _encoded(record.value or b""),
                },
            )
        for start in range(0, len(leaves), _LEAVES):
            _line(file, {"receipt_log": _encoded(b"".join(leaves[start : start + _LEAVES]))})
        _line(file, {"lethe_bundle_end": FORMAT, "records": count})
    return count


def _line(file: IO[str], document: Mapping[str, Any]) -> None:
    file.write(json.dumps(document, separators=(",", ":")) + "\n")


def _is_number(value: Any, least: int, most: int) -> TypeGuard[int]:
    return type(value) is int and least <= value <= most


def _encoded(value: bytes) -> str:
    return base64.b64encode(value).decode()


class BundleReader:
    """Reads a file line by line; use it in a ``with`` statement.

    Raises
    ------
    InvalidData
        The file cannot be read, is not a bundle, or was truncated. Iteration raises it too.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._number = 0
        try:
            self._file = path.open("rb")
        except OSError as error:
            raise InvalidData(f"{path}: cannot be read ({error.strerror}); check the path") from (
                None
            )
        try:
            self.header = self._header()
        except BaseException:
            self._file.close()
            raise

    def __enter__(self) -> BundleReader:
        """Return the reader, which has read the first line."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close the file."""
        self._file.close()

    def __iter__(self) -> Iterator[Item]:
        """Yield the contents in file order, and check the last line."""
        count = 0
        while (document := self._next()) is not None:
            if "lethe_bundle_end" in document:
                self._finish(document, count)
                return
            if "topic" in document:
                count += 1
                yield self._record(document)
            elif "receipt_log" in document:
                leaves = self._bytes(document["receipt_log"], "receipt_log")
                if len(leaves) % HASH_BYTES:
                    raise self._bad("receipt_log is cut within a hash")
                yield leaves
        raise InvalidData(
            f"{self._path}: ends after line {self._number} without its closing line: it was "
            "truncated; export it again"
        )

    def _finish(self, document: Mapping[str, Any], count: int) -> None:
        if not _is_number(document.get("records"), count, count):
            raise self._bad(f"{count} records were read, but the last line gives another count")
        if self._file.read(1):
            raise self._bad("there is data after the last line")

    def _header(self) -> Header:
        document = self._next()
        if document is None or "lethe_bundle" not in document:
            raise InvalidData(f"{self._path}: was not written by `lethe audit --export`")
        if not _is_number(document["lethe_bundle"], FORMAT, FORMAT):
            raise InvalidData(
                f"{self._path}: is not in format {FORMAT}, the only one that this program reads; "
                "upgrade Lethe"
            )
        model_id, begins = document.get("model_id"), document.get("receipts_begin")
        keys, registration = document.get("public_keys"), document.get("registration")
        if not isinstance(model_id, str) or not 1 <= len(model_id) <= 128:
            raise self._bad("names no model")
        return Header(
            model_id,
            str(document.get("exported_at", ""))[:40],
            tuple(key for key in keys if isinstance(key, str)) if isinstance(keys, list) else (),
            self._begins(begins),
            registration if isinstance(registration, dict) else {},
        )

    def _begins(self, begins: Any) -> dict[int, int]:
        if begins is None:
            return {}
        if not isinstance(begins, dict) or not all(
            _INDEX.fullmatch(index) and _is_number(offset, 0, MAX_SAFE)
            for index, offset in begins.items()
        ):
            raise self._bad("receipts_begin does not give offsets by partition")
        return {int(index): offset for index, offset in begins.items()}

    def _record(self, document: Mapping[str, Any]) -> Record:
        topic, index, offset = (document.get(name) for name in ("topic", "partition", "offset"))
        headers = document.get("headers", [])
        pairs = isinstance(headers, list) and all(
            isinstance(pair, list) and len(pair) == 2 and isinstance(pair[0], str)
            for pair in headers
        )
        if (
            not isinstance(topic, str)
            or not _is_number(index, STORED, MAX_SAFE)
            or not _is_number(offset, STORED, MAX_SAFE)
            or (index == STORED) != (offset == STORED)
            or not pairs
        ):
            raise self._bad("is not a record with topic, partition, offset, headers and value")
        return Record(
            Partition(topic, "", index),
            offset,
            self.header.model_id.encode(errors="replace"),
            self._bytes(document.get("value"), "value"),
            tuple((name, self._bytes(value, f"header {name[:40]!r}")) for name, value in headers),
        )

    def _next(self) -> dict[str, Any] | None:
        """Return the next line's object; None at the end of the file."""
        try:
            line = self._file.readline(LINE_BYTES + 1)
        except OSError as error:
            raise InvalidData(f"{self._path}: cannot be read ({error.strerror})") from None
        if not line:
            return None
        self._number += 1
        if len(line) > LINE_BYTES:
            raise self._bad(f"is longer than {LINE_BYTES} bytes, more than a record can have")
        if not line.endswith(b"\n"):
            raise self._bad("is incomplete: the file was truncated; export it again")
        if self._number > MAX_LINES:
            raise self._bad(f"a bundle has at most {MAX_LINES} lines")
        try:
            document = parse_evidence(line)
        except ValueError:
            raise self._bad("is not JSON that can be read in one way only") from None
        if not isinstance(document, dict):
            raise self._bad("is not a JSON object")
        return document

    def _bytes(self, value: Any, what: str) -> bytes:
        try:
            return from_base64(value)
        except ValueError:
            raise self._bad(f"{what} is not base64") from None

    def _bad(self, what: str) -> InvalidData:
        return InvalidData(f"{self._path}, line {self._number}: {what}")
