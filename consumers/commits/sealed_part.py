"""What is sealed of a commit, as bytes.

It is a JSON header with its length before it (uint32), then raw bytes, whose lengths the header
lists (``lengths``), in this order:

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

from collections.abc import Iterator
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

from lethe.consumers.commits.commit import (
    Commit,
    CommitKind,
    KeptReceipt,
    RowChange,
    RowDisclosed,
    Staged,
    Tombstones,
    Whole,
)
from lethe.consumers.commits.frame import OpenPart, take, with_length
from lethe.consumers.contract.events import RefreshRequested, Version
from lethe.consumers.contract.receipt import Receipt
from lethe.engine.store.layout.config import ModelConfig, parse_config
from lethe.engine.store.layout.meta import meta_json, parse_meta
from lethe.engine.store.layout.reading import Texts, parse_json
from lethe.engine.store.layout.state import DeferredRequest, Head

Flag = Annotated[bool, Field(strict=True)]
Place = Annotated[int, Field(strict=True, ge=-1, lt=1 << 53)]


class _Header(BaseModel):
    """The header: the fields of a commit that are short, and which blobs follow."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    kind: CommitKind
    newest: Whole
    offsets: dict[str, Whole]
    bodies: tuple[tuple[str, Place], ...]
    repeats: Whole
    thetas: Texts
    columns: Flag
    configures: Flag
    makes_version: Flag
    orders_job: Flag
    deleted: Texts
    erased: Texts | None
    left_out: Texts
    tombstones: Tombstones | None
    changes: tuple[RowChange, ...]
    disclosed: tuple[RowDisclosed, ...]
    undisclosed: Texts
    deferred: dict[str, DeferredRequest]
    undeferred: Texts
    clears_Q: Flag
    empties: Flag
    opening: dict[str, Whole] | None
    secret: str | None
    staged: Staged | None
    base: tuple[Whole, Annotated[str, Field(max_length=64)]] | None
    lengths: tuple[Whole, ...]


_SAME = (
    "kind", "newest", "offsets", "configures", "deleted", "left_out", "tombstones", "changes",
    "disclosed", "undisclosed", "deferred", "undeferred", "clears_Q", "empties", "opening",
    "staged",
)  # fmt: skip
"""Fields of a commit that the header has as they are."""


def encode_sealed_part(commit: Commit) -> bytes:
    """Return what is sealed of a commit."""
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
    header = _Header(
        **{name: getattr(commit, name) for name in _SAME},
        bodies=tuple((answer.body.hex(), answer.place) for answer in commit.answers),
        repeats=len(commit.repeats),
        thetas=tuple(commit.thetas),
        columns=bool(commit.columns),
        makes_version=commit.version is not None,
        orders_job=commit.job is not None,
        erased=None if commit.erased == commit.deleted else commit.erased,
        secret=None if commit.secret is None else commit.secret.hex(),
        base=None if commit.base is None else (commit.base.commit, commit.base.digest),
        lengths=tuple(map(len, blobs)),
    )
    return b"".join((with_length(header.model_dump_json().encode()), *blobs))


def decode_sealed_part(part: OpenPart, plain: bytes, config: ModelConfig | None) -> Commit:
    """Return a commit from its open part and what was sealed; ``config`` is that before it.

    Raises
    ------
    ValueError, RecursionError
        It does not parse.
    """
    header, blobs = _split(plain)
    meta = _next(blobs)
    answers = [_answer(_next(blobs), body, place) for body, place in header.bodies]
    repeats = tuple(_next(blobs) for _ in range(header.repeats))
    thetas = {name: _next(blobs) for name in header.thetas}
    columns = _next(blobs) if header.columns else b""
    if header.configures:
        config = parse_config(_next(blobs), part.model_id)
    if config is None:
        raise ValueError("it says nothing of the configuration, and none is known")
    version_value = _next(blobs) if header.makes_version else b""
    job = RefreshRequested.read(_next(blobs)) if header.orders_job else None
    base_version = b"" if header.base is None else _next(blobs)
    if next(blobs, None) is not None:
        raise ValueError("it has more parts than it says")
    return Commit(
        model_id=part.model_id,
        number=part.number,
        prev=part.prev,
        meta=parse_meta(meta, config),
        answers=tuple(answers),
        repeats=repeats,
        erased=header.deleted if header.erased is None else header.erased,
        thetas=thetas,
        columns=columns,
        version=Version.read(version_value) if version_value else None,
        version_value=version_value,
        job=job,
        skips=part.skips,
        secret=None if header.secret is None else bytes.fromhex(header.secret),
        base=None if header.base is None else Head(*header.base),
        base_version=base_version,
        **{name: getattr(header, name) for name in _SAME},
    )


def deleted_rows(plain: bytes) -> tuple[str, ...]:
    """Return the rows that a commit deletes, without parsing what follows the header.

    Raises
    ------
    ValueError, RecursionError
        It does not parse.
    """
    return _split(plain)[0].deleted


def _answer(value: bytes, body: str, place: int) -> KeptReceipt:
    return KeptReceipt(Receipt.read(value), value, bytes.fromhex(body), place)


def _next(blobs: Iterator[bytes]) -> bytes:
    part = next(blobs, None)
    if part is None:
        raise ValueError("it has fewer parts than it says")
    return part


def _split(plain: bytes) -> tuple[_Header, Iterator[bytes]]:
    encoded, at = take(plain, 0, len(plain))
    header = _Header.model_validate(parse_json(encoded, ours=True))
    blobs = []
    for length in header.lengths:
        end = at + length
        if end > len(plain):
            raise ValueError("a part is longer than it can be")
        blobs.append(plain[at:end])
        at = end
    if at != len(plain):
        raise ValueError("something follows its last part")
    return header, iter(blobs)
