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

import json
from collections.abc import Iterator, Mapping
from dataclasses import astuple
from typing import Any

from lethe.consumers.commits.commit import (
    Answer,
    Commit,
    CommitKind,
    RowChange,
    RowDisclosed,
    Staged,
    Tombstones,
)
from lethe.consumers.commits.frame import OpenPart, take, text, whole_number, with_length
from lethe.consumers.contract.events import RefreshRequested, Version
from lethe.consumers.contract.receipt import Receipt
from lethe.engine.store.layout.config import ModelConfig, parse_config
from lethe.engine.store.layout.disclosed import RowFate
from lethe.engine.store.layout.meta import meta_json, parse_meta
from lethe.engine.store.layout.reading import parse_json
from lethe.engine.store.layout.state import DeferredRequest, Head


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
    staged = commit.staged
    header: dict[str, Any] = {
        "kind": commit.kind,
        "newest": commit.newest,
        "offsets": dict(commit.offsets),
        "bodies": [[answer.body.hex(), answer.place] for answer in commit.answers],
        "repeats": len(commit.repeats),
        "thetas": list(commit.thetas),
        "columns": bool(commit.columns),
        "configures": commit.configures,
        "makes_version": commit.version is not None,
        "orders_job": commit.job is not None,
        "deleted": commit.deleted,
        "erased": None if commit.erased == commit.deleted else commit.erased,
        "left_out": commit.left_out,
        "tombstones": None if commit.tombstones is None else astuple(commit.tombstones),
        "changes": [astuple(change) for change in commit.changes],
        "disclosed": [astuple(row) for row in commit.disclosed],
        "undisclosed": commit.undisclosed,
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
            "changed": staged.changed,
        },
        "base": None if commit.base is None else [commit.base.commit, commit.base.digest],
        "lengths": [len(blob) for blob in blobs],
    }
    encoded_header = json.dumps(header, ensure_ascii=False, separators=(",", ":")).encode()
    return b"".join((with_length(encoded_header), *blobs))


def decode_sealed_part(part: OpenPart, plain: bytes, config: ModelConfig | None) -> Commit:
    """Return a commit from its open part and what was sealed; ``config`` is that before it.

    Raises
    ------
    ValueError, KeyError, TypeError, RecursionError
        It does not parse.
    """
    header, blobs = _split(plain)
    meta = _next(blobs)
    answers = [_answer(_next(blobs), body, place) for body, place in header["bodies"]]
    repeats = tuple(_next(blobs) for _ in range(whole_number(header["repeats"])))
    thetas = {name: _next(blobs) for name in _texts(header["thetas"])}
    columns = _next(blobs) if header["columns"] else b""
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
        newest=whole_number(header["newest"]),
        configures=header["configures"],
        offsets=_offsets(header["offsets"]),
        answers=tuple(answers),
        repeats=repeats,
        deleted=deleted,
        erased=deleted if erased is None else _texts(erased),
        left_out=_texts(header["left_out"]),
        tombstones=_tombstones(header["tombstones"]),
        changes=tuple(_change(*change) for change in header["changes"]),
        disclosed=tuple(_disclosed(*row) for row in header["disclosed"]),
        undisclosed=_texts(header["undisclosed"]),
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


def deleted_rows(plain: bytes) -> tuple[str, ...]:
    """Return the rows that a commit deletes, without parsing the rest of it.

    Raises
    ------
    ValueError, KeyError, TypeError, RecursionError
        It does not parse.
    """
    return _texts(_split(plain)[0]["deleted"])


def _tombstones(fields: Any) -> Tombstones | None:
    if fields is None:
        return None
    until, marks = fields
    return Tombstones(whole_number(until), _texts(marks))


def _change(inserts: Any, rows: Any, partition: Any, offset: Any, digest: Any) -> RowChange:
    if not isinstance(inserts, bool):
        raise ValueError("a change is neither an insertion nor a correction")  # noqa: TRY004
    return RowChange(
        inserts, _texts(rows), text(partition, 300), whole_number(offset), text(digest, 64)
    )


def _disclosed(row_id: Any, fate: Any, distance: Any, length: Any) -> RowDisclosed:
    numbers = (None if number is None else float(number) for number in (distance, length))
    return RowDisclosed(text(row_id, 512), RowFate(fate), *numbers)


def _head(number: Any, digest: Any) -> Head:
    return Head(whole_number(number), text(digest, 64))


def _answer(value: bytes, body: str, place: int) -> Answer:
    return Answer(Receipt.read(value), value, bytes.fromhex(body), int(place))


def _next(blobs: Iterator[bytes]) -> bytes:
    part = next(blobs, None)
    if part is None:
        raise ValueError("it has fewer parts than it says")
    return part


def _split(plain: bytes) -> tuple[dict[str, Any], Iterator[bytes]]:
    encoded_header, at = take(plain, 0, len(plain))
    header = parse_json(encoded_header, ours=True)
    if not isinstance(header, dict):
        raise ValueError("the header is no object")  # noqa: TRY004 - as above
    blobs = []
    for length in header["lengths"]:
        end = at + whole_number(length)
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
        text(fields["generation"], 200),
        None if fields["dataset"] is None else text(fields["dataset"], 200),
        text(fields["mark"], 64),
        _texts(fields["caught_up"]),
        _texts(fields["former"]),
        _texts(fields["changed"]),
    )


def _texts(texts: Any) -> tuple[str, ...]:
    if not isinstance(texts, list) or not all(isinstance(text, str) for text in texts):
        raise ValueError("a list holds something else than texts")
    return tuple(texts)


def _offsets(offsets: Any) -> dict[str, int]:
    if not isinstance(offsets, dict):
        raise ValueError("offsets are no object")  # noqa: TRY004 - as above
    return {str(name): whole_number(offset) for name, offset in offsets.items()}
