"""What the deletion worker sees to by the clock: files, age limits, what registrations left behind.

Any number of workers may do it: a second rewrite, or a second rebuild of the same generation,
does no harm.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import datetime

from redis.exceptions import RedisError

from lethe.consumers.contract import cloudevents, topics
from lethe.consumers.contract.events import REFRESH_REQUESTED
from lethe.consumers.log.base import Message, Producer
from lethe.consumers.refresh.age_limit import past_age_limit
from lethe.consumers.service.logs import Logger
from lethe.engine.errors import LetheError, Unavailable
from lethe.engine.store.keys import ModelKeys
from lethe.engine.store.rewrite import (
    PERIOD_SECONDS,
    Rewrite,
    ask_for_rewrite,
    ended,
    note_rewritten,
    read_erasures,
)
from lethe.engine.store.staging import TIME_TO_LIVE, sweep_registrations
from lethe.engine.store.store import ModelStore

_LOOK_SECONDS = 60.0  # between looks at the files: a few short commands
_FINISH_SECONDS = 2.0
_AGE_SECONDS = 3600.0  # between looks at the ages of all models, and at their stagings


class Housekeeper:
    """Has erased rows leave the server's files, and old generations be rebuilt, in time."""

    def __init__(
        self, store: ModelStore, producer: Producer, *, now: Callable[[], datetime], logger: Logger
    ) -> None:
        self._store = store
        self._producer = producer
        self._now = now
        self._logger = logger
        self._looked: datetime | None = None
        self._aged: datetime | None = None
        self._asked: tuple[float, Rewrite] | None = None
        self._complained: datetime | None = None
        self._sent: dict[str, datetime] = {}

    def look(self) -> None:
        """See whether something is due.

        Raises
        ------
        StoreUnavailable, LogUnavailable
            A server is away; the next look does it.
        """
        now = self._now()
        try:
            self._look(now)
        except Unavailable:
            raise
        except (LetheError, RedisError, ValueError) as error:
            # Requests go on; what was due is tried again at the next look.
            self._logger.error("housekeeping failed", action="housekeeping", reason=str(error))

    def _look(self, now: datetime) -> None:
        if _passed(self._looked, now, _LOOK_SECONDS):
            self._looked = now
            self._see_to_the_files(now)
        if _passed(self._aged, now, _AGE_SECONDS):
            self._aged = now
            self._see_to_the_ages(now)
            self._see_to_the_stagings()

    def finish(self) -> None:
        """Before the worker ends: note a rewrite that is done in a moment."""
        end = time.monotonic() + _FINISH_SECONDS
        try:
            while self._asked is not None and time.monotonic() < end:
                self._note_if_ended()
                time.sleep(0.02)
        except Unavailable:
            return  # the next worker asks again

    def _note_if_ended(self) -> None:
        if self._asked is None:
            return
        began, rewrite = self._asked
        well = ended(self._store.client, rewrite)
        if well is None:
            return
        self._asked = None
        if well:
            note_rewritten(self._store.client, began)
            self._logger.info("the store's files were written anew", action="files_rewritten")
        else:
            self._logger.warning("the store could not rewrite its files", action="rewrite")

    def _see_to_the_files(self, now: datetime) -> None:
        client, moment = self._store.client, now.timestamp()
        self._note_if_ended()
        if self._asked is not None:
            return
        found = read_erasures(client)
        if found.last is None or not found.waiting():
            return
        if found.rewritten is None:
            note_rewritten(client, found.last, first=True)  # the first period begins here
        elif moment - found.rewritten >= PERIOD_SECONDS:
            self._ask(now)

    def _ask(self, now: datetime) -> None:
        try:
            rewrite = ask_for_rewrite(self._store.client)
        except PermissionError as error:
            if _passed(self._complained, now, _AGE_SECONDS):
                self._complained = now
                self._logger.warning(
                    "the store does not let this user rewrite its files: erased rows stay in them "
                    "until it does so by itself (docs/erasure.md)",
                    action="rewrite",
                    reason=str(error),
                )
            return
        if rewrite is not None:
            self._asked = now.timestamp(), rewrite

    def _see_to_the_ages(self, now: datetime) -> None:
        jobs = past_age_limit(self._store, now)
        self._sent = {
            job: sent
            for job, sent in self._sent.items()
            if (now - sent).total_seconds() < TIME_TO_LIVE
        }
        for job in jobs:
            if job.job_id in self._sent:
                continue
            headers = cloudevents.headers(REFRESH_REQUESTED, job.job_id, now, job.model_id)
            message = Message(topics.REFRESH_JOBS, job.model_id.encode(), job.value(), headers)
            self._producer.publish([message])
            self._sent[job.job_id] = now
            self._logger.info(
                "rebuild ordered: what derives from deleted rows has reached its age limit",
                action="age_limit",
                model=job.model_id,
                job=job.job_id,
            )

    def _see_to_the_stagings(self) -> None:
        """Remove what registrations staged that can never become live: it does not expire."""
        for model in self._store.every_model():
            swept = sweep_registrations(
                self._store.client,
                ModelKeys(model),
                self._store.row_keys,
                seconds=TIME_TO_LIVE,
            )
            if swept:
                self._logger.info(
                    "rows of registrations that lost were removed",
                    action="sweep",
                    model=model,
                    stagings=swept,
                )


def _passed(last: datetime | None, now: datetime, seconds: float) -> bool:
    """Return whether it is time; also when the clock was set back."""
    return last is None or not 0 <= (now - last).total_seconds() < seconds
