"""Files that are damaged, missing or another model's: named in one line, and never believed."""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from lethe.engine.errors import CorruptState
from lethe.engine.rowstore.bucket import fixed, numbers
from lethe.engine.rowstore.buckets import Buckets
from lethe.engine.rowstore.files import Directory
from lethe.engine.rowstore.manifest import Part, digest_of
from lethe.engine.rowstore.parts import put
from tests.support.row_files import drawn, opened, scanned

pytestmark = pytest.mark.usefixtures("small")

TABLE = drawn(0, 60, p=2, owners=3)


def _flip(data: bytes) -> bytes:
    at = len(data) // 2
    return data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :]


DAMAGES: dict[str, Callable[[bytes], bytes | None]] = {
    "missing": lambda _: None,
    "one bit": _flip,
    "cut off": lambda data: data[:-1],
    "empty": lambda _: b"",
    "longer": lambda data: data + b"\0",
    "another file": lambda _: b"PAR1 of another model",
}


@pytest.mark.parametrize("damage", DAMAGES)
@pytest.mark.parametrize("kind", ["manifest", "bucket", "index"])
def test_a_damaged_file_is_named_by_whoever_needs_it(
    tmp_path: Path, kind: str, damage: str
) -> None:
    files = Directory(tmp_path)
    buckets = opened(files, TABLE)
    manifest = buckets.manifest
    assert manifest.index is not None
    names = {
        "manifest": buckets.root,
        "bucket": manifest.buckets[2].digest,
        "index": manifest.index[2].digest,
    }
    content = DAMAGES[damage]((tmp_path / names[kind]).read_bytes())
    (tmp_path / names[kind]).unlink()
    if content is not None:
        (tmp_path / names[kind]).write_bytes(content)
    said = "is missing" if content is None else "has another content than its name says"
    line = (
        f"model 'm': file {names[kind]} of its rows {said} at {tmp_path}; restore it from a copy "
        "of this very file, or register the model again with --replace --accept-forgotten"
    )
    if kind == "manifest":
        asks: list[Callable[[], object]] = [lambda: Buckets(files, buckets.root, "model 'm'")]
    else:
        asks = [lambda: buckets.get(TABLE.ids), lambda: buckets.rewritten(TABLE.ids)]
    if kind == "bucket":
        asks += [
            lambda: list(buckets.scan()),
            lambda: buckets.rows_of_subjects(list(TABLE.of_subjects())),
        ]
    for ask in asks:
        with pytest.raises(CorruptState) as raised:
            ask()
        assert str(raised.value) == line
    if kind == "index":  # a pass needs none
        assert scanned(buckets) == TABLE.as_dict()


def _table(k: int, **columns: Any) -> bytes:
    usual = {
        "order": fixed(np.zeros((k, 24), np.uint8)),
        "id": pa.array(["a"] * k, pa.string()),
        "weight": pa.array([1.0] * k, pa.float64()),
        "y": fixed(np.ones((k, 1))),
        "x": fixed(np.ones((k, 2))),
    }
    metadata = {b"lethe.x": columns.pop("kind", b"<f8")}
    kept = {name: value for name, value in (usual | columns).items() if value is not None}
    sink = io.BytesIO()
    pq.write_table(pa.table(kept, metadata=metadata), sink)
    return sink.getvalue()


def _odd(p: int, odd: float = np.nan) -> np.ndarray[Any, np.dtype[np.float64]]:
    return np.array([[1.0] * (p - 1) + [odd]] * 3)


FOREIGN = {
    "no Parquet file": b"PAR1 of another model",
    "nothing": b"",
    "other features": _table(3, x=fixed(np.ones((3, 3)))),
    "other targets": _table(3, y=fixed(np.ones((3, 2)))),
    "float32 that says float64": _table(3, x=fixed(np.ones((3, 2), np.float32))),
    "float64 that says float32": _table(3, kind=b"<f4"),
    "other numbers": _table(3, kind=b">f8"),
    "no ids": _table(3, id=None),
    "no order": _table(3, order=None),
    "no weights": _table(3, weight=None),
    "a weight that is null": _table(3, weight=pa.array([1.0, None, 1.0])),
    "x that is null": _table(3, x=pa.array([None] * 3, pa.binary(16))),
    "x that is text": _table(3, x=pa.array(["a"] * 3)),
    "fewer rows": _table(2),
    "no rows": _table(0),
    "infinite features": _table(3, x=fixed(_odd(2, np.inf))),
    "NaN targets": _table(3, y=fixed(_odd(1))),
    "NaN weights": _table(3, weight=pa.array([np.nan] * 3)),
}


@pytest.mark.parametrize("what", FOREIGN)
def test_a_bucket_of_another_model_is_refused(tmp_path: Path, what: str) -> None:
    """Its digest is right: the manifest was made by something that is no Lethe."""
    files = Directory(tmp_path)
    buckets = opened(files, drawn(0, 9))
    name = put(files, FOREIGN[what])
    part = Part(first="00" * 24, digest=name, rows=3)
    root = put(files, replace(buckets.manifest, buckets=(part,)).pack())
    foreign = Buckets(files, root, "model 'm'")
    with pytest.raises(CorruptState) as raised:
        list(foreign.scan())
    assert str(raised.value).startswith(f"model 'm', bucket {name} of its rows: ")
    assert "\n" not in str(raised.value)


def test_an_index_of_other_rows_is_refused(tmp_path: Path) -> None:
    files = Directory(tmp_path)
    buckets = opened(files, TABLE)
    assert buckets.manifest.index is not None
    for content in (b"", b"\0" * 23, b"\0" * 25, b"\0" * 48):
        name = put(files, content)
        part = Part(first="00" * 16, digest=name, rows=1)
        root = put(files, replace(buckets.manifest, index=(part,)).pack())
        with pytest.raises(CorruptState) as raised:
            Buckets(files, root, "model 'm'").get(["a"])
        assert str(raised.value) == (
            f"model 'm', part {name} of the index of its rows: has {len(content)} bytes where 1 "
            "rows have others"
        )


def _changed(**changes: Any) -> Callable[[dict[str, Any]], dict[str, Any]]:
    return lambda stored: stored | changes


MANIFESTS: dict[str, Callable[[dict[str, Any]], Any]] = {
    "its parts are not in order": lambda s: s | {"buckets": s["buckets"][::-1]},
    "its parts are not in order (index)": lambda s: s | {"index": s["index"][::-1]},
    "its parts are not in order (twice)": lambda s: s | {"buckets": s["buckets"][:1] * 2},
    "its parts are not in order (short)": lambda s: (
        s | {"buckets": [s["buckets"][0] | {"first": "00"}]}
    ),
    "its parts are not in order (keys)": lambda s: s | {"buckets": s["index"]},
    "its salt has 15 bytes": _changed(salt="00" * 15),
    "its salt has 17 bytes": _changed(salt="00" * 17),
    "is no manifest of format 1 (salt)": _changed(salt=""),
    "is no manifest of format 1 (digits)": _changed(salt="0" * 31),
    "is no manifest of format 1 (newer)": _changed(format=2),
    "is no manifest of format 1 (more)": _changed(more=1),
    "is no manifest of format 1 (features)": _changed(features=-1),
    "is no manifest of format 1 (targets)": _changed(targets=0),
    "is no manifest of format 1 (list)": lambda s: [s],
    "is no manifest of format 1 (path)": lambda s: (
        s | {"buckets": [s["buckets"][0] | {"digest": "../" + "0" * 61}]}
    ),
    "is no manifest of format 1 (rows)": lambda s: s | {"buckets": [s["buckets"][0] | {"rows": 0}]},
}


@pytest.mark.parametrize("said", MANIFESTS)
def test_a_manifest_that_is_none_is_refused(tmp_path: Path, said: str) -> None:
    files = Directory(tmp_path)
    buckets = opened(files, TABLE)
    stored = json.loads((tmp_path / buckets.root).read_bytes())
    root = put(files, json.dumps(MANIFESTS[said](stored)).encode())
    with pytest.raises(CorruptState) as raised:
        Buckets(files, root, "model 'm'")
    said = said.partition(" (")[0]
    assert str(raised.value).startswith(f"model 'm', manifest {root} of its rows: {said}")
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize("content", [b"", b"PAR1", b"\xff", b"{", b"null"])
def test_what_does_not_parse_is_no_manifest(tmp_path: Path, content: bytes) -> None:
    files = Directory(tmp_path)
    root = put(files, content)
    assert root == digest_of(content)
    with pytest.raises(CorruptState, match=f"manifest {root} of its rows: is no manifest"):
        Buckets(files, root, "model 'm'")


def test_a_part_of_a_table_is_read_where_it_begins() -> None:
    values = np.arange(20.0).reshape(10, 2)
    part = pa.table({"x": fixed(values)}).slice(3, 4)
    assert (numbers(part, "x", np.dtype("<f8"), 2) == values[3:7]).all()
