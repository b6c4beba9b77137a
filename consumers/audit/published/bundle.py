"""What was published, as a file: `lethe audit --bundle` reads it.

JSON lines (docs/audit.md). A model's history (`lethe audit --export`) begins with a line that names
the model; then each line holds one record as it stood in the log; then come the leaf hashes of the
receipt log. The evidence of one erasure (`lethe erasures --bundle`) begins with a line that names
the erasure; then comes the record of its combined receipt, and for each model that was asked a line
that names it, the records of its answers, and the proofs that they are in its receipt log. The
person's own copy also has what opens the commitment to them. The last line holds the number of
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
from lethe.engine.ids import MAX_ID_LENGTH
from lethe.engine.merkle import HASH_BYTES

FORMAT = 1
"""Format of a file with a model's history."""

ERASURE_FORMAT = 2
"""Format of a file with the evidence of an erasure."""

LINE_BYTES = 4 << 20
"""A log record has at most 1 MiB and 64 KiB; base64 adds a third."""
MAX_LINES = 50_000_000

STORED = -1
"""Partition and offset of a receipt that has left the log and that the state still keeps."""

_LEAVES = 16_384  # hashes per line
_MAX_PATH = 64  # hashes: of a log of 2^64 receipts
_SALT = re.compile(r"[0-9a-f]{64}")
_INDEX = re.compile(r"0|[1-9][0-9]{0,8}")  # of a partition, as the name of a member


@dataclass(frozen=True, slots=True)
class Header:
    """The first line.

    Attributes
    ----------
    model_id, exported_at
        The model, and when its history was read. Empty: it is the evidence of an erasure.
    public_keys
        Keys that the exporter trusts: a hint for people; no check relies on them.
    begins
        First offset that each partition of the receipts topic still held; above 0, earlier
        receipts had left the log.
    registration
        What a refit needs and no event carries: ``ridge``, ``certified``, ``class_weights``.
    erasure_id
        The erasure; empty: it is the history of a model.
    """

    model_id: str
    exported_at: str = ""
    public_keys: tuple[str, ...] = ()
    begins: Mapping[int, int] = field(default_factory=dict)
    registration: Mapping[str, Any] = field(default_factory=dict)
    erasure_id: str = ""


@dataclass(frozen=True, slots=True)
class Part:
    """Begins what the evidence of an erasure has of one model."""

    model_id: str


@dataclass(frozen=True, slots=True)
class InclusionProof:
    """Shows that a receipt is entry ``index`` in the receipt log of a version (RFC 9162)."""

    leaf: bytes
    version: int
    index: int
    path: tuple[bytes, ...]


@dataclass(frozen=True, slots=True)
class Opening:
    """Opens the commitment of an erasure to its subject."""

    subject_id: str
    salt: bytes


@dataclass(frozen=True, slots=True)
class Cosigned:
    """A checkpoint of the receipt log, with the cosignatures of witnesses."""

    note: str


Item = Record | bytes | Part | InclusionProof | Opening | Cosigned
"""A record, concatenated leaf hashes of the receipt log, or what only an erasure's file has."""


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


def write_bundle(path: Path, header: Header, items: Iterable[Item]) -> int:
    """Write a file and return the number of its records.

    Raises
    ------
    InvalidData
        The file cannot be written.
    """
    count = 0
    with new_file(path) as file:
        for line in bundle_lines(header, items):
            count += line.startswith(_RECORD)
            file.write(line)
    return count


def bundle_lines(header: Header, items: Iterable[Item]) -> Iterator[str]:
    """Yield the lines of a file."""
    count, number = 0, ERASURE_FORMAT if header.erasure_id else FORMAT
    about: Mapping[str, Any] = (
        {"erasure_id": header.erasure_id}
        if header.erasure_id
        else {
            "model_id": header.model_id,
            "receipts_begin": {str(index): begin for index, begin in header.begins.items()},
            "registration": dict(header.registration),
        }
    )
    keys = list(header.public_keys)
    yield _line(
        {"lethe_bundle": number, "exported_at": header.exported_at, "public_keys": keys, **about}
    )
    for item in items:
        count += isinstance(item, Record)
        yield _line(_document(item))
    yield _line({"lethe_bundle_end": number, "records": count})


def leaf_items(leaves: Sequence[bytes]) -> Iterator[bytes]:
    """Yield the leaf hashes of a receipt log, as many at once as a line may have."""
    for start in range(0, len(leaves), _LEAVES):
        yield b"".join(leaves[start : start + _LEAVES])


_RECORD = '{"topic":'


def _document(item: Item) -> dict[str, Any]:
    match item:
        case Record():
            return {
                "topic": item.partition.topic,
                "partition": item.partition.index,
                "offset": item.offset,
                "headers": [[name, _encoded(value)] for name, value in item.headers],
                "value": _encoded(item.value or b""),
            }
        case bytes():
            return {"receipt_log": _encoded(item)}
        case Part():
            return {"model_id": item.model_id}
        case InclusionProof():
            path, place = b"".join(item.path), {"version": item.version, "index": item.index}
            return {"inclusion": {"leaf": _encoded(item.leaf), **place, "path": _encoded(path)}}
        case Cosigned():
            return {"checkpoint": item.note}
        case Opening():
            return {"opening": {"subject_id": item.subject_id, "salt": item.salt.hex()}}


def _line(document: Mapping[str, Any]) -> str:
    return json.dumps(document, separators=(",", ":")) + "\n"


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
            self._model_id = self.header.model_id
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
            count += "topic" in document
            if (item := self._item(document)) is not None:
                yield item
        raise InvalidData(
            f"{self._path}: ends after line {self._number} without its closing line: it was "
            "truncated; export it again"
        )

    def _item(self, document: dict[str, Any]) -> Item | None:
        """Return what a line holds; None: a line that nobody knows."""
        if "topic" in document:
            return self._record(document)
        if isinstance(document.get("checkpoint"), str) and len(document) == 1:
            return Cosigned(document["checkpoint"])
        if not self.header.erasure_id:
            log = "receipt_log" in document
            return b"".join(self._hashes(document["receipt_log"], "receipt_log")) if log else None
        if "model_id" in document:
            self._model_id = self._named(document["model_id"], "model")
            return Part(self._model_id)
        if "inclusion" in document:
            return self._inclusion(document["inclusion"])
        return self._opening(document["opening"]) if "opening" in document else None

    def _inclusion(self, members: Any) -> InclusionProof:
        members = members if isinstance(members, dict) else {}
        version, index = members.get("version"), members.get("index")
        leaf = self._hashes(members.get("leaf"), "leaf")
        path = self._hashes(members.get("path"), "path")
        places = _is_number(version, 0, MAX_SAFE) and _is_number(index, 0, MAX_SAFE)
        if len(leaf) != 1 or len(path) > _MAX_PATH or not places:
            raise self._bad("is not an inclusion proof with leaf, version, index and path")
        return InclusionProof(leaf[0], members["version"], members["index"], path)

    def _opening(self, members: Any) -> Opening:
        members = members if isinstance(members, dict) else {}
        subject, salt = members.get("subject_id"), members.get("salt")
        if not isinstance(subject, str) or not isinstance(salt, str) or not _SALT.fullmatch(salt):
            raise self._bad("opening does not hold a subject_id and a salt")
        return Opening(subject, bytes.fromhex(salt))

    def _hashes(self, value: Any, what: str) -> tuple[bytes, ...]:
        data = self._bytes(value, what)
        if len(data) % HASH_BYTES:
            raise self._bad(f"{what} is cut within a hash")
        return tuple(data[at : at + HASH_BYTES] for at in range(0, len(data), HASH_BYTES))

    def _finish(self, document: Mapping[str, Any], count: int) -> None:
        if not _is_number(document.get("records"), count, count):
            raise self._bad(f"{count} records were read, but the last line gives another count")
        if self._file.read(1):
            raise self._bad("there is data after the last line")

    def _header(self) -> Header:
        document = self._next()
        if document is None or "lethe_bundle" not in document:
            raise InvalidData(
                f"{self._path}: was not written by `lethe audit --export` or `lethe erasures "
                "--bundle`"
            )
        if not _is_number(document["lethe_bundle"], FORMAT, ERASURE_FORMAT):
            raise InvalidData(
                f"{self._path}: is not in a format from {FORMAT} to {ERASURE_FORMAT}, the only "
                "ones that this program reads; upgrade Lethe"
            )
        keys, registration = document.get("public_keys"), document.get("registration")
        exported_at = str(document.get("exported_at", ""))[:40]
        named = tuple(key for key in keys if isinstance(key, str)) if isinstance(keys, list) else ()
        if document["lethe_bundle"] == ERASURE_FORMAT:
            erasure_id = self._named(document.get("erasure_id"), "erasure")
            return Header("", exported_at, named, erasure_id=erasure_id)
        return Header(
            self._named(document.get("model_id"), "model"),
            exported_at,
            named,
            self._begins(document.get("receipts_begin")),
            registration if isinstance(registration, dict) else {},
        )

    def _named(self, name: Any, what: str) -> str:
        if not isinstance(name, str) or not 1 <= len(name) <= MAX_ID_LENGTH:
            raise self._bad(f"names no {what}")
        return name

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
            self._model_id.encode(errors="replace"),
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
