"""Rows of a model for tests of `engine.rowstore`, beside a plain dict of them as oracle."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypeVar

import numpy as np
from pyarrow import fs

from lethe.engine.fit.objective import Rows
from lethe.engine.rowstore.bucket import Bucket
from lethe.engine.rowstore.buckets import Buckets
from lethe.engine.rowstore.files import Directory, Files, ObjectStorage
from lethe.engine.rowstore.writer import BucketWriter

T = TypeVar("T")

Row = tuple[bytes, bytes, float, str | None]
"""What must come back of a row, bit by bit: features, targets, weight, subject."""

Block = tuple[tuple[str, ...], Rows, tuple[str | None, ...] | None]
"""Ids, rows and subjects, as `BucketWriter.add` takes them."""

HARD = (0.0, -0.0, 5e-324, -2.3e-308, 1e308, -1.7976931348623157e308, 1 / 3)
NARROW = (0.0, -0.0, 1e-45, -3.4028234663852886e38, 0.5, 1 / 3)
"""Numbers that float32 holds, once they are rounded to it."""

LETTERS = ("a", "é", "\u0000", "汉", "\N{ADULT}", "\uffff", " ", "/")


def where(kind: str, path: Path) -> Files:
    """Return an empty place for files: ``directory``, or one of pyarrow's file systems."""
    if kind == "directory":
        return Directory(path / "rows")
    if kind == "local":
        return ObjectStorage("local://rows", fs.LocalFileSystem(), str(path / "local" / "rows"))
    system, root = fs.FileSystem.from_uri("mock:///rows")
    return ObjectStorage("mock:///rows", system, root)


@dataclass
class InBlocks:
    """Rows that come in blocks of ``size``, and how often they were read."""

    rows: Rows
    size: int
    passes: int = 0

    @property
    def outputs(self) -> int:
        """How many targets each has."""
        return self.rows.outputs

    def __len__(self) -> int:
        return len(self.rows)

    def blocks(self) -> Iterator[Rows]:
        """Yield them in their order."""
        self.passes += 1
        for start in range(0, len(self.rows), self.size):
            yield self.rows.take(slice(start, start + self.size))

    def each(self, kernel: Callable[[Rows], T]) -> Iterator[T]:
        """Yield what a kernel makes of each block."""
        return map(kernel, self.blocks())


@dataclass(frozen=True)
class Table:
    """Some rows of a model, in the order in which they come."""

    ids: tuple[str, ...]
    subjects: tuple[str | None, ...] | None
    rows: Rows

    def as_dict(self) -> dict[str, Row]:
        """Return the oracle."""
        return dict(_each(self.ids, self.subjects, self.rows))

    def named(self, ids: Sequence[str]) -> Table:
        """Return the rows under other ids."""
        return replace(self, ids=tuple(ids), rows=self.rows.take(slice(0, len(ids))))

    def __getitem__(self, part: slice) -> Table:
        subjects = None if self.subjects is None else self.subjects[part]
        return Table(self.ids[part], subjects, self.rows.take(part))

    def without(self, row_ids: Collection[str]) -> dict[str, Row]:
        """Return what must be left when some rows have gone."""
        return {row: value for row, value in self.as_dict().items() if row not in row_ids}

    def of_subjects(self) -> dict[str, set[str]]:
        """Return whose rows which are."""
        found: dict[str, set[str]] = {}
        for row, owner in zip(self.ids, self.subjects or (), strict=self.subjects is not None):
            if owner is not None:
                found.setdefault(owner, set()).add(row)
        return found

    def blocks(self, sizes: Iterable[int]) -> Iterable[Block]:
        """Yield the rows in blocks of some sizes; the last has all that are left."""
        start = 0
        for size in (*sizes, len(self.ids)):
            part = slice(start, start + size)
            names = None if self.subjects is None else self.subjects[part]
            yield self.ids[part], self.rows.take(part), names
            start += size


def _each(
    ids: Sequence[str], subjects: Sequence[str | None] | None, rows: Rows
) -> Iterable[tuple[str, Row]]:
    names = [None] * len(ids) if subjects is None else subjects
    for i, (row, owner) in enumerate(zip(ids, names, strict=True)):
        yield row, (rows.X[i].tobytes(), rows.y[i].tobytes(), float(rows.weight[i]), owner)


def drawn(
    seed: int,
    n: int,
    *,
    p: int = 2,
    m: int = 1,
    owners: int | None = None,
    narrow: bool = False,
    letters: int = 8,
) -> Table:
    """Return n rows of hostile numbers and ids; some have one of ``owners`` subjects."""
    rng = np.random.default_rng(seed)
    numbers = np.array(NARROW, np.float32).astype(float) if narrow else np.array(HARD)
    ids = tuple(f"{i}-{''.join(rng.choice(LETTERS, letters))}" for i in range(n))
    names: tuple[str | None, ...] | None = None
    if owners is not None:
        every = [None, *(f"owner {i} \N{ADULT}" for i in range(owners))]
        names = tuple(every[i] for i in rng.integers(0, len(every), n))
    return Table(
        ids,
        names,
        Rows(rng.choice(numbers, (n, p)), rng.choice(np.array(HARD), (n, m)), rng.random(n) + 0.5),
    )


def write(
    files: Files, table: Table, sizes: Iterable[int] = (), *, scratch: Path | None = None
) -> str:
    """Write rows in blocks of some sizes, and return their root."""
    p, m = table.rows.X.shape[1], table.rows.y.shape[1]
    subjects = table.subjects is not None
    n = len(table.ids)
    with BucketWriter(files, p, m, subjects=subjects, rows=n, scratch=scratch) as writer:
        for ids, rows, names in table.blocks(sizes):
            writer.add(ids, rows, names)
        return writer.finish()


def opened(files: Files, table: Table, sizes: Iterable[int] = ()) -> Buckets:
    """Write rows, and open them."""
    return Buckets(files, write(files, table, sizes), "model 'm'")


def scanned(buckets: Buckets, without: Collection[str] = ()) -> dict[str, Row]:
    """Return all rows as a pass over them finds them; one that comes twice fails."""
    found: dict[str, Row] = {}
    for bucket in buckets.scan(without):
        for row, value in _each(bucket.ids, bucket.subjects, bucket.rows):
            assert row not in found
            found[row] = value
    return found


def got(found: Mapping[str, Bucket]) -> dict[str, Row]:
    """Return rows that were asked for by their ids."""
    return dict(
        value
        for bucket in found.values()
        for value in _each(bucket.ids, bucket.subjects, bucket.rows)
    )
