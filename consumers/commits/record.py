"""What a commit looks like in ``lethe.commits``: an open part, a sealed part, a signature.

    "lethe.commit.v1" LF
    length (uint32) | open part: JSON
    length (uint32) | sealed part: nonce (12) | ciphertext | tag (16)
    length (uint32) | signature as in `consumers.contract.signatures`, empty where no key is set

The open part is associated data of the sealed one. A commit's digest is the SHA-256 of the label,
the open part, the SHA-256 of the sealed part and the signature, each with its length: so the chain
can be checked without a key. Whether a commit counts is judged on the open part alone
(`consumers.commits.journal`), so that all readers agree, whatever keys they hold.

Inside, the sealed part is a JSON header with its length before it (uint32), then raw bytes, whose
lengths the header lists (``lengths``), in this order:

    meta (JSON)
    | receipts that are kept (``bodies``: digest of the request's content, and place in the log of
      receipts or -1) | receipts that are only sent (``repeats``: how many)
    | thetas (``thetas``: their names; float64, row major; no bytes stand for theta_exact)
    | fitted columns of a model with preprocessing (``columns``)
    | configuration (``configures``) | version event (``makes_version``)
    | refresh that is scheduled (``orders_job``)

Receipts and events lie there as they are published. Numbers are little-endian. Nothing is
compressed: thetas do not shrink, and lengths would reveal what is inside.
"""

from __future__ import annotations

import hashlib
import json
import struct
from collections.abc import Iterator, Mapping
from dataclasses import astuple, dataclass
from typing import Any

from lethe.consumers.commits.commit import Answer, Commit, CommitKind, RowChange, Staged, Tombstones
from lethe.consumers.contract.events import Receipt, RefreshRequested, Version
from lethe.consumers.contract.sealing import KeyUnknown, SealKeys
from lethe.consumers.contract.signatures import HEADER, Signer, TrustedKeys
from lethe.engine.errors import CorruptState, FormatTooNew, Unauthenticated
from lethe.engine.store.layout.keys import COMMIT_PARTITIONS
from lethe.engine.store.layout.reading import MAX_DIGITS, parse_json
from lethe.engine.store.layout.state import (
    DeferredRequest,
    Head,
    ModelConfig,
    meta_json,
    parse_config,
    parse_meta,
)

COMMIT = "lethe.commit.v1"
FORMAT = 3
"""Of a commit of a model with preprocessing; 2 of another that changes rows, or swaps in what has
caught up with such changes, or keeps tombstones: a program that does not know them must not pass
over them. All others are written as format 1."""

FORMATS = (1, 2, FORMAT)
MAX_RECORD_BYTES = 8 << 20
"""Of a record, including its key: what the topic accepts."""

MAX_OPEN_BYTES = 4096
_LABEL = COMMIT.encode() + b"\n"
_LENGTH = struct.Struct("<I")
_PLAIN = struct.Struct("<I")


class Untrusted(CorruptState):
    """A commit is not signed by a key that is trusted."""

    code = "UNTRUSTED"


UNOPENED = (KeyUnknown, Untrusted)
"""Why a commit that counts cannot be opened here, whatever is in it."""


@dataclass(frozen=True, slots=True)
class OpenPart:
    """What everybody can read of a commit.

    Attributes
    ----------
    model_id, number, prev
        Its model, its number, and the digest of the commit before it.
    version
        The number of the version that it makes, or None.
    key
        Name of the key that seals it.
    skips
        Whether its number may skip some: the log has lost the commits before it, or they have
        expired (`lethe recover`, `lethe register --replace`).
    partitions
        Number of commits partitions that its writer knew.
    format
        Format of the record.
    """

    model_id: str
    number: int
    prev: str
    version: int | None
    key: str
    skips: bool = False
    partitions: int = COMMIT_PARTITIONS
    format: int = FORMAT


@dataclass(frozen=True, slots=True)
class Framed:
    """A record split into its parts, but not opened."""

    open: OpenPart
    digest: str
    associated: bytes
    sealed: bytes
    signature: bytes


def encode(commit: Commit, seals: SealKeys, signer: Signer | None) -> tuple[bytes, str]:
    """Return a commit's record and its digest."""
    version = None if commit.version is None else commit.version.version
    associated = json.dumps(
        {
            "format": _format_of(commit),
            "model_id": commit.model_id,
            "partitions": COMMIT_PARTITIONS,
            "commit": commit.number,
            "prev": commit.prev,
            "version": version,
            "key": seals.current,
            **({"checkpoint": True} if commit.skips else {}),
        },
        ensure_ascii=False,
        separators=(",", ":"),
    ).encode()
    sealed = seals.seal(commit.model_id, _plain(commit), associated)
    covered = _LABEL + _framed(associated) + hashlib.sha256(sealed).digest()
    signature = b"" if signer is None else signer.sign(COMMIT, covered)
    record = _LABEL + _framed(associated) + _framed(sealed) + _framed(signature)
    return record, _digest(covered, signature)


def _format_of(commit: Commit) -> int:
    if commit.meta.config.preprocess:
        return FORMAT
    return 2 if commit.writes_rows or commit.tombstones else 1


def decode_frame(value: bytes | None) -> Framed | None:
    """Split a record into its parts; None if it is not a commit of any model.

    A record of a format that is not known yet still names its model: see `OpenPart.format`.
    """
    if value is None or not value.startswith(_LABEL):
        return None
    try:
        associated, at = _take(value, len(_LABEL), MAX_OPEN_BYTES)
        sealed, at = _take(value, at, MAX_RECORD_BYTES)
        signature, at = _take(value, at, MAX_OPEN_BYTES)
        part = _open_part(parse_json(associated))
    except (ValueError, RecursionError):
        return None
    if at != len(value):
        return None
    covered = _LABEL + _framed(associated) + hashlib.sha256(sealed).digest()
    return Framed(part, _digest(covered, signature), associated, sealed, signature)


def open_commit(
    framed: Framed, seals: SealKeys, trusted: TrustedKeys | None, config: ModelConfig | None
) -> Commit:
    """Return the commit in a record that counts.

    ``config`` is the model's configuration before it, for commits that do not change that.

    Raises
    ------
    FormatTooNew
        It was written by a newer Lethe.
    Untrusted
        It is not signed by any of the trusted keys.
    KeyUnknown
        It cannot be opened here.
    CorruptState
        The sealed part does not parse.
    """
    part = framed.open
    what = f"model {part.model_id!r}, commit {part.number}"
    if part.format not in FORMATS:
        raise FormatTooNew(f"{what} is of format {part.format}, this program knows {FORMAT}")
    if trusted is not None:
        try:
            check_signature(framed, trusted)
        except Unauthenticated as error:
            raise Untrusted(f"{what}: {error}; see LETHE_TRUSTED_KEYS") from None
    plain = seals.open(part.key, part.model_id, framed.sealed, framed.associated)
    try:
        return _commit(part, plain, config)
    except (ValueError, KeyError, TypeError, RecursionError, struct.error):
        raise CorruptState(f"{what}: what was sealed does not parse; upgrade this worker") from None


def check_signature(framed: Framed, trusted: TrustedKeys) -> str:
    """Check a record's signature; return the id of the key that signed it.

    Raises
    ------
    Unauthenticated
        It is unsigned, or not signed by one of these keys.
    """
    covered = _LABEL + _framed(framed.associated) + hashlib.sha256(framed.sealed).digest()
    return trusted.check(COMMIT, covered, ((HEADER, framed.signature),) * bool(framed.signature))


def peek_deleted(framed: Framed, seals: SealKeys) -> tuple[str, ...]:
    """Return the rows that a commit deletes, without parsing the rest of it.

    Raises
    ------
    KeyUnknown
        It cannot be opened here.
    CorruptState
        The sealed part does not parse.
    """
    part = framed.open
    plain = seals.open(part.key, part.model_id, framed.sealed, framed.associated)
    try:
        return _texts(_parts(plain)[0]["deleted"])
    except (ValueError, KeyError, TypeError, RecursionError, struct.error):
        raise CorruptState(
            f"model {part.model_id!r}, commit {part.number}: what was sealed does not parse"
        ) from None


# -- the frame ------------------------------------------------------------------------------------


def _framed(part: bytes) -> bytes:
    return _LENGTH.pack(len(part)) + part


def _digest(covered: bytes, signature: bytes) -> str:
    return hashlib.sha256(covered + _framed(signature)).hexdigest()


def _take(value: bytes, at: int, limit: int) -> tuple[bytes, int]:
    if at + _LENGTH.size > len(value):
        raise ValueError("it is cut short")
    [length] = _LENGTH.unpack_from(value, at)
    at += _LENGTH.size
    if length > limit or at + length > len(value):
        raise ValueError("a part is longer than it can be")
    return value[at : at + length], at + length


def _open_part(data: Any) -> OpenPart:
    if not isinstance(data, dict):
        raise ValueError("the open part is no object")  # noqa: TRY004 - bad input, not a bad type
    version = data.get("version")
    return OpenPart(
        _text(data.get("model_id"), 512),
        _count(data.get("commit")),
        _text(data.get("prev"), 64),
        None if version is None else _count(version),
        _text(data.get("key"), 64),
        data.get("checkpoint") is True,
        _count(data.get("partitions")),
        _count(data.get("format")),
    )


def _text(value: Any, limit: int) -> str:
    if not isinstance(value, str) or len(value.encode()) > limit:
        raise ValueError("a text is none, or too long")
    return value


def _count(value: Any) -> int:
    if type(value) is not int or not 0 <= value < 10**MAX_DIGITS:
        raise ValueError("a number is none")
    return value


# -- the sealed part ------------------------------------------------------------------------------


def _plain(commit: Commit) -> bytes:
    blobs: list[bytes] = [meta_json(commit.meta)]
    blobs += [answer.value for answer in commit.answers]
    blobs += commit.repeats
    blobs += commit.thetas.values()
    if commit.columns:
        blobs.append(commit.columns)
    if commit.configures:
        blobs.append(commit.meta.config.model_dump_json().encode())
    if commit.version is not None:
        blobs.append(commit.version_value)
    if commit.job is not None:
        blobs.append(commit.job.value())
    if commit.base is not None:
        blobs.append(commit.base_version)
    staged = commit.staged
    header: dict[str, Any] = {
        "kind": commit.kind,
        "newest": commit.newest,
        "offsets": dict(commit.offsets),
        "bodies": [[answer.body.hex(), answer.place] for answer in commit.answers],
        "repeats": len(commit.repeats),
        "thetas": list(commit.thetas),
        **({"columns": True} if commit.columns else {}),
        "configures": commit.configures,
        "makes_version": commit.version is not None,
        "orders_job": commit.job is not None,
        "deleted": commit.deleted,
        "erased": None if commit.erased == commit.deleted else commit.erased,
        "left_out": commit.left_out,
        **({"tombstones": astuple(commit.tombstones)} if commit.tombstones is not None else {}),
        **({"changes": [astuple(change) for change in commit.changes]} if commit.changes else {}),
        "deferred": {
            request_id: request.model_dump() for request_id, request in commit.deferred.items()
        },
        "undeferred": commit.undeferred,
        "clears_Q": commit.clears_Q,
        "empties": commit.empties,
        "opening": None if commit.opening is None else dict(commit.opening),
        "secret": None if commit.secret is None else commit.secret.hex(),
        "staged": None
        if staged is None
        else {
            "generation": staged.generation,
            "dataset": staged.dataset,
            "mark": staged.mark,
            "caught_up": staged.caught_up,
            "former": staged.former,
            **({"changed": staged.changed} if staged.changed else {}),
        },
        "base": None if commit.base is None else [commit.base.commit, commit.base.digest],
        "lengths": [len(blob) for blob in blobs],
    }
    encoded_header = json.dumps(header, ensure_ascii=False, separators=(",", ":")).encode()
    return b"".join((_PLAIN.pack(len(encoded_header)), encoded_header, *blobs))


def _commit(part: OpenPart, plain: bytes, config: ModelConfig | None) -> Commit:
    header, blobs = _parts(plain)
    meta = _next(blobs)
    answers = [_answer(_next(blobs), body, place) for body, place in header["bodies"]]
    repeats = tuple(_next(blobs) for _ in range(_count(header["repeats"])))
    thetas = {name: _next(blobs) for name in _texts(header["thetas"])}
    columns = _next(blobs) if header.get("columns") else b""
    if header["configures"]:
        config = parse_config(_next(blobs), part.model_id)
    if config is None:
        raise ValueError("it says nothing of the configuration, and none is known")
    version_value = _next(blobs) if header["makes_version"] else b""
    job = RefreshRequested.read(_next(blobs)) if header["orders_job"] else None
    base = None if header["base"] is None else _head(*header["base"])
    base_version = b"" if base is None else _next(blobs)
    if next(blobs, None) is not None:
        raise ValueError("it has more parts than it says")
    deleted = _texts(header["deleted"])
    erased = header["erased"]
    secret = header["secret"]
    return Commit(
        model_id=part.model_id,
        number=part.number,
        prev=part.prev,
        kind=CommitKind(header["kind"]),
        meta=parse_meta(meta, config),
        newest=_count(header["newest"]),
        configures=header["configures"],
        offsets=_offsets(header["offsets"]),
        answers=tuple(answers),
        repeats=repeats,
        deleted=deleted,
        erased=deleted if erased is None else _texts(erased),
        left_out=_texts(header["left_out"]),
        tombstones=_tombstones(header.get("tombstones")),
        changes=tuple(_change(*change) for change in header.get("changes", ())),
        deferred={
            request_id: DeferredRequest.model_validate(request)
            for request_id, request in dict(header["deferred"]).items()
        },
        undeferred=_texts(header["undeferred"]),
        thetas=thetas,
        columns=columns,
        clears_Q=header["clears_Q"],
        version=Version.read(version_value) if version_value else None,
        version_value=version_value,
        job=job,
        staged=_staged(header["staged"]),
        empties=header["empties"],
        opening=None if header["opening"] is None else _offsets(header["opening"]),
        skips=part.skips,
        secret=None if secret is None else bytes.fromhex(secret),
        base=base,
        base_version=base_version,
    )


def _tombstones(fields: Any) -> Tombstones | None:
    if fields is None:
        return None
    until, marks = fields
    return Tombstones(_count(until), _texts(marks))


def _change(inserts: Any, rows: Any, partition: Any, offset: Any, digest: Any) -> RowChange:
    if not isinstance(inserts, bool):
        raise ValueError("a change is neither an insertion nor a correction")  # noqa: TRY004
    return RowChange(
        inserts, _texts(rows), _text(partition, 300), _count(offset), _text(digest, 64)
    )


def _head(number: Any, digest: Any) -> Head:
    return Head(_count(number), _text(digest, 64))


def _answer(value: bytes, body: str, place: int) -> Answer:
    return Answer(Receipt.read(value), value, bytes.fromhex(body), int(place))


def _next(blobs: Iterator[bytes]) -> bytes:
    part = next(blobs, None)
    if part is None:
        raise ValueError("it has fewer parts than it says")
    return part


def _parts(plain: bytes) -> tuple[dict[str, Any], Iterator[bytes]]:
    encoded_header, at = _take(plain, 0, len(plain))
    header = parse_json(encoded_header, ours=True)
    if not isinstance(header, dict):
        raise ValueError("the header is no object")  # noqa: TRY004 - as above
    blobs = []
    for length in header["lengths"]:
        end = at + _count(length)
        if end > len(plain):
            raise ValueError("a part is longer than it can be")
        blobs.append(plain[at:end])
        at = end
    if at != len(plain):
        raise ValueError("something follows its last part")
    return header, iter(blobs)


def _staged(fields: Mapping[str, Any] | None) -> Staged | None:
    if fields is None:
        return None
    return Staged(
        _text(fields["generation"], 200),
        None if fields["dataset"] is None else _text(fields["dataset"], 200),
        _text(fields["mark"], 64),
        _texts(fields["caught_up"]),
        _texts(fields["former"]),
        _texts(fields.get("changed", [])),
    )


def _texts(texts: Any) -> tuple[str, ...]:
    if not isinstance(texts, list) or not all(isinstance(text, str) for text in texts):
        raise ValueError("a list holds something else than texts")
    return tuple(texts)


def _offsets(offsets: Any) -> dict[str, int]:
    if not isinstance(offsets, dict):
        raise ValueError("offsets are no object")  # noqa: TRY004 - as above
    return {str(name): _count(offset) for name, offset in offsets.items()}
