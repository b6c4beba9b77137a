"""From a commit to what it changes in the store, and to the state after it.

`engine.store.apply` carries the change out (step 7).
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import numpy as np

from lethe.consumers.commits.commit import Commit, CommitKind, LoggedCommit
from lethe.consumers.commits.packed_receipt import pack
from lethe.engine.deletion.generation import Stream
from lethe.engine.errors import CorruptState
from lethe.engine.fit.objective import Array
from lethe.engine.store.apply import ArraysChange, DisclosedRows, RowsWritten, StoreChange, Swap
from lethe.engine.store.generation import (
    GRADIENT,
    PARAMETERS,
    THETAS,
    packed_correction,
    read_published,
    scalars_in,
    theta_of,
)
from lethe.engine.store.layout import codec
from lethe.engine.store.layout.disclosed import Disclosure
from lethe.engine.store.layout.exact_sums import new_fields
from lethe.engine.store.layout.keys import FORMAT, GenerationKeys, ModelKeys
from lethe.engine.store.layout.meta import Meta, meta_json
from lethe.engine.store.layout.pipeline_sums import packed_since
from lethe.engine.store.layout.state import ModelState, PublishedPipeline
from lethe.engine.store.offline import staging
from lethe.engine.store.store import ModelStore


@dataclass(frozen=True, slots=True)
class Arrays:
    """What a commit does to V and Q: rows to append, of shapes r x (h d) and r x d.

    ``V_before`` and ``Q_before`` count the rows before it; ``expected`` is the id of the arrays
    that the new rows were computed from, or None for a generation that becomes live. ``signs`` are
    those of the new rows of V; None: all are deletions. ``sums`` are the new fields of a model with
    preprocessing (`engine.store.layout.pipeline_sums.packed_since`) or with exact sums; ``whole``:
    in place of the old ones.
    """

    V_rows: Array
    Q_rows: Array
    V_before: int
    Q_before: int
    expected: str | None
    signs: Array | None = None
    sums: Mapping[str, bytes] = field(default_factory=dict)
    whole: bool = False

    def cleared(self) -> Arrays:
        """Return the arrays of a commit that clears Q and appends nothing to it."""
        return replace(self, Q_rows=self.Q_rows[:0])


NOTHING = Arrays(np.empty((0, 0)), np.empty((0, 0)), 0, 0, None)
"""For a generation without rows."""


@dataclass(frozen=True, slots=True)
class LiveGeneration:
    """A staged generation that becomes live; ``persist`` are those of its keys that exist."""

    keys: GenerationKeys
    persist: tuple[str, ...]


def arrays_of(before: ModelState, after: ModelState) -> Arrays:
    """Return what a step within a generation appended, from the states before and after it."""
    arrays = appended(before.stream, after.stream, before.arrays_id)
    if before.pipeline is None or after.pipeline is None:
        return arrays
    former = before.pipeline.answer.sums
    return replace(arrays, sums=packed_since(after.pipeline.answer.sums, former))


def appended(before: Stream, after: Stream, expected: str | None) -> Arrays:
    """Return what steps appended to V, Q and exact sums, from the streams before and after."""
    v, q = len(before.V), len(before.Q)
    signs = None if after.V.signs is None else after.V.signs[v:]
    sums, whole = new_fields(before.solution, after.solution)
    return Arrays(after.V.array[v:], after.Q.array[q:], v, q, expected, signs, sums, whole)


def no_rows(before: ModelState) -> Arrays:
    """Return the arrays of a commit that appends nothing to V and Q, and renews their id."""
    return appended(before.stream, before.stream, before.arrays_id)


def staged_keys(store: ModelStore, commit: Commit) -> LiveGeneration | None:
    """Return the keys of the generation that a commit makes live; None if part of it is gone."""
    keys = ModelKeys(commit.model_id)
    if commit.kind is CommitKind.UNREGISTRATION:
        return LiveGeneration(keys.generation("none"), ())
    if commit.empties:
        return LiveGeneration(keys.generation(commit.meta.generation_key), ())
    if commit.staged is None:
        raise CorruptState(f"model {commit.model_id!r}: commit {commit.number} swaps nothing in")
    live = keys.generation(commit.staged.generation)
    required, optional = live.required(), live.optional()
    if not staging.is_complete(store.client, live, commit.staged.mark):
        return None
    if commit.staged.dataset is not None:
        dataset = keys.dataset(commit.staged.dataset)
        optional = [*optional, dataset.subjects]
        if commit.meta.row_files is None:
            required = [*required, dataset.ids]
    persist = staging.to_persist(store.client, required, optional)
    return None if persist is None else LiveGeneration(live, tuple(persist))


def change_of(
    logged: LoggedCommit,
    before: ModelState | None,
    *,
    arrays: Arrays | None = None,
    live: LiveGeneration | None = None,
    drops_arrays: bool = False,
    meta: Meta | None = None,
    written: RowsWritten | None = None,
) -> StoreChange:
    """Return what a commit changes in the store.

    Parameters
    ----------
    logged
        The commit.
    before
        The state before it; None if there is none, or the store is already beyond the commit.
    arrays
        What it does to V and Q; None if nothing.
    live
        What it makes live; None if nothing.
    drops_arrays
        Whether V and Q become unusable, because rows or a refresh's result are gone.
    meta
        The head's meta afterwards, if a fold has computed a worse scalar than the commit's.
    written
        The rows that it inserts and corrects; None if there are none. A corrected row whose values
        are lost has no record afterwards.
    """
    commit, rows = logged.commit, "" if before is None else before.rows_generation
    keys = ModelKeys(commit.model_id) if before is None else before.keys
    target = keys.generation(rows) if live is None else live.keys
    head = _head(logged, meta or commit.meta)
    if drops_arrays:
        head["arrays"] = b""
        head["rows"] = target.name.encode()
    gone = commit.erased
    if written is not None:
        gone = (*gone, *(row for row in commit.corrected if row not in written.records))
    touches = bool(gone) or written is not None
    erases = touches and live is None and before is not None
    caught_up = () if live is None or commit.staged is None else commit.staged.caught_up
    return StoreChange(
        keys=keys,
        commit=commit.number,
        prev=commit.prev,
        digest=logged.digest,
        place=logged.place,
        live=target,
        dataset=commit.meta.dataset_key,
        rows=rows if erases else None,
        head=head,
        offsets=commit.offsets,
        lowers=commit.kind is CommitKind.CHECKPOINT,
        deleted=commit.deleted,
        deleted_version=commit.newest,
        retired=commit.left_out,
        erase=gone if erases else caught_up,
        requests={answer.receipt.request_id: pack(answer) for answer in commit.answers},
        deferred={
            request_id: request.model_dump_json() for request_id, request in commit.deferred.items()
        },
        undeferred=commit.undeferred,
        resets_deferred=commit.jumps or commit.kind is CommitKind.UNREGISTRATION,
        arrays=None if arrays is None else _arrays(arrays, clears_Q=commit.clears_Q),
        written=written,
        tombstones={}
        if commit.tombstones is None
        else dict.fromkeys(commit.tombstones.marks, commit.tombstones.until),
        disclosed=_disclosed(commit),
        swap=None if live is None else _swap(commit, before, live),
        jump=commit.jumps,
    )


def _disclosed(commit: Commit) -> DisclosedRows | None:
    if not (commit.disclosed or commit.undisclosed):
        return None
    added = {
        row.row_id: Disclosure(commit.newest, row.fate, row.distance, row.length).pack()
        for row in commit.disclosed
    }
    return DisclosedRows(added, commit.undisclosed)


def checkpoint_change(
    store: ModelStore, logged: LoggedCommit, before: ModelState | None
) -> StoreChange:
    """Return what a checkpoint changes: next to nothing in the store that it was made from.

    A store at another commit takes over everything but V and Q, which a rebuild makes anew. Rows
    that are already in the ledger stay as they are.
    """
    commit = logged.commit
    at_base = before is not None and before.head == commit.base
    change = change_of(logged, before, drops_arrays=not at_base)
    known = store.rows_in_ledger(change.keys, commit.deleted)
    return replace(change, deleted=[row for row in commit.deleted if row not in known])


def already(logged: LoggedCommit) -> StoreChange:
    """Return the repeatable part of the change of a commit that the head already includes."""
    change, commit = change_of(logged, None), logged.commit
    written = RowsWritten(inserted=commit.inserted)
    return replace(change, written=written, repeats=True)


def after_commit(
    before: ModelState,
    logged: LoggedCommit,
    changed: ModelState,
    arrays_id: str,
    meta: Meta | None = None,
) -> ModelState:
    """Return the state after a commit: for whoever made it, and for a fold that reads it.

    Parameters
    ----------
    before, logged
        The state before it, and the commit.
    changed
        The model with its rows changed: generation, stream, sentinels and pipeline are taken from
        it. Everything else, thetas included, is the commit's.
    arrays_id
        The id of V and Q as they are stored now.
    meta
        If a fold has computed a worse scalar than the commit's.
    """
    commit = logged.commit
    meta = meta or commit.meta
    swapped = changed.meta.generation_key != before.meta.generation_key
    unmoved = changed.stream if swapped else before.stream
    thetas = {name: getattr(unmoved, name) for name in (*THETAS, GRADIENT)}
    thetas |= thetas_in(commit)
    thetas.pop(PARAMETERS, None)
    return replace(
        changed,
        head=logged.head,
        seal=logged.key,
        version=commit.newest,
        digest=before.digest if commit.version is None else commit.version.digest,
        meta=meta,
        stream=changed.stream._replace(**thetas, **scalars_in(meta)),
        offsets={**before.offsets, **commit.offsets},
        deferred={
            request_id: request
            for request_id, request in {**before.deferred, **commit.deferred}.items()
            if request_id not in commit.undeferred
        },
        opening=before.opening if commit.opening is None else commit.opening,
        arrays_id=arrays_id,
        deletions_from=meta.deletions_logged - len(commit.deleted)
        if swapped
        else before.deletions_from,
        newest=commit.version_value or before.newest,
        published_pipeline=published_in(commit) or before.published_pipeline,
    )


def published_in(commit: Commit) -> PublishedPipeline | None:
    """Return what a commit's version publishes of a model with preprocessing; None of others.

    Raises
    ------
    CorruptState
        It does not parse.
    """
    if not commit.columns:
        return None
    return read_published(commit.thetas.get(PARAMETERS), commit.columns, commit.meta.config)


def thetas_in(commit: Commit) -> dict[str, Array]:
    """Return the thetas that a commit sets, each d x m.

    Raises
    ------
    CorruptState
        A theta has the wrong shape.
    """
    config = commit.meta.config
    shape, what = (config.d, config.m), f"model {commit.model_id!r}, commit {commit.number}"
    stored = dict(commit.thetas)
    if "theta_exact" not in stored:
        return {name: codec.unpack(data, shape, what) for name, data in stored.items()}
    exact = codec.unpack(stored["theta_exact"], shape, f"{what}, theta_exact")
    return {name: theta_of(data, exact, f"{what}, {name}") for name, data in stored.items()} | {
        "theta_exact": exact
    }


def _arrays(arrays: Arrays, *, clears_Q: bool) -> ArraysChange:
    return ArraysChange(
        arrays.expected,
        secrets.token_hex(8),  # so that two writers of one commit notice each other
        packed_correction(arrays.V_rows, arrays.signs),
        [codec.pack(row) for row in arrays.Q_rows],
        arrays.V_before,
        arrays.Q_before,
        clears_Q,
        arrays.sums,
        arrays.whole,
    )


def _head(logged: LoggedCommit, meta: Meta) -> dict[str, bytes]:
    """Return the fields of the head that a commit sets."""
    commit = logged.commit
    fields = {
        "seal": logged.key.encode(),
        "format": b"%d" % FORMAT,
        "version": b"%d" % commit.newest,
        "status": commit.meta.status.encode(),
        "meta": meta_json(meta),
        **commit.thetas,
    }
    if commit.columns:
        fields["columns"] = commit.columns
    elif commit.kind is CommitKind.UNREGISTRATION and commit.meta.config.preprocess:
        fields |= {"columns": b"", "parameters": b""}  # they derive from the rows
    if commit.leaves_no_row and commit.meta.config.preprocess:
        fields[GRADIENT] = b""
    if commit.configures:
        fields["config"] = commit.meta.config.model_dump_json().encode()
    if (tip := commit.tip) is not None:
        fields["version_digest"], fields["newest"] = tip[0].encode(), tip[1]
    if commit.opening is not None:
        fields["opening"] = json.dumps(dict(commit.opening)).encode()
    if commit.secret is not None:
        fields["secret"] = commit.secret
    return fields


def _swap(commit: Commit, before: ModelState | None, live: LiveGeneration) -> Swap:
    """Return what a commit makes live, and what it discards according to the store and the log.

    The two differ if the result of an earlier refresh was lost.
    """
    keys = ModelKeys(commit.model_id)
    former = dict.fromkeys(() if commit.staged is None else commit.staged.former)
    if before is not None:
        former[f"gen:{before.rows_generation}"] = None
        if before.meta.dataset_key != commit.meta.dataset_key or not commit.meta.dataset_key:
            former[f"data:{before.meta.dataset_key}"] = None
    former.pop(f"gen:{live.keys.name}", None)
    unlink: list[str] = []
    for name in former:
        kind, _, rest = name.partition(":")
        unlink += (keys.generation(rest) if kind == "gen" else keys.dataset(rest)).everything()
    return Swap(live.persist, unlink, commit.meta.deletions_logged - len(commit.deleted))
