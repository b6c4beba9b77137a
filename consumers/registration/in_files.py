"""A candidate whose rows are in files: sorted into buckets and summed up, in bounded memory."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import datetime
from functools import partial
from typing import Protocol

import numpy as np

from lethe.consumers.registration.candidate import Candidate, Fit, stage_fit
from lethe.consumers.registration.checks import (
    can_have_exact_sums,
    check_exact_sums,
    check_names,
    check_row_files,
    check_same_shape,
    check_size,
    with_age_of_files,
)
from lethe.consumers.registration.coding import Coded
from lethe.consumers.registration.error_budget import check_error_budget
from lethe.consumers.registration.predecessor import tip_of
from lethe.consumers.registration.register import (
    COMMIT_TRIES,
    Overtaken,
    Registered,
    Registrar,
    contested,
    exists,
)
from lethe.consumers.registration.training_data import TrainingData
from lethe.consumers.service.telemetry.progress import Progress
from lethe.consumers.versions.certificates import check_first, check_terms
from lethe.consumers.versions.disclosures import check_disclosure
from lethe.engine.errors import InvalidData, NotDurable, StoreUnavailable
from lethe.engine.exact.digits import units_of
from lethe.engine.fit.counts import check_counts
from lethe.engine.fit.magnitude import check_data
from lethe.engine.fit.objective import Kind, Objective, Rows, ridge_penalty
from lethe.engine.preprocess.rounded.raw import RawColumns
from lethe.engine.refresh.refreshes import begin_with_sums
from lethe.engine.rowstore.bucket import Bucket
from lethe.engine.rowstore.files import Files
from lethe.engine.rowstore.writer import BucketWriter
from lethe.engine.store.layout.columns import ColumnRecord
from lethe.engine.store.layout.config import ModelConfig
from lethe.engine.store.layout.exact_sums import SolutionInBlocks
from lethe.engine.store.layout.keys import ModelKeys
from lethe.engine.store.layout.meta import Meta, RowFiles
from lethe.engine.store.layout.preprocessing import layout_of, raw_columns
from lethe.engine.store.offline import staging
from lethe.engine.store.offline.in_files import OfFiles, fit_files, no_sentinels, nobody
from lethe.engine.store.offline.predecessor import Predecessor
from lethe.engine.store.row_files import as_model_has, files_of, remove_all, width_of
from lethe.engine.store.store import ModelStore


class RowBlocks(Protocol):
    """Training rows that come in blocks."""

    @property
    def rows(self) -> int:
        """How many there are."""

    def blocks(self) -> Iterator[TrainingData]:
        """Yield them in blocks; raises `InvalidData`."""


@dataclass(slots=True)
class _LeftOut:
    """Rows of a table that are not registered: those in the ledger, and those of erased people."""

    in_ledger: int = 0
    erased: int = 0


class FileRegistrar(Registrar):
    """Registers models whose rows are in files; one thread uses it."""

    def register_in_files(
        self,
        config: ModelConfig,
        table: RowBlocks,
        *,
        replace_model: bool = False,
        accept_forgotten: bool = False,
        allow_change: bool = False,
        if_possible: bool = False,
    ) -> Registered:
        """Write the rows to files (``config.rows_url``), fit, store and publish.

        Parameters and errors are those of `register`. With preprocessing, ``config`` names the
        columns of the table as its features, and gets those of the model here: ``if_possible``, it
        has exact sums unless these are too many.

        Notes
        -----
        Cost O(n d^2) time, and memory that does not depend on n; with the place of another model,
        the ids of the rows of both.
        """
        config = _checked(with_age_of_files(config))
        keys = ModelKeys(config.model_id)
        accept = replace_model and accept_forgotten
        for _ in range(COMMIT_TRIES):
            before = self._read(keys, replace_model=replace_model, accept=accept)
            if before.registered and not replace_model:
                raise exists(keys.model_id, before.version)
            former = before.meta if before.registered and not allow_change else None
            left_out, ids = _LeftOut(), list[str]()
            blocks = self._kept_blocks(config, table.blocks(), before, left_out)
            candidate = stage_in_files(
                self._store,
                config,
                _noting(ids, blocks) if before.registered else blocks,
                tip_of(self._reader, before).generation + 1,
                before.head.commit + 1,
                before.version,
                known=partial(_checked, former=former, if_possible=if_possible),
                rows=table.rows,
                progress=self._staging_progress(),
                now=self._now(),
            )
            if ids:
                named = _named(candidate.state.meta.config, ids)
                candidate = replace(candidate, data=named, new=frozenset(ids))
            with suppress(Overtaken):
                state = self._commit(candidate, before, replace_model=replace_model, accept=accept)
                return Registered(state, left_out.in_ledger, left_out.erased, subjects=0)
        raise contested(config.model_id)

    def _kept_blocks(
        self,
        config: ModelConfig,
        blocks: Iterable[TrainingData],
        before: Predecessor,
        left_out: _LeftOut,
    ) -> Iterator[TrainingData]:
        """Yield rows but for those that were deleted, or whose people were erased.

        A subject that is erased meanwhile is found once the model is in the store
        (`consumers.erasures.sweep`).
        """
        for block in blocks:
            people = self._erased(config, block)
            theirs = {row for subject in people for row in block.subjects[subject]}
            gone = self._gone(before, block) - theirs
            left_out.erased += len(theirs)
            left_out.in_ledger += len(gone)
            if len(theirs) + len(gone) < len(block.ids):
                yield block.without(gone | theirs)


def _checked(
    config: ModelConfig, former: Meta | None = None, *, if_possible: bool = False
) -> ModelConfig:
    """Return the configuration of a model that can have its rows in files.

    ``former``: of the model whose shape it must have. ``if_possible``: it has no exact sums where
    it cannot have them.

    Raises
    ------
    InvalidData
        The message says why it cannot.
    """
    if if_possible and config.exact_sums and not can_have_exact_sums(config):
        config = config.model_copy(update={"exact_sums": False})
    checks = (check_names, check_size, check_terms, check_disclosure, check_exact_sums)
    for check in (*checks, check_row_files):
        check(config)
    if former is not None:
        check_same_shape(former.config, config)
    return config


def _noting(ids: list[str], blocks: Iterable[TrainingData]) -> Iterator[TrainingData]:
    """Yield blocks, and note the ids of their rows."""
    for block in blocks:
        ids += block.ids
        yield block


def _named(config: ModelConfig, ids: Sequence[str]) -> TrainingData:
    """Return rows of which the ids alone are known, and not whose they are."""
    nothing = np.empty((len(ids), 0))
    return TrainingData(tuple(ids), nothing, nothing, config.feature_names, (), {})


def stage_in_files(
    store: ModelStore,
    config: ModelConfig,
    blocks: Iterable[TrainingData],
    number: int,
    commit: int,
    version: int,
    *,
    known: Callable[[ModelConfig], ModelConfig] = lambda config: config,
    rows: int | None,
    progress: Progress,
    now: datetime,
) -> Candidate:
    """Write rows that come in blocks to files, fit, and stage the generation without them.

    ``known`` checks the configuration, and returns it: with preprocessing, once the columns are
    known. ``version`` is the newest one before, all of whose deletions are left out; ``rows``
    is how many will come, if that is known. Files that were written are removed again if anything
    fails; after `kill -9`, `Registrar` removes them with the next registration.

    Raises
    ------
    InvalidData, IllConditioned
        The rows cannot be used.
    StoreUnavailable
        The files cannot be written.

    Notes
    -----
    Cost O(n d^2) time, and memory that does not depend on n, but for what `fit_files` says.
    """
    name, p = uuid.uuid4().hex, width_of(config)
    keys = ModelKeys(config.model_id)
    staging.note_registration(store.client, keys, name, commit, config.rows_url)
    store.wait_durable()  # a store that went back past the note would know of no file to remove
    files, coding = files_of(config, name, store.row_keys), None
    try:
        with BucketWriter(files, p, config.m, subjects=_has_subjects(config), rows=rows) as writer:
            for block in blocks:
                coding = block.coding
                if coding is None and not writer.count:  # nothing else will be known of it
                    known(config)
                block_rows = Rows(block.X, block.y, config.weights_of(block.y))
                if config.kind is Kind.POISSON:
                    check_counts(block_rows)
                if coding is not None:
                    coding.keep(block.X, block.y)
                owners = block.owners() if block.subjects else None
                writer.add(block.ids, block_rows, owners, gaps=coding is not None)
                progress("sorting rows", writer.count, rows or 0)
            coded: Coded | None = None
            if coding is not None:
                coded = coding.finished()
                config = known(_with_columns(config, coded.records))
            if config.exact_sums:
                made, root = _summed(config, coded, writer, number, progress)
            else:
                made, root = _fitted(store, config, coded, writer, files, number, progress)
        fit = _of_files(made, config)
        check_error_budget(config, fit.generation, fit.stream, fit.pipeline)
        check_first(config, fit.ledger, fit.generation, fit.stream, fit.factor)
    except BaseException:
        with suppress(StoreUnavailable, NotDurable):  # else the next registration removes them
            remove_all(config.model_id, name, config.rows_url or "", store.row_keys)
            staging.end_registration(store.client, keys, name)
        raise
    none = TrainingData((), np.empty((0, p)), fit.rows.y, config.feature_names, (), {})
    row_files = RowFiles(folder=name, root=root, rows=writer.count, version=version)
    return stage_fit(store, config, none, fit, name, progress=progress, now=now, files=row_files)


def _summed(
    config: ModelConfig,
    coded: Coded | None,
    writer: BucketWriter,
    number: int,
    progress: Progress,
) -> tuple[OfFiles, str]:
    """Write the rows and add them up; return a fit by their sums, and the root of the files.

    ``coded``: of a model with preprocessing, what its columns came to.
    """
    p, objective, done = width_of(config), _objective(config), 0
    largest = np.insert(writer.largest, p, np.ones(int(config.fit_intercept)))
    raw: RawColumns | None = None
    if coded is not None:
        raw = raw_columns(config)
        largest = np.append(coded.largest_of(raw, writer.largest), writer.largest[p:])
    running = SolutionInBlocks(units_of(largest), config.m, objective.penalty, raw)

    def add(bucket: Bucket) -> None:
        nonlocal done
        rows = as_model_has(config, bucket)
        if raw is None:
            check_data(objective, rows)
        running.add(rows)
        done += len(rows)
        progress("writing and adding up rows", done, writer.count)

    root = writer.finish(add, _itself if coded is None else coded.recoded)
    made = begin_with_sums(number, objective, running.solution(), 0)
    return OfFiles(made, no_sentinels(config)), root


def _itself(rows: Rows) -> Rows:
    return rows


def _fitted(
    store: ModelStore,
    config: ModelConfig,
    coded: Coded | None,
    writer: BucketWriter,
    files: Files,
    number: int,
    progress: Progress,
) -> tuple[OfFiles, str]:
    """Write the rows, and fit them in passes over the files; return the fit, and their root."""
    done = 0

    def written(bucket: Bucket) -> None:
        nonlocal done
        done += len(bucket)
        progress("writing rows", done, writer.count)

    root = writer.finish(written, _itself if coded is None else coded.recoded)
    made = fit_files(
        config,
        store.row_files.open(files, root, config.model_id),
        number,
        on_pass=lambda passes: progress("fitting: passes over the rows", passes, 0),
    )
    return made, root


def _of_files(made: OfFiles, config: ModelConfig) -> Fit:
    new = made.new
    return Fit(
        new.generation,
        new.stream,
        nobody(config),
        new.dual_rows,
        new.factor,
        made.status,
        new.certified,
        made.ledger,
        pipeline=made.pipeline,
        in_files=made,
    )


def _has_subjects(config: ModelConfig) -> bool:
    return config.subject_namespace is not None


def _objective(config: ModelConfig) -> Objective:
    penalty = ridge_penalty(
        config.ridge, config.d, intercept=config.fit_intercept, penalise_intercept=False
    )
    return Objective(config.kind, penalty)


def _with_columns(config: ModelConfig, records: tuple[ColumnRecord, ...]) -> ModelConfig:
    """Return a configuration with columns that are known now.

    Raises
    ------
    InvalidData
        Two features would have one name.
    """
    names = layout_of(records).names
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise InvalidData(f"two features would be called {twice!r}; rename a column")
    return config.model_copy(update={"feature_names": names, "preprocess": records})
