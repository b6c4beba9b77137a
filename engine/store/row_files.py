"""Rows of models in files, as the store's readers need them.

A row of a file is live if it is not in the ledger, and the store has no row of its id: one that was
corrected since. Files are rewritten, without deleted rows and with those of the store, within the
time that promise 10 gives, and a deleted row never comes back.
"""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import chain
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar
from urllib.parse import quote

import numpy as np
import redis

from lethe.engine.errors import CorruptState, RowsMissing
from lethe.engine.fit.objective import Array, Rows, with_intercept
from lethe.engine.store.layout import codec
from lethe.engine.store.layout.config import ModelConfig, parse_config
from lethe.engine.store.layout.keys import ModelKeys
from lethe.engine.store.layout.meta import Meta, RowFiles, parse_meta
from lethe.engine.store.layout.preprocessing import given_table, raw_columns
from lethe.engine.store.server.connection import reachable, text
from lethe.engine.store.server.sealed_files import SealedFiles

if TYPE_CHECKING:
    from lethe.engine.preprocess.input.table import Table
    from lethe.engine.rowstore.bucket import Bucket
    from lethe.engine.rowstore.buckets import Buckets
    from lethe.engine.rowstore.files import Files
    from lethe.engine.rowstore.passes import Workers
    from lethe.engine.store.server.row_keys import RowKeys

T = TypeVar("T")

Duals: TypeAlias = Callable[[Array], Array]
"""From rows as records keep them (k x r) to base dual rows (k x h d) of a generation."""

FORMER = "files:"
"""What the name of files begins with, in a commit that leaves them behind."""

_LONGEST = 128

_OPEN = 8
"""Models whose files stay open: each keeps what it has read of late."""


def _files_at(url: str, model_id: str, *folder: str) -> Files:
    from lethe.engine.rowstore.files import files_at  # noqa: PLC0415 (Arrow: few need it)

    return files_at(url, folder_of(model_id), *folder)


def _files_of(url: str, model_id: str, folder: str, row_keys: RowKeys | None) -> Files:
    files = _files_at(url, model_id, folder)
    if row_keys is None:
        return files
    return SealedFiles(files, row_keys, ModelKeys(model_id), folder)


def folder_of(model_id: str) -> str:
    """Return the name of a model's folder: its own, or a hash of it where that is no name."""
    quoted = quote(model_id, safe="")
    if len(quoted) <= _LONGEST and not quoted.startswith("."):
        return quoted
    return f"~{hashlib.sha256(model_id.encode()).hexdigest()[:32]}"


def _buckets(files: Files, root: str, model_id: str, workers: Workers | None = None) -> Buckets:
    from lethe.engine.rowstore.buckets import Buckets  # noqa: PLC0415 (as above)

    return Buckets(files, root, f"model {model_id!r}", workers)


def files_of(config: ModelConfig, folder: str, row_keys: RowKeys | None) -> Files:
    """Return where the files of one registration lie; with keys, they are encrypted."""
    if config.rows_url is None:
        raise AssertionError("the store has the rows")
    return _files_of(config.rows_url, config.model_id, folder, row_keys)


def former_files(meta: Meta | None) -> tuple[str, ...]:
    """Return how a commit names the files that it leaves behind; nothing if there are none."""
    if meta is None or meta.row_files is None:
        return ()
    files = meta.row_files
    return (f"{FORMER}{files.folder}:{files.root}:{meta.config.rows_url}",)


def remove_former(meta: Meta, former: str, row_keys: RowKeys | None) -> None:
    """Remove the files that ``former`` names and a model does not need any more.

    Called once the commit that leaves them behind is applied, and again by folds: what is gone
    already does no harm. A root of the same registration that is not live yet names none of them,
    for each of them holds a row that was deleted before that root was made.

    Raises
    ------
    StoreUnavailable
        Some may still be there: fold.
    """
    folder, root, url = former.removeprefix(FORMER).split(":", 2)
    model, now = meta.config.model_id, meta.row_files
    if now is None or now.folder != folder or not now.rows:
        remove_all(model, folder, url, row_keys)
        return
    files = _files_of(url, model, folder, row_keys)
    with suppress(RowsMissing):  # removed before; or what is live is gone, and its readers say so
        _buckets(files, root, model).remove_all_but(_buckets(files, now.root, model))


def remove_all(model_id: str, folder: str, url: str, row_keys: RowKeys | None) -> None:
    """Remove the files of a registration that never became live, or that ended; keys first."""
    if row_keys is not None:
        row_keys.drop_folder(ModelKeys(model_id).file_keys(folder))
    files = _files_at(url, model_id, folder)
    files.delete(files.names())


def unknown_folders(client: redis.Redis, meta: Meta) -> list[str]:
    """Return folders of a model's rows of which its store knows nothing.

    They are those of registrations that died before the store came back from a backup, or another
    store's that was given the same place: nobody can tell, so nothing removes them.
    """
    if meta.row_files is None or meta.config.rows_url is None:
        return []
    with reachable(client):
        noted: Any = client.hkeys(ModelKeys(meta.config.model_id).stagings)
    known = {meta.row_files.folder, *(text(name) for name in noted)}
    place = _files_at(meta.config.rows_url, meta.config.model_id)
    return [folder for folder in place.folders() if folder not in known]


def without_files(files: RowFiles | None) -> RowFiles | None:
    """Return what meta has of files once no row is left: nothing is read of them any more."""
    return None if files is None else files.model_copy(update={"rows": 0, "in_store": 0})


class RowFilesOfModels:
    """Opens the files of models, and keeps the newest ones open; one thread uses it.

    ``workers`` compute the passes over all rows; None for this process. With ``row_keys``, files
    are encrypted, and this process alone reads them: no worker has keys.
    """

    def __init__(self, workers: Workers | None = None, row_keys: RowKeys | None = None) -> None:
        self._workers = None if row_keys is not None else workers
        self._row_keys = row_keys
        self._open: OrderedDict[tuple[str, str], Buckets] = OrderedDict()

    def of(self, meta: Meta) -> Buckets | None:
        """Return the files of a model's rows; None if the store has the rows.

        Raises
        ------
        StoreUnavailable, CorruptState
            The manifest cannot be read, or is missing or damaged.
        """
        if meta.row_files is None or not meta.row_files.rows:
            return None
        model, root = meta.config.model_id, meta.row_files.root
        if (model, root) not in self._open:
            files = files_of(meta.config, meta.row_files.folder, self._row_keys)
            self._open[model, root] = self.open(files, root, model)
            while len(self._open) > _OPEN:
                self._open.popitem(last=False)
        self._open.move_to_end((model, root))
        return self._open[model, root]

    def open(self, files: Files, root: str, model_id: str) -> Buckets:
        """Return rows in files that no model has yet; nothing of them is kept open."""
        return _buckets(files, root, model_id, self._workers)

    def records(
        self, meta: Meta, row_ids: Collection[str], duals: Callable[[], Duals] | None = None
    ) -> dict[str, bytes]:
        """Return the records of those of some rows that files have, deleted or corrected or not.

        ``duals`` returns what makes the base dual rows, which no file has. Without it they are 0:
        of models whose versions need none, and where nothing is computed with them.
        """
        buckets = self.of(meta) if row_ids else None
        found = {} if buckets is None else buckets.get(row_ids)
        if not found:
            return {}
        config = meta.config
        rows = stacked([as_stored(config, one) for one in found.values()])
        W = np.zeros((len(rows), config.blocks * config.d))
        if duals is not None and config.blocks:
            W = duals()(rows.X)
        return {row: packed(rows, W, i) for i, row in enumerate(found)}

    def every(self, meta: Meta) -> Iterator[Bucket]:
        """Yield all rows that files have, deleted or not."""
        buckets = self.of(meta)
        return iter(()) if buckets is None else buckets.scan()

    def every_owned(self, meta: Meta) -> Iterator[tuple[tuple[str, ...], tuple[str | None, ...]]]:
        """Yield ids and subjects of all rows that files have, and of a subject's that they had."""
        buckets = self.of(meta)
        for bucket in () if buckets is None else chain(buckets.scan(), buckets.former()):
            yield bucket.ids, bucket.subjects or ()

    def every_subject(self, meta: Meta) -> list[str]:
        """Return whose rows files have, or had."""
        names = (name for _, owners in self.every_owned(meta) for name in owners)
        return list(dict.fromkeys(name for name in names if name is not None))

    def subjects(self, meta: Meta, subject_ids: Iterable[str]) -> Mapping[str, tuple[str, ...]]:
        """Return the rows of subjects that files have, or had."""
        buckets = self.of(meta)
        return {} if buckets is None else buckets.rows_of_subjects(list(subject_ids))


def by_the_newest(client: redis.Redis, meta: Meta, read: Callable[[Meta], T]) -> T:
    """Return what ``read`` makes of a model's files, by its newest meta if they go meanwhile.

    A refresh removes the files that its own take the place of, and whoever reads them begins again.

    Raises
    ------
    RowsMissing
        The files that the store names now are not there.
    """
    while True:
        try:
            return read(meta)
        except RowsMissing:
            newest = stored_meta(client, meta.config.model_id)
            if newest is None or newest.row_files == meta.row_files:
                raise
            meta = newest


def with_those_of_files(
    stored: Mapping[str, Sequence[str]], in_files: Mapping[str, Sequence[str]]
) -> dict[str, tuple[str, ...]]:
    """Return the rows of subjects, those that the store and files have together."""
    return {
        name: tuple(dict.fromkeys((*stored.get(name, ()), *in_files.get(name, ()))))
        for name in dict.fromkeys((*stored, *in_files))
    }


def packed(rows: Rows, W: Array, i: int) -> bytes:
    """Return the record of a row, as the store would keep it."""
    return codec.pack_row(rows.X[i], rows.y[i], float(rows.weight[i]), W[i])


def stacked(parts: Sequence[Rows]) -> Rows:
    """Return rows, at least some, one below the other."""
    return Rows(
        np.vstack([part.X for part in parts]),
        np.vstack([part.y for part in parts]),
        np.concatenate([part.weight for part in parts]),
    )


def width_of(config: ModelConfig) -> int:
    """Return how many numbers files keep of a row: its features, or its columns as given."""
    return len(config.preprocess or config.feature_names)


def as_stored(config: ModelConfig, bucket: Bucket) -> Rows:
    """Return the rows of a bucket as records keep them: with preprocessing, as they were given.

    Others have the column of the intercept, if the model has one.
    """
    rows = bucket.rows
    if config.preprocess or not config.fit_intercept:
        return rows
    return Rows(with_intercept(rows.X), rows.y, rows.weight)


def given_in(config: ModelConfig, bucket: Bucket) -> Table:
    """Return the rows of a bucket as they were given, of a model with preprocessing.

    Raises
    ------
    CorruptState
        A row is none of the model's.
    """
    return given_table(config.preprocess, bucket.rows.X, f"model {config.model_id!r}, a bucket")


def as_model_has(config: ModelConfig, bucket: Bucket) -> Rows:
    """Return the rows of a bucket as the engine has them: with preprocessing, raw rows.

    Raises
    ------
    CorruptState
        A row is none of the model's.
    """
    rows = as_stored(config, bucket)
    if config.preprocess:
        return raw_columns(config).rows(given_in(config, bucket), rows.y, rows.weight)
    if np.isnan(rows.X).any():
        raise CorruptState(f"model {config.model_id!r}, a bucket: a feature of a row is missing")
    return rows


def stored_meta(client: redis.Redis, model_id: str) -> Meta | None:
    """Return a model's meta as it is stored now; None if there never was such a model."""
    with reachable(client):
        stored: Any = client.hmget(ModelKeys(model_id).head, ["meta", "config"])
    meta, config = stored
    return None if meta is None else parse_meta(meta, parse_config(config, model_id))
