"""Carries OpenDSR requests on: sends them when they are due, and looks for their outcomes.

Each step can be repeated. An erasure keeps its id, so that one that was sent by a server that died
before it could note it is the same erasure when it is sent again; and a callback that was made
before it could be noted is made again, as the standard allows.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from lethe.consumers.server.opendsr.notifier import Notifier
from lethe.consumers.server.opendsr.record import Records, RequestRecord, State
from lethe.consumers.server.services import Services
from lethe.consumers.service.client import Client
from lethe.consumers.service.telemetry.logs import log_defect, logger
from lethe.engine.errors import CorruptState, LetheError

POLL_SECONDS = 1.0
LOOK_SECONDS = 5.0
"""How often it looks for what is due, and for the outcome of each request that was sent."""

_BATCH = 100


class Desk:
    """The requests of all controllers, in the store of the workers.

    Parameters
    ----------
    services
        The log and the outcomes.
    records
        The requests.
    notifier
        Makes their callbacks.
    """

    def __init__(self, services: Services, records: Records, notifier: Notifier) -> None:
        self.records = records
        self._notifier = notifier
        self._services = services
        self._client = Client(services.log, services.signer)
        self._sending = threading.Lock()  # the client is used by one thread at a time
        self._log = logger("opendsr")

    @contextmanager
    def running(self) -> Iterator[None]:
        """Carry requests on until the block ends."""
        thread = threading.Thread(target=self._run, name="opendsr", daemon=True)
        with self._client, self._notifier.running():
            thread.start()
            try:
                yield
            finally:
                self._services.stop.set()
                thread.join()

    def _run(self) -> None:
        while not self._services.stop.wait(POLL_SECONDS):
            try:
                for name in self.records.due(time.time(), _BATCH):
                    self._try(name)
            except LetheError as error:  # a server is down: try again
                self._log.warning("waiting", action="opendsr", reason=str(error))

    def _try(self, name: str) -> None:
        """Carry a request on; one that cannot be holds up no other."""
        try:
            self.advance(name)
        except CorruptState as error:
            self._log.error("damaged", action="opendsr", request=name, reason=str(error))
        except LetheError:
            raise
        except Exception as error:  # the thread must go on
            log_defect(self._log, "opendsr", error)

    def advance(self, name: str) -> RequestRecord | None:
        """Carry a request on as far as it goes now, and begin its callbacks; return its record.

        Raises
        ------
        LogUnavailable, StoreUnavailable
            A server is down; nothing is lost.
        """
        with self._sending:
            record = self.records.change(name, _begin)
            if record is None:
                self.records.drop(name)
                return None
            if record.state is State.SENDING:
                self._client.send(record.events)
                record = self._change(name, lambda now: _at(now, State.SENDING, State.SENT))
        if record.state is State.SENT:
            completed = self._completed(record)
            record = self._change(name, lambda now: _looked(now, completed=completed))
        self._notifier.notify(record)
        return record

    def _change(
        self, name: str, to: Callable[[RequestRecord], RequestRecord | None]
    ) -> RequestRecord:
        record = self.records.change(name, to)
        assert record is not None  # noqa: S101 - it was there, and nobody deletes one that is open
        return record

    def _completed(self, record: RequestRecord) -> bool:
        """Return whether every erasure of a request is complete: nobody holds a row any more."""
        receipts = [self._services.outcomes.erasure(one) for one in record.erasure_ids]
        return all(receipt is not None and receipt.complete for receipt in receipts)


def cancelled(record: RequestRecord) -> RequestRecord | None:
    """Return the record of a request that is cancelled; None if it is too late."""
    return record.at(State.CANCELLED, time.time()) if record.state is State.HELD else None


def _begin(record: RequestRecord) -> RequestRecord | None:
    held = record.state is State.HELD and record.due <= time.time()
    return record.at(State.SENDING, time.time()) if held else None


def _at(record: RequestRecord, before: State, after: State) -> RequestRecord | None:
    return record.at(after, time.time()) if record.state is before else None


def _looked(record: RequestRecord, *, completed: bool) -> RequestRecord | None:
    if record.state is not State.SENT:
        return None
    due = time.time() + LOOK_SECONDS
    return record.at(State.COMPLETED, due) if completed else record.model_copy(update={"due": due})
