"""Transformers in .skops files that unpack to much more than they are: refused before they do."""

from __future__ import annotations

import io
import json
import tracemalloc
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.sparse import coo_array, save_npz

from lethe.consumers.registration.table.frozen import read_frozen_file
from lethe.consumers.registration.table.skops_file import MAX_BYTES
from lethe.engine.errors import InvalidData
from tests.support.extras import need

MIB = 1 << 20
ARRAY = {
    "__class__": "ndarray",
    "__module__": "numpy",
    "__loader__": "NdArrayNode",
    "type": "numpy",
}

MATRIX = {
    "__class__": "spmatrix", "__module__": "scipy.sparse._matrix", "__loader__": "SparseMatrixNode",
    "type": "scipy",
}  # fmt: skip
"""Of no type that skops writes, but of one that it trusts."""


def npy(values: np.ndarray[Any, Any]) -> bytes:
    buffer = io.BytesIO()
    np.save(buffer, values)
    return buffer.getvalue()


def npz(size: int) -> bytes:
    """A sparse matrix as SciPy packs it, with so many bytes of zeros."""
    buffer = io.BytesIO()
    zeros, places = np.zeros(size // 9, np.float64), np.zeros(size // 9, np.int32)
    save_npz(buffer, coo_array((zeros, (places, places)), shape=(1, 1)))
    return buffer.getvalue()


def skops(path: Path, state: Any, **members: bytes) -> Path:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as file:
        schema = state if isinstance(state, str) else json.dumps(state)
        file.writestr("schema.json", schema)
        for name, data in members.items():
            file.writestr(name.replace("_", "."), data)
    return path


def nodes(*files: str) -> dict[str, Any]:
    content = [{**(ARRAY if file.endswith("npy") else MATRIX), "file": file} for file in files]
    return {
        "__class__": "list", "__module__": "builtins", "__loader__": "ListNode",
        "content": content, "protocol": 2, "_skops_version": "0.16.0",
    }  # fmt: skip


def one_giant_array(path: Path) -> Path:
    return skops(path, nodes("a.npy"), a_npy=npy(np.zeros(300 * MIB, np.uint8)))


def one_array_many_times(path: Path) -> Path:
    return skops(path, nodes(*["a.npy"] * 400), a_npy=npy(np.zeros(MIB, np.uint8)))


def a_packed_matrix_in_the_packed_file(path: Path) -> Path:
    return skops(path, nodes("a.npz"), a_npz=npz(300 * MIB))


def a_matrix_under_another_name(path: Path) -> Path:
    return skops(path, nodes("a.bin"), a_bin=npz(300 * MIB))


def a_matrix_many_times(path: Path) -> Path:
    return skops(path, nodes(*["a.npz"] * 400), a_npz=npz(MIB))


def a_long_schema(path: Path) -> Path:
    return skops(path, '{"content": [' + "[]," * (20 * MIB) + "[]]}")


def deeper_than_any(path: Path) -> Path:
    inner = b""
    for _ in range(4):
        buffer = io.BytesIO()
        with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as file:
            file.writestr("a", inner or bytes(MIB))
        inner = buffer.getvalue()
    return skops(path, nodes("a.npz"), a_npz=inner)


def claims_less_than_it_is(path: Path) -> Path:
    """The directory is a claim as well."""
    one_giant_array(path)
    data = bytearray(path.read_bytes())
    entry = data.rindex(b"PK\x01\x02")
    data[entry + 24 : entry + 28] = (1000).to_bytes(4, "little")
    path.write_bytes(data)
    return path


@pytest.mark.parametrize(
    "make",
    [
        one_giant_array, one_array_many_times, a_packed_matrix_in_the_packed_file,
        a_matrix_under_another_name, a_matrix_many_times, a_long_schema, deeper_than_any,
    ],
)  # fmt: skip
def test_a_small_file_that_unpacks_to_a_huge_one_is_refused_before_it_does(
    make: Any, tmp_path: Path
) -> None:
    assert "unpacks to more than" in refused(make(tmp_path / "columns.skops"))


def test_what_a_directory_claims_is_not_believed(tmp_path: Path) -> None:
    assert "no .skops file" in refused(claims_less_than_it_is(tmp_path / "columns.skops"))


@pytest.mark.parametrize("method", [zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA])
def test_a_method_that_cannot_be_limited_is_refused(method: int, tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "columns.skops", "w", method) as file:
        file.writestr("schema.json", bytes(300 * MIB))
    assert "unpacks to more than" in refused(tmp_path / "columns.skops")
    with zipfile.ZipFile(tmp_path / "columns.skops", "w", method) as file:
        file.writestr("schema.json", "{}")
    assert "neither stored nor deflated" in refused(tmp_path / "columns.skops")


def refused(path: Path) -> str:
    """Return why a small file is refused, which must not take much memory."""
    need("skops", "pandas")
    import skops.io  # noqa: F401 (so that the import is not measured)

    assert path.stat().st_size < MIB
    tracemalloc.start()
    try:
        with pytest.raises(InvalidData) as caught:
            read_frozen_file(path)
        assert tracemalloc.get_traced_memory()[1] < 3 * MAX_BYTES
    finally:
        tracemalloc.stop()
    return str(caught.value)


@pytest.mark.parametrize("member", ["npy", "npz"])
def test_what_is_refused_would_have_been_unpacked(member: str, tmp_path: Path) -> None:
    """The same files, but small, are such that skops does unpack them."""
    need("skops", "pandas")
    from skops.io import loads

    data = npy(np.zeros(9)) if member == "npy" else npz(90)
    state = nodes(f"a.{member}", f"a.{member}")
    path = skops(tmp_path / "columns.skops", state, **{f"a_{member}": data})

    assert len(loads(path.read_bytes(), trusted=[])) == 2
    assert "holds no transformer" in refused(path)
