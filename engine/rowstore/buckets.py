"""Rows in buckets: found by id or by subject, read one by one, and rewritten."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from itertools import chain
from threading import Lock
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from lethe.engine.errors import ClusterUnavailable, CorruptState, RowsMissing
from lethe.engine.fit.objective import Rows
from lethe.engine.rowstore import writer
from lethe.engine.rowstore.bucket import (
    Bucket,
    PackedBucket,
    former_of,
    joined,
    row_bytes,
    without,
)
from lethe.engine.rowstore.files import Files
from lethe.engine.rowstore.keys import (
    KEY_BYTES,
    ORDER_BYTES,
    bounds_of_group,
    group_of_key,
    group_of_subject,
    key_of,
    orders_of,
)
from lethe.engine.rowstore.manifest import Manifest, Part
from lethe.engine.rowstore.parts import (
    by_part,
    changed_entries,
    group_in,
    put_bucket,
    put_index,
    put_root,
)
from lethe.engine.rowstore.passes import TOGETHER, Block, Pass, Source, Workers, read_file

T = TypeVar("T")

_CACHED_BYTES = 64 << 20
_READERS = 8
"""Files that are read at a time: object storage answers each after some 20 ms."""

_SCAN_AHEAD = 4


class Buckets:
    """The rows that a root names. Many threads may use an instance.

    Parameters
    ----------
    files
        Where they lie.
    root
        Digest of the manifest.
    what
        Whose rows these are, for messages: ``model 'churn'``.
    workers
        What computes the kernels of `each`; None for this process.

    Notes
    -----
    No file is believed that has another digest than the root, or the manifest, says. Of what was
    read, `_CACHED_BYTES` are kept.
    """

    def __init__(self, files: Files, root: str, what: str, workers: Workers | None = None) -> None:
        self.root = root
        self._workers = workers
        self._files = files
        self._what = what
        self._cache: OrderedDict[str, tuple[PackedBucket | bytes, int]] = OrderedDict()
        self._cached = 0
        self._lock = Lock()
        self.manifest = Manifest.read(self._read(root), f"{what}, manifest {root} of its rows")
        self._source = Source(files, what, self.manifest.p, self.manifest.m)

    # -- finding ------------------------------------------------------------------------------

    def get(self, row_ids: Collection[str]) -> dict[str, Bucket]:
        """Return each of the rows that is there, in a `Bucket` of its own.

        Cost: a file for each bucket that holds some of the rows, and with subjects for each part
        of the index; they are read `_READERS` at a time.

        Raises
        ------
        StoreUnavailable
            A file cannot be read.
        CorruptState
            A file is missing, or has another content than the manifest says.
        """
        keys = {row: key_of(self.manifest.salt, row) for row in row_ids}
        groups = self._groups(keys)
        asked: dict[Part, list[str]] = {}
        for row, key in keys.items():
            part = self.manifest.bucket_of(groups[row] + key) if row in groups else None
            if part is not None:
                asked.setdefault(part, []).append(row)
        found: dict[str, Bucket] = {}
        for bucket, rows in zip(self._many(self._bucket, list(asked)), asked.values(), strict=True):
            for row in rows:
                place = groups[row] + keys[row]
                there = bucket.take(bucket.between(place, place))
                if there.ids == (row,):
                    found[row] = there
        return found

    def rows_of_subjects(self, subjects: Collection[str]) -> dict[str, tuple[str, ...]]:
        """Return the ids of each subject's rows, for those that have some, or had some here.

        Cost and errors as of `get`; without an index nobody has rows.
        """
        if self.manifest.index is None:
            return {}
        groups = {name: group_of_subject(self.manifest.salt, name) for name in subjects}
        found: dict[str, list[str]] = {}
        for parts_of, read in (
            (self.manifest.buckets_of_group, self._bucket),
            (self.manifest.former_of_group, self._former),
        ):
            parts = {name: parts_of(group) for name, group in groups.items()}
            needed = list(dict.fromkeys(part for several in parts.values() for part in several))
            buckets = dict(zip(needed, self._many(read, needed), strict=True))
            for name, several in parts.items():
                bounds = bounds_of_group(groups[name])
                for bucket in (buckets[part] for part in several):
                    there = bucket.take(bucket.between(*bounds))
                    owners = zip(there.ids, there.subjects or (), strict=True)
                    mine = [row for row, owner in owners if owner == name]
                    if mine:
                        found.setdefault(name, []).extend(mine)
        return {name: tuple(rows) for name, rows in found.items()}

    def _groups(self, keys: Mapping[str, bytes]) -> dict[str, bytes]:
        """Return the groups of rows by their ids; without those that the index does not have."""
        if self.manifest.index is None:
            return {row: group_of_key(key) for row, key in keys.items()}
        parts = {row: self.manifest.index_of(key) for row, key in keys.items()}
        needed = list(dict.fromkeys(part for part in parts.values() if part is not None))
        data = dict(zip(needed, self._many(self._index_part, needed), strict=True))
        groups: dict[str, bytes] = {}
        for row, part in parts.items():
            if part is not None and (group := group_in(data[part], keys[row])) is not None:
                groups[row] = group
        return groups

    # -- all rows -----------------------------------------------------------------------------

    def scan(self, without_rows: Collection[str] = frozenset()) -> Iterator[Bucket]:
        """Yield the rows bucket by bucket, without some of them; errors as of `get`.

        A few buckets are read ahead, so that whoever computes does not wait.
        """
        left_out = frozenset(without_rows)
        for packed in self._read_ahead():
            bucket = without(packed.all(), left_out)
            if len(bucket):
                yield bucket

    def each(
        self,
        kernel: Callable[[Rows], T],
        *,
        intercept: bool,
        without_rows: Collection[str] = (),
        features: int | None = None,
        here: bool = False,
    ) -> Iterator[tuple[int, T]]:
        """Yield how many rows a block has, and what a kernel makes of them, in their order.

        Rows are as the engine has them: with a last column of ones, if ``intercept``. With workers
        and not ``here``, they compute it (`engine.fit.objective.RowsInBlocks.each`).
        ``features``: how many are made of a row that is kept as it was given, in which a number may
        be missing; blocks have as many fewer rows.

        Raises
        ------
        StoreUnavailable, CorruptState
            As `get`.
        ClusterUnavailable
            From the workers.
        """
        gaps, left_out = features is not None, frozenset(without_rows)
        one_pass = Pass(self._source, kernel, intercept, left_out, gaps)
        blocks = self._source.blocks(self.manifest.buckets, features)
        if self._workers is None or here:
            return one_pass.each(self._read_ahead(), blocks)
        return self._by(self._workers, one_pass, list(blocks))

    def _by(
        self, workers: Workers, one_pass: Pass[T], blocks: list[Block]
    ) -> Iterator[tuple[int, T]]:
        tasks = (blocks[i : i + TOGETHER] for i in range(0, len(blocks), TOGETHER))
        try:
            yield from chain.from_iterable(workers.map(one_pass, tasks))
        except RowsMissing as error:
            if not self.files().issubset(self._files.names()):
                raise
            raise ClusterUnavailable(
                f"{self._what}: a worker of the pass does not see the files of its rows at "
                f"{self._files.url}, which this process does; mount that directory there, or use "
                "object storage"
            ) from error

    def _read_ahead(self) -> Iterator[PackedBucket]:
        parts = list(self.manifest.buckets)
        with ThreadPoolExecutor(_SCAN_AHEAD) as readers:
            ahead = [readers.submit(self._source.bucket, part) for part in parts[:_SCAN_AHEAD]]
            for i in range(len(parts)):
                packed = ahead.pop(0).result()
                if i + _SCAN_AHEAD < len(parts):
                    ahead.append(readers.submit(self._source.bucket, parts[i + _SCAN_AHEAD]))
                yield packed

    def at(self, places: NDArray[np.intp]) -> Bucket:
        """Return the rows at places of the order of `scan`, in that order; `places` are sorted.

        Only the buckets that hold some of them are read.
        """
        ends = np.cumsum([part.rows for part in self.manifest.buckets])
        parts, firsts = np.searchsorted(ends, places, side="right"), ends - np.diff(ends, prepend=0)
        needed = np.unique(parts)
        found = self._many(self._source.bucket, [self.manifest.buckets[i] for i in needed])
        taken = [
            bucket.all().take(places[parts == i] - firsts[i])
            for i, bucket in zip(needed, found, strict=True)
        ]
        return joined(taken)

    # -- rewriting ----------------------------------------------------------------------------

    def ordered(
        self, ids: Sequence[str], rows: Rows, subjects: Sequence[str | None] | None = None
    ) -> Bucket:
        """Return rows that are not here yet in the order of these. Cost O(k log k)."""
        names = None if self.manifest.index is None else tuple(subjects or [None] * len(ids))
        return joined([Bucket(orders_of(self.manifest.salt, ids, names), tuple(ids), names, rows)])

    def rewritten(
        self,
        row_ids: Collection[str],
        added: Bucket | None = None,
        progress: Callable[[int, int], None] = lambda _, __: None,
    ) -> Buckets:
        """Write some buckets again, without some rows and with others; return what is new.

        Nothing is removed: this root stays valid. Of a subject's rows that are left out the ids are
        kept, and whose they were. Cost: the files of the buckets concerned, and with subjects of
        the index, are read and written.

        Parameters
        ----------
        row_ids
            The rows that are left out. Some may not be here.
        added
            Rows as `ordered` makes them. One that is here already is among ``row_ids``.
        progress
            Called with the number of buckets that are done, and of those that are concerned.

        Raises
        ------
        StoreUnavailable, CorruptState
            As `get`; what was written by then stays, under names that nothing has.
        """
        erased = frozenset(row_ids)
        ending = erased.difference(() if added is None else added.ids)
        keys = {row: key_of(self.manifest.salt, row) for row in erased}
        groups = self._groups(keys)
        places = [groups[row] + keys[row] for row in erased if row in groups]
        leaving = {self.manifest.bucket_of(place) for place in places} - {None}
        arriving = by_part(self.manifest.buckets, added)
        concerned = leaving | arriving.keys()
        buckets, gone, done = list[Part](), list[Bucket](), 0
        for part in self.manifest.buckets or (None,):
            if part not in concerned:
                buckets += [] if part is None else [part]
                continue
            kept = list(arriving.get(part, ()))
            if part is not None:
                before = self._source.bucket(part).all()
                gone.append(former_of(before, ending))
                kept.append(without(before, erased))
            if part is not None and part not in arriving and len(kept[0]) == part.rows:
                buckets.append(part)
            else:
                buckets += self._put(joined(kept))
            done += 1
            progress(done, len(concerned))
        index, former = self.manifest.index, self.manifest.former
        if any(map(len, gone)):
            former = tuple(self._with_former(joined(gone)))
        if index is not None:
            entries = () if added is None else (row.tobytes() for row in added.orders)
            new = [entry[-KEY_BYTES:] + entry[:-KEY_BYTES] for entry in entries]
            index = tuple(self._changed_index(index, frozenset(keys.values()), new))
        manifest = replace(self.manifest, buckets=tuple(buckets), index=index, former=former)
        root = put_root(self._files, manifest)
        return self if root == self.root else Buckets(self._files, root, self._what, self._workers)

    def _put(self, bucket: Bucket) -> Iterator[Part]:
        """Write rows as buckets that are not much larger than others; none if there are no rows."""
        p, m = bucket.rows.X.shape[1], bucket.rows.y.shape[1]
        most = max(1, writer.BUCKET_BYTES // row_bytes(p, m))
        pieces = 1 if len(bucket) <= 2 * most else -(-len(bucket) // most)
        for rows in np.array_split(np.arange(len(bucket)), pieces):
            if len(rows):
                yield put_bucket(self._files, bucket.take(rows))

    def _with_former(self, gone: Bucket) -> Iterator[Part]:
        """Yield the buckets of rows that are gone, with more of them."""
        arriving = by_part(self.manifest.former, gone)
        for part in self.manifest.former or (None,):
            if part is not None and part not in arriving:
                yield part
                continue
            others = [] if part is None else [self._former(part).all()]
            yield from self._put(joined([*others, *arriving[part]]))

    def _changed_index(
        self, index: Sequence[Part], gone: frozenset[bytes], added: Sequence[bytes]
    ) -> Iterator[Part]:
        """Yield the parts of the index without some keys, and with some entries."""
        first = next(iter(index), None)
        arriving: dict[Part | None, list[bytes]] = {}
        for entry in added:
            part = self.manifest.index_of(entry[:KEY_BYTES]) or first
            arriving.setdefault(part, []).append(entry)
        concerned = {self.manifest.index_of(key) for key in gone} | arriving.keys()
        for part in index or (None,):
            if part not in concerned:
                yield from () if part is None else (part,)
                continue
            data = b"" if part is None else self._index_part(part)
            kept = changed_entries(data, gone, arriving.get(part, ()))
            size = writer.INDEX_ROWS * ORDER_BYTES
            step = len(kept) if len(kept) <= 2 * size else size
            for start in range(0, len(kept), step or 1):
                yield put_index(self._files, kept[start : start + step])

    def former(self) -> Iterator[Bucket]:
        """Yield the rows of subjects that are gone: ids and subjects, no numbers."""
        for part in self.manifest.former:
            yield self._former(part).all()

    def files(self) -> frozenset[str]:
        """Return the names of the files, the manifest's among them."""
        return self.manifest.files() | {self.root}

    def remove_orphans(self, older_than: float) -> int:
        """Remove files that this root does not name; return how many there were.

        They were written for a root that never became live. ``older_than`` seconds ago: those of a
        root that may still become live stay.
        """
        orphans = set(self._files.names(older_than=older_than)) - self.files()
        self._files.delete(orphans)
        return len(orphans)

    def remove_all_but(self, other: Buckets) -> int:
        """Remove the files that ``other`` does not need; return how many there were.

        The manifest goes last: what names the others is there until they are gone.
        """
        unneeded = self.files() - other.files()
        self._files.delete(unneeded - {self.root})
        self._files.delete(unneeded & {self.root})
        return len(unneeded)

    # -- files --------------------------------------------------------------------------------

    def _many(self, read: Callable[[Part], T], parts: Sequence[Part]) -> list[T]:
        if len(parts) < 2:
            return [read(part) for part in parts]
        with ThreadPoolExecutor(min(_READERS, len(parts))) as readers:
            return list(readers.map(read, parts))

    def _bucket(self, part: Part) -> PackedBucket:
        return self._held(part, self._source.bucket)

    def _former(self, part: Part) -> PackedBucket:
        return self._held(part, replace(self._source, p=0, m=0).bucket)

    def _held(self, part: Part, read: Callable[[Part], PackedBucket]) -> PackedBucket:
        kept = self._kept(part)
        if isinstance(kept, PackedBucket):
            return kept
        bucket = read(part)
        self._keep(part, bucket, bucket.nbytes)
        return bucket

    def _index_part(self, part: Part) -> bytes:
        kept = self._kept(part)
        if isinstance(kept, bytes):
            return kept
        data = self._read(part.digest)
        if len(data) != part.rows * ORDER_BYTES:
            what = f"{self._what}, part {part.digest} of the index of its rows"
            raise CorruptState(f"{what}: has {len(data)} bytes where {part.rows} rows have others")
        self._keep(part, data, len(data))
        return data

    def _kept(self, part: Part) -> PackedBucket | bytes | None:
        with self._lock:
            if part.digest not in self._cache:
                return None
            self._cache.move_to_end(part.digest)
            return self._cache[part.digest][0]

    def _keep(self, part: Part, value: PackedBucket | bytes, size: int) -> None:
        with self._lock:
            if part.digest not in self._cache:
                self._cached += size
            self._cache[part.digest] = value, size
            while self._cached > _CACHED_BYTES:
                _, (_, least_recent) = self._cache.popitem(last=False)
                self._cached -= least_recent

    def _read(self, name: str) -> bytes:
        return read_file(self._files, name, self._what)


def _itself(rows: Rows) -> Rows:
    return rows


@dataclass(frozen=True, slots=True)
class RowsOfBuckets:
    """All rows of buckets as the engine has them, a pass at a time; ``features`` as of `each`."""

    buckets: Buckets
    intercept: bool
    features: int | None = None

    def __len__(self) -> int:
        return self.buckets.manifest.rows

    @property
    def outputs(self) -> int:
        """How many targets each has."""
        return self.buckets.manifest.m

    def blocks(self) -> Iterator[Rows]:
        """Yield them in blocks; errors as of `Buckets.get`."""
        return self._each(_itself, here=True)

    def each(self, kernel: Callable[[Rows], T]) -> Iterator[T]:
        """Yield what a kernel makes of each block."""
        return self._each(kernel, here=False)

    def _each(self, kernel: Callable[[Rows], T], *, here: bool) -> Iterator[T]:
        found = self.buckets.each(
            kernel, intercept=self.intercept, features=self.features, here=here
        )
        return (made for _, made in found)
