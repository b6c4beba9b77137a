"""A fold that was written apart from the product, from the layout that the record documents.

It reads the bytes of ``lethe.commits`` and a seal secret, and says what must stand in topics and
store. It imports nothing of the product, so that a mistake in the product's own reading of its
records cannot hide itself here. It looks at far less: no rows, no V, no Q.

What the commits say of themselves is checked as it is read: a receipt log that skips a place,
a version that names another commit than its own, or parameters that are not those of their version
are a `Disagreement`.
"""

from __future__ import annotations

import hashlib
import json
import math
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from tests.proof.sealed_record import (
    Contents,
    Disagreement,
    Record,
    header_of,
    name_of,
    opened,
    partition_of,
    read_record,
)

__all__ = [
    "Disagreement",
    "ModelFold",
    "Record",
    "fold",
    "header_of",
    "name_of",
    "partition_of",
    "read_record",
    "take",
]

JUMPS = ("registration", "checkpoint")


@dataclass
class ModelFold:
    """What the commits of one model come to.

    Attributes
    ----------
    head
        Number and digest of its newest commit.
    commits
        Its valid commits in order: offset, digest and header (`header_of`) of each.
    void
        How many of its records lost.
    gap
        Whether a record lies beyond the next one: what follows is not folded.
    ledger
        Row id to the version that was the newest once it was deleted.
    retired
        Rows that a --replace left out and that were not deleted.
    inserted
        Rows that were inserted since the newest registration.
    disclosed
        By row id, what versions have disclosed of it since the newest registration: 25 bytes each.
    offsets
        By partition of requests, the next offset to decide.
    opening
        By partition, from where on requests are the model's; None until it is said.
    finals, waiting
        By request id, the bytes of its final receipt; or of the receipt of one that waits.
    deferred
        Ids of the requests that wait for a rebuild now.
    log
        The receipt log: the bytes of the final ones, by their place. ``whole`` says whether the
        commits reach back to its beginning.
    peaks
        Height and root of the full subtrees of RFC 9162's tree over it, the oldest first.
    sent
        Bytes of all receipts that commits send, repeats and conflicts included, in order.
    versions
        Bytes of all version events, in order.
    jobs
        Bytes of all refreshes that were ordered.
    thetas, columns
        By name the newest: raw float64; and the fitted columns of a model with preprocessing.
    meta, config
        What the head says: JSON objects.
    """

    head: tuple[int, str] = (-1, "")
    commits: list[tuple[int, str, dict[str, Any]]] = field(default_factory=list)
    void: int = 0
    gap: bool = False
    ledger: dict[str, int] = field(default_factory=dict)
    retired: set[str] = field(default_factory=set)
    inserted: set[str] = field(default_factory=set)
    disclosed: dict[str, bytes] = field(default_factory=dict)
    offsets: dict[str, int] = field(default_factory=dict)
    opening: dict[str, int] | None = None
    finals: dict[str, bytes] = field(default_factory=dict)
    waiting: dict[str, bytes] = field(default_factory=dict)
    deferred: set[str] = field(default_factory=set)
    log: list[bytes] = field(default_factory=list)
    whole: bool = True
    peaks: list[tuple[int, bytes]] = field(default_factory=list)
    sent: list[bytes] = field(default_factory=list)
    versions: list[bytes] = field(default_factory=list)
    jobs: list[bytes] = field(default_factory=list)
    thetas: dict[str, bytes] = field(default_factory=dict)
    columns: list[dict[str, Any]] = field(default_factory=list)
    meta: dict[str, Any] = field(default_factory=dict)
    config: dict[str, Any] = field(default_factory=dict)

    @property
    def version(self) -> int:
        """Number of the newest version."""
        return -1 if not self.commits else int(self.commits[-1][2]["newest"])


def fold(partitions: Mapping[int, Sequence[bytes | None]], *secrets: bytes) -> dict[str, ModelFold]:
    """Return what the commits of all models come to.

    Parameters
    ----------
    partitions
        All records of ``lethe.commits``: by partition, in the order of their offsets.
    secrets
        What commits are sealed with, 32 bytes each.

    Raises
    ------
    Disagreement
        A commit that counts cannot be opened, or contradicts itself or the ones before.
    """
    keys = {name_of(secret): secret for secret in secrets}
    models: dict[str, ModelFold] = {}
    for index, values in sorted(partitions.items()):
        records = [
            record
            for offset, value in enumerate(values)
            if (record := read_record(offset, value)) is not None
        ]
        continued = {record.open["prev"] for record in records}
        for record in records:
            name = record.open["model_id"]
            model = models.setdefault(name, ModelFold())
            take(model, record, index, keys, begins=record.digest in continued)
    return models


def take(
    model: ModelFold,
    record: Record,
    index: int,
    keys: Mapping[str, bytes],
    *,
    begins: bool = False,
) -> None:
    """Judge the next record of a model in partition ``index``, and apply it if it counts.

    ``keys`` are secrets by name. Raises as `fold`.
    """
    if _counts(model, record, index, begins=begins):
        _take(model, record, opened(record, keys))


def _counts(model: ModelFold, record: Record, index: int, *, begins: bool) -> bool:
    """Judge a record: whether it counts; a void one is counted, a gap is noted.

    Where the log does not reach back to a model's beginning, ``begins``: another record continues
    this one.
    """
    number, digest = model.head
    if model.gap:
        return False
    if partition_of(record.open["model_id"]) != index or record.number <= number:
        model.void += 1
        return False
    if not model.commits and record.number > 0 and begins:
        return True
    follows = record.number == number + 1 or record.open.get("checkpoint") is True
    model.gap = not follows or record.open["prev"] != digest
    return not model.gap


# -- what it comes to -----------------------------------------------------------------------------


def _take(model: ModelFold, record: Record, contents: Contents) -> None:
    """Apply a commit that counts."""
    header = contents.header
    begins = not model.commits
    model.head = (record.number, record.digest)
    model.commits.append((record.offset, record.digest, header))
    _live(model, header, contents.meta, begins=begins)
    model.meta = contents.meta
    model.config = contents.config or model.config
    _rows(model, header)
    _disclosed(model, header)
    _offsets(model, header)
    _answers(model, contents, begins=begins)
    _waiting(model, header)
    model.jobs += [] if contents.job is None else [contents.job]
    if contents.thetas:
        # One of no bytes is theta_exact itself, which is then there as well.
        exact = contents.thetas.get("theta_exact", b"")
        model.thetas |= {name: data or exact for name, data in contents.thetas.items()}
    model.columns = model.columns if contents.columns is None else contents.columns
    if contents.version is not None:
        _version(model, record, contents.version)


def _live(
    model: ModelFold, header: Mapping[str, Any], meta: Mapping[str, Any], *, begins: bool
) -> None:
    """Check how many rows a batch of requests leaves, from what it says it did."""
    if begins or header["kind"] != "requests":
        return
    erased = header["deleted"] if header["erased"] is None else header["erased"]
    inserted = sum(len(rows) for inserts, rows, *_ in header.get("changes", ()) if inserts)
    if meta["rows_live"] != model.meta["rows_live"] + inserted - len(erased):
        raise Disagreement(f"commit {model.head[0]} leaves {meta['rows_live']} rows")


def _rows(model: ModelFold, header: Mapping[str, Any]) -> None:
    if header["kind"] == "registration":
        model.inserted.clear()
    for inserts, rows, *_ in header.get("changes", ()):
        if not model.ledger.keys().isdisjoint(rows):
            raise Disagreement(f"commit {model.head[0]} changes a row that was deleted")
        if inserts and not model.inserted.isdisjoint(rows):
            raise Disagreement(f"commit {model.head[0]} inserts a row twice")
        model.inserted |= set(rows) if inserts else set()
        model.retired -= set(rows) if inserts else set()
    for row in header["deleted"]:
        model.ledger.setdefault(row, int(header["newest"]))
        model.retired.discard(row)
    model.retired |= set(header["left_out"])


def _disclosed(model: ModelFold, header: Mapping[str, Any]) -> None:
    if header["kind"] == "registration":
        model.disclosed.clear()
    for row, fate, *numbers in header["disclosed"]:
        distance, length = (math.nan if number is None else number for number in numbers)
        entry = struct.pack("<Qcdd", header["newest"], fate[0].encode(), distance, length)
        model.disclosed[row] = model.disclosed.get(row, b"") + entry
    for row in header["undisclosed"]:
        model.disclosed.pop(row, None)


def _offsets(model: ModelFold, header: Mapping[str, Any]) -> None:
    lowers = header["kind"] == "checkpoint"
    for partition, offset in header["offsets"].items():
        former = -1 if lowers else model.offsets.get(partition, -1)
        model.offsets[partition] = max(former, offset)
    if header["opening"] is not None:
        model.opening = dict(header["opening"])


def _answers(model: ModelFold, contents: Contents, *, begins: bool) -> None:
    """Take the receipts of a commit, and check the log that the final ones are added to."""
    stated = contents.meta["receipt_log"]
    finals = [place for _, place in contents.header["bodies"] if place >= 0]
    if begins:
        model.whole = stated["size"] == len(finals)
    for (_, place), value in zip(contents.header["bodies"], contents.answers, strict=True):
        receipt = json.loads(value)
        request = receipt["request_id"]
        if (receipt["status"] == "DEFERRED") != (place == -1):
            raise Disagreement(f"request {request!r}: {receipt['status']}, and has place {place}")
        if request in model.finals:
            raise Disagreement(f"request {request!r} gets another receipt after its final one")
        if place == -1:
            model.waiting.setdefault(request, value)
            continue
        if model.whole and place != len(model.log):
            raise Disagreement(f"request {request!r}: place {place}, and {len(model.log)} is next")
        model.waiting.pop(request, None)
        model.finals[request] = value
        model.log.append(value)
        _grow(model.peaks, value)
    model.sent += [*contents.answers, *contents.repeats]
    peaks = [node.hex() for _, node in model.peaks]
    if model.whole and (stated["size"], stated["peaks"]) != (len(model.log), peaks):
        raise Disagreement(f"commit {model.head[0]}: its receipt log is another one")


def _waiting(model: ModelFold, header: Mapping[str, Any]) -> None:
    if header["kind"] in (*JUMPS, "unregistration"):
        model.deferred.clear()
    model.deferred |= header["deferred"].keys()
    model.deferred -= set(header["undeferred"])


def _grow(peaks: list[tuple[int, bytes]], entry: bytes) -> None:
    """Add an entry to a tree, given as its full subtrees."""
    height, node = 0, hashlib.sha256(b"\x00" + entry).digest()
    while peaks and peaks[-1][0] == height:
        node = hashlib.sha256(b"\x01" + peaks.pop()[1] + node).digest()
        height += 1
    peaks.append((height, node))


def root_of(peaks: Sequence[tuple[int, bytes]]) -> str:
    """Return the root of a tree, in hexadecimal."""
    root = b""
    for _, peak in reversed(peaks):
        root = hashlib.sha256(b"\x01" + peak + root).digest() if root else peak
    return (root or hashlib.sha256(b"").digest()).hex()


def _version(model: ModelFold, record: Record, value: bytes) -> None:
    """Take a version, and compare it with the commit that makes it."""
    version = json.loads(value)
    what = f"commit {record.number}, version {version['version']}"
    if version["version"] != record.open["version"] or model.version != version["version"]:
        raise Disagreement(f"{what}: the open part or the header says another number")
    if (version["commit"], version["commit_prev"]) != (record.number, record.open["prev"]):
        raise Disagreement(f"{what} names another commit as its own")
    if model.versions:
        before = json.loads(model.versions[-1])
        if version["version"] != before["version"] + 1:
            raise Disagreement(f"{what} follows version {before['version']}")
        if version["prev_digest"] != before["digest"]:
            raise Disagreement(f"{what} does not link to the version before")
    if version["parameters_digest"] != parameters_digest(model):
        raise Disagreement(f"{what}: its parameters are others than it says")
    head = {"size": len(model.log), "root": root_of(model.peaks)}
    if model.whole and version["receipt_log"] != head:
        raise Disagreement(f"{what} names another receipt log")
    model.versions.append(value)


def parameters_digest(model: ModelFold) -> str:
    """Return the digest of what a model publishes, as docs/chain.md defines it."""
    config = model.config
    theta = model.thetas["parameters" if model.columns else "published"]
    classes = list(config.get("class_names", ()))
    p = len(config["feature_names"])
    d = p + bool(config["fit_intercept"])
    layout: dict[str, Any] = {
        "feature_names": config["feature_names"],
        "fit_intercept": config["fit_intercept"],
        "shape": [p, len(theta) // (8 * d)],
        "target_names": config["target_names"],
    }
    if classes:
        layout["classes"] = classes
    if model.columns:
        fixed = ("name", "step", "categories", "ignores_unknown", "shares", "of")
        layout["columns"] = [{k: c[k] for k in fixed if k in c} for c in model.columns]
    named = json.dumps(layout, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    numbers = [number for column in model.columns for number in _fitted(column)]
    label = b"lethe.parameters.v1\n"
    fitted = struct.pack(f"<{len(numbers)}d", *numbers)
    return hashlib.sha256(label + named.encode() + b"\n" + theta + fitted).hexdigest()


def _fitted(column: Mapping[str, Any]) -> list[float]:
    """Return the numbers of a fitted column that its digest covers."""
    values, vanished = column.get("values", []), column.get("vanished", [])
    return [
        *("impute" in column, column.get("impute", 0.0)),
        *(column.get("mean", 0.0), column.get("deviation", 1.0)),
        *(len(values), *values, len(vanished), *vanished),
        *("otherwise" in column, column.get("otherwise", 0.0)),
        *([len(column.get("rare", [])), *column.get("rare", [])] if "shares" in column else []),
    ]
