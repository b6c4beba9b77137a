"""Blocks of a pass over all rows: some consecutive buckets each.

Which buckets are a block depends on the manifest alone. So a sum over blocks has the same bits
whoever computes them, and as few terms as a cluster's network bears: a block has megabytes, and
what a kernel makes of it is of the size of a matrix of the features.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from importlib.metadata import version as package_version
from itertools import chain, islice
from typing import Generic, Protocol, TypeAlias, TypeVar

import numpy as np
from threadpoolctl import threadpool_limits

from lethe.engine.errors import CorruptState, InvalidData, RowsMissing
from lethe.engine.fit.objective import Rows
from lethe.engine.rowstore.bucket import PackedBucket, without
from lethe.engine.rowstore.files import Files
from lethe.engine.rowstore.manifest import ENCRYPTED, Part, digest_of

T = TypeVar("T")

BLOCK_BYTES = 2 << 20
"""Of the numbers of a block: four buckets of the usual size, or fewer."""

READERS = 4
"""Files that are read at a time: object storage answers each after some 20 ms."""

TOGETHER = 4
"""Blocks that another process computes at a time: to send some there and back takes milliseconds
of each side."""

Block: TypeAlias = tuple[Part, ...]


class Workers(Protocol):
    """Other processes that compute the blocks of a pass. Many threads may use it."""

    def map(
        self, compute: Callable[[Sequence[Block]], T], tasks: Iterable[Sequence[Block]]
    ) -> Iterator[T]:
        """Yield what ``compute``, which is pickled, returns of each task, in their order.

        A few are computed ahead, and those of a worker that is lost by another one.

        Raises
        ------
        ClusterUnavailable
            The workers cannot be reached, or compute nothing.
        LetheError
            What ``compute`` raises of the first task that it cannot do.
        """


@dataclass(frozen=True, slots=True)
class Source:
    """Where some buckets lie, and what they must be.

    Attributes
    ----------
    files, what
        As of `engine.rowstore.buckets.Buckets`.
    p, m
        Numbers of features and targets of a row.
    """

    files: Files
    what: str
    p: int
    m: int

    def bucket(self, part: Part) -> PackedBucket:
        """Return a bucket.

        Raises
        ------
        StoreUnavailable
            Its file cannot be read.
        CorruptState
            It is missing, or has another content than the manifest says.
        """
        what = f"{self.what}, bucket {part.digest} of its rows"
        data = read_file(self.files, part.digest, self.what)
        bucket = PackedBucket.of_file(data, self.p, self.m, what)
        if len(bucket) != part.rows:
            raise CorruptState(f"{what}: has {len(bucket)} rows where the manifest has {part.rows}")
        return bucket

    def blocks(self, parts: Sequence[Part], features: int | None = None) -> Iterator[Block]:
        """Yield the buckets of each block in order; ``features``: more are made of a row."""
        block, size = list[Part](), 0
        for part in parts:
            block.append(part)
            size += 8 * part.rows * (max(self.p, features or 0) + self.m + 1)
            if size >= BLOCK_BYTES:
                yield tuple(block)
                block, size = [], 0
        if block:
            yield tuple(block)


@dataclass(frozen=True, slots=True)
class Pass(Generic[T]):
    """Computes a kernel of blocks of rows.

    Attributes
    ----------
    source
        Where the rows lie.
    kernel
        As of `engine.fit.objective.RowsInBlocks.each`.
    intercept
        Whether a row has a last column of ones.
    left_out
        Ids of rows that are not read.
    gaps
        Whether a number may be missing, as of models with preprocessing.
    """

    source: Source
    kernel: Callable[[Rows], T]
    intercept: bool
    left_out: frozenset[str]
    gaps: bool = False
    version: str = field(default_factory=partial(package_version, "lethe-engine"))

    def __call__(self, blocks: Sequence[Block]) -> list[tuple[int, T]]:
        """Read the buckets of some blocks, and return `each`: what a worker elsewhere does.

        Raises
        ------
        StoreUnavailable, CorruptState
            As `Source.bucket`.
        InvalidData
            This process has another version of Lethe.
        """
        installed = package_version("lethe-engine")
        if installed != self.version:
            raise InvalidData(
                f"a worker of the pass has lethe-engine {installed}, and this process "
                f"{self.version}; install the same version there"
            )
        with ThreadPoolExecutor(READERS) as readers, threadpool_limits(1):
            read = readers.map(self.source.bucket, chain.from_iterable(blocks))
            return list(self.each(read, blocks))

    def each(
        self, buckets: Iterator[PackedBucket], blocks: Iterable[Block]
    ) -> Iterator[tuple[int, T]]:
        """Yield, of each block that has rows, how many and what the kernel makes of them."""
        for block in blocks:
            found = self._of(islice(buckets, len(block)))
            if found is not None:
                yield found

    def _of(self, buckets: Iterable[PackedBucket]) -> tuple[int, T] | None:
        kept = [without(packed.all(), self.left_out).rows for packed in buckets]
        k, p = sum(map(len, kept)), self.source.p
        if not k:
            return None
        X = np.ones((k, p + self.intercept))
        np.concatenate([rows.X for rows in kept], out=X[:, :p])
        with np.errstate(over="ignore", invalid="ignore"):
            some = not self.gaps and np.isnan(X.sum())  # then it is worth looking
        if some and np.isnan(X).any():
            raise CorruptState(f"{self.source.what}, a bucket: a feature of a row is missing")
        y, weight = (
            np.concatenate(parts) for parts in ([r.y for r in kept], [r.weight for r in kept])
        )
        del kept
        return k, self.kernel(Rows(X, y, weight))


def read_file(files: Files, name: str, what: str) -> bytes:
    """Return a file of this name, which is the digest of its bytes; errors as `Source.bucket`."""
    data = files.get(name)
    if data is not None and digest_of(data) == name:
        return data
    if data is not None and data.startswith(ENCRYPTED):
        raise CorruptState(
            f"{what}: its rows at {files.url} are encrypted; name the store of their keys in "
            "LETHE_ROW_KEYS_URL"
        )
    found = "is missing" if data is None else "has another content than its name says"
    kind = RowsMissing if data is None else CorruptState
    raise kind(
        f"{what}: file {name} of its rows {found} at {files.url}; restore it from "
        "a copy of this very file, or register the model again with --replace --accept-forgotten"
    )
