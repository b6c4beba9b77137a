"""The deletion worker's periodic tasks: rewriting files and sums, age limits, abandoned staging.

Any number of workers may do them: a second rewrite, or a second rebuild of the same generation,
does no harm.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from datetime import datetime

from redis.exceptions import RedisError

from lethe.consumers.commits.publish import job_message
from lethe.consumers.log.base import Producer
from lethe.consumers.refresh.age_limit import past_age_limit
from lethe.consumers.service.telemetry.logs import Logger
from lethe.engine.errors import LetheError, Unavailable
from lethe.engine.store.layout.keys import ModelKeys
from lethe.engine.store.lookup import read_summaries
from lethe.engine.store.membership import every_model, registered_models
from lethe.engine.store.offline.staging import TIME_TO_LIVE, sweep_registrations
from lethe.engine.store.server.rewrite import (
    PERIOD_SECONDS,
    Rewrites,
    ask_for_rewrite,
    ended,
    note_rewritten,
    read_erasures,
)
from lethe.engine.store.store import ModelStore
from lethe.engine.store.sums import models_with_rows_beside, rewrite_sums

_LOOK_SECONDS = 60.0  # between checks of the files: a few short commands
_FINISH_SECONDS = 2.0
_AGE_SECONDS = 3600.0  # between looks at all models: ages, rows beside sums, what was staged

_SHARE_SECONDS = 0.1
"""Of one turn, for states of models that have rows beside their sums: a thousand of them take
longer to read than a silent member of a group keeps its partitions."""

_ORPHAN_SECONDS = 2 * TIME_TO_LIVE
"""Age of a file of rows that no root names: longer than a refresh runs and its result is kept."""


class Housekeeper:
    """Sees that erased rows leave the server's files and old generations are rebuilt, in time."""

    def __init__(
        self, store: ModelStore, producer: Producer, *, now: Callable[[], datetime], logger: Logger
    ) -> None:
        self._store = store
        self._producer = producer
        self._now = now
        self._logger = logger
        self._files_checked: datetime | None = None
        self._ages_checked: datetime | None = None
        self._rewrite: tuple[float, Rewrites] | None = None
        self._warned: datetime | None = None
        self._jobs_sent: dict[str, datetime] = {}
        self._beside: Iterator[str] = iter(())  # models whose sums are to be rewritten

    def run_due(self) -> None:
        """Do what is due.

        Raises
        ------
        StoreUnavailable, LogUnavailable
            A server is away; the next call does it.
        """
        now = self._now()
        try:
            if _is_due(self._ages_checked, now, _AGE_SECONDS):
                self._check_models(now)
            # Before the files, which hold these rows as long as the keys.
            if self._rewrite_sums() and _is_due(self._files_checked, now, _LOOK_SECONDS):
                self._files_checked = now
                self._check_files(now)
        except Unavailable:
            raise
        except (LetheError, RedisError, ValueError) as error:
            # Requests are processed all the same; what was due is tried again when it is due next.
            self._logger.error("housekeeping failed", action="housekeeping", reason=str(error))

    def _check_models(self, now: datetime) -> None:
        before, self._ages_checked = self._ages_checked, now
        try:
            client = self._store.client
            self._beside = models_with_rows_beside(client, registered_models(client))
            self._check_ages(now)
            self._sweep_registrations()
            self._sweep_row_files()
        except Unavailable:
            self._ages_checked = before
            raise

    def finish(self) -> None:
        """Before the worker ends: wait a moment for a rewrite to end, and note it."""
        end = time.monotonic() + _FINISH_SECONDS
        try:
            while self._rewrite is not None and time.monotonic() < end:
                self._note_if_ended()
                time.sleep(0.02)
        except Unavailable:
            return  # the next worker asks again

    def _note_if_ended(self) -> None:
        if self._rewrite is None:
            return
        began, rewrites = self._rewrite
        succeeded = ended(self._store.client, rewrites)
        if succeeded is None:
            return
        self._rewrite = None
        if succeeded:
            note_rewritten(self._store.client, began)
            self._logger.info("the store's files were rewritten", action="files_rewritten")
        else:
            self._logger.warning("the store could not rewrite its files", action="rewrite")

    def _check_files(self, now: datetime) -> None:
        """Ask the server to rewrite its files if they have held erased rows for long enough."""
        client, seconds = self._store.client, now.timestamp()
        self._note_if_ended()
        if self._rewrite is not None:
            return
        erasures = read_erasures(client)
        if erasures.last is None or not erasures.waiting():
            return
        if erasures.rewritten is None:
            note_rewritten(client, erasures.last, first=True)  # the first period begins here
        elif seconds - erasures.rewritten >= PERIOD_SECONDS:
            self._ask_for_rewrite(now)

    def _ask_for_rewrite(self, now: datetime) -> None:
        try:
            rewrites = ask_for_rewrite(self._store.client)
        except PermissionError as error:
            if _is_due(self._warned, now, _AGE_SECONDS):
                self._warned = now
                self._logger.warning(
                    "the store does not let this user rewrite its files: erased rows stay in them "
                    "until it does so by itself (docs/erased-data.md)",
                    action="rewrite",
                    reason=str(error),
                )
            return
        if rewrites is not None:
            self._rewrite = now.timestamp(), rewrites

    def _check_ages(self, now: datetime) -> None:
        """Send a job for each model that has reached its age limit."""
        jobs = past_age_limit(self._store, now)
        self._jobs_sent = {
            job: sent
            for job, sent in self._jobs_sent.items()
            if (now - sent).total_seconds() < TIME_TO_LIVE
        }
        for job in jobs:
            if job.job_id in self._jobs_sent:
                continue
            self._producer.publish([job_message(job, now)])
            self._jobs_sent[job.job_id] = now
            self._logger.info(
                "rebuild scheduled: what derives from deleted rows has reached its age limit",
                action="age_limit",
                model=job.model_id,
                job=job.job_id,
            )

    def _rewrite_sums(self) -> bool:
        """Remove deleted rows that lie beside the sums of some models; return whether of all."""
        end = time.monotonic() + _SHARE_SECONDS
        try:
            for model in self._beside:
                try:
                    rewrite_sums(self._store.client, self._store.load_model(model))
                except Unavailable:
                    raise
                except LetheError:
                    continue  # a damaged model halts where it is used
                if time.monotonic() >= end:
                    return False
        except Unavailable:
            self._ages_checked = None
            raise
        return True

    def _sweep_registrations(self) -> None:
        """Remove what registrations staged and can never become live; it would not expire."""
        for model in every_model(self._store.client):
            keys = ModelKeys(model)
            swept = sweep_registrations(self._store.client, keys, self._store.row_keys)
            if swept:
                self._logger.info(
                    "staged rows of abandoned registrations were removed",
                    action="sweep",
                    model=model,
                    stagings=swept,
                )

    def _sweep_row_files(self) -> None:
        """Remove files of rows that refreshes wrote and that never became live."""
        for summary in read_summaries(self._store.client, registered_models(self._store.client)):
            try:
                files = self._store.row_files.of(summary.meta)
                swept = 0 if files is None else files.remove_orphans(_ORPHAN_SECONDS)
            except Unavailable as error:  # another model's may be elsewhere
                self._logger.warning(str(error), action="sweep", model=summary.model_id)
                continue
            except LetheError:
                continue  # a damaged model halts where it is used
            if swept:
                self._logger.info(
                    "files of abandoned refreshes were removed",
                    action="sweep",
                    model=summary.model_id,
                    files=swept,
                )


def _is_due(last: datetime | None, now: datetime, seconds: float) -> bool:
    """Return whether a task is due; it is, too, when the clock was set back."""
    return last is None or not 0 <= (now - last).total_seconds() < seconds
