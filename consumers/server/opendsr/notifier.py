"""Makes the callbacks that are due in the background, several at once.

Each address takes seconds if it is slow or away, so nobody waits for it: neither the controller
that sends a request, nor the callbacks of other requests. To one address of one request, one
callback is under way at a time.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager

from lethe.consumers.server.opendsr import callbacks
from lethe.consumers.server.opendsr.configuration import CallbackRules
from lethe.consumers.server.opendsr.record import Notice, Records, RequestRecord, State, status_of
from lethe.consumers.server.opendsr.signature import AnswerSigner
from lethe.consumers.service.telemetry.logs import logger
from lethe.engine.errors import InvalidRequest, LetheError

MAX_TRIES = 20
"""How often a callback is tried: with pauses that double up to an hour, for about half a day."""

AT_ONCE = 8
"""Callbacks under way at a time: each has a thread, for 10 s at the most."""

_MOST_WAITING = 1_000
"""Callbacks that are handed to the threads; the others stay due, in the store."""

_LONGEST_PAUSE = 3_600.0


class Notifier:
    """The callbacks of all controllers; for any thread.

    Parameters
    ----------
    records
        The requests, and the callbacks that are still to be made.
    rules
        Where callbacks may go.
    signer
        Signs callbacks; None: they are not signed.
    """

    def __init__(self, records: Records, rules: CallbackRules, signer: AnswerSigner | None) -> None:
        self._records = records
        self._rules = rules
        self._signer = signer
        self._threads = ThreadPoolExecutor(AT_ONCE, "opendsr-callback")
        self._lock = threading.Lock()
        self._under_way: dict[tuple[str, str], Future[None]] = {}
        self._log = logger("opendsr")

    @contextmanager
    def running(self) -> Iterator[None]:
        """Make callbacks until the block ends; those that did not begin stay due."""
        try:
            yield
        finally:
            self._threads.shutdown(cancel_futures=True)

    def notify(self, record: RequestRecord) -> None:
        """Begin the callbacks of a request that are due, unless they are under way."""
        with self._lock:
            waiting = self._under_way.items()
            self._under_way = {one: future for one, future in waiting if not future.done()}
            for notice in record.notices:
                one = (record.subject_request_id, notice.url)
                free = one not in self._under_way and len(self._under_way) < _MOST_WAITING
                if free and notice.at <= time.time():
                    self._under_way[one] = self._threads.submit(self._try, record, notice)

    def _try(self, record: RequestRecord, notice: Notice) -> None:
        try:
            self._call_back(record, notice)
        except LetheError as error:  # the store is down: the callback stays due
            self._log.warning("waiting", action="callback", reason=str(error))

    def _call_back(self, record: RequestRecord, notice: Notice) -> None:
        """Make a callback, unless another thread or server is about to.

        The next try is noted before this one is made: only the thread or server that notes it makes
        this one.
        """
        name = record.subject_request_id
        pause = min(2.0**notice.tries, _LONGEST_PAUSE)
        later = notice.model_copy(update={"tries": notice.tries + 1, "at": time.time() + pause})
        noted = self._records.change(name, lambda now: _with_notice(now, notice, later))
        if noted is None or later not in noted.notices:
            return
        status = {"request_status": notice.status, "status_callback_url": notice.url}
        body = json.dumps(status_of(record) | status).encode()
        try:
            headers = {} if self._signer is None else self._signer.headers(body)
            callbacks.send(notice.url, body, headers, self._rules)
        except (callbacks.CallbackFailed, InvalidRequest) as error:
            last = later.tries == MAX_TRIES
            self._log.warning(
                "callback failed", action="callback", request=name, reason=str(error), last=last
            )
            if not last:
                return
        self._records.change(name, lambda now: _with_notice(now, later, None))


def _with_notice(
    record: RequestRecord, before: Notice, after: Notice | None
) -> RequestRecord | None:
    """Return the record with one callback replaced (None: removed); None if it has no such one."""
    if before not in record.notices:
        return None
    replaced = (after if notice == before else notice for notice in record.notices)
    notices = tuple(notice for notice in replaced if notice is not None)
    waits = min((notice.at for notice in notices), default=record.due)
    due = min(record.due, waits) if record.state is State.SENT else waits
    return record.model_copy(update={"notices": notices, "due": due})
