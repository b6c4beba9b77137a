"""What is kept of an OpenDSR request in the store, from its arrival to its last callback.

The subjects are kept only until the request is sent or cancelled. Each change is made only if the
record is still as it was read, so that of a sender and a canceller, or of two servers, one comes
first.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from enum import StrEnum
from typing import Any

import redis
from pydantic import BaseModel, ConfigDict

from lethe.consumers.contract.erasure_events import SubjectErasureRequested
from lethe.consumers.contract.events import rfc3339
from lethe.engine.errors import CorruptState
from lethe.engine.store.layout.keys import PREFIX
from lethe.engine.store.server.connection import reachable

KEPT_SECONDS = 90 * 86_400
"""How long a request can be asked about after its end: as long as receipts are kept."""

# One hash tag, so that one transaction writes both on a cluster, too.
_OPEN = f"{PREFIX}:{{opendsr}}:open"
_TRIES = 20


class State(StrEnum):
    """Where a request stands."""

    HELD = "HELD"
    SENDING = "SENDING"
    SENT = "SENT"
    COMPLETED = "COMPLETED"
    CANCELLED = "CANCELLED"

    @property
    def status(self) -> str:
        """The word of the standard."""
        return {
            State.HELD: "pending",
            State.SENDING: "pending",
            State.SENT: "in_progress",
            State.COMPLETED: "completed",
            State.CANCELLED: "cancelled",
        }[self]


class Notice(BaseModel):
    """A callback that is still to be made."""

    model_config = ConfigDict(frozen=True)

    url: str
    status: str
    tries: int = 0
    at: float = 0.0


class RequestRecord(BaseModel):
    """One request of a controller.

    Attributes
    ----------
    body
        SHA-256 of the body, to tell a repeat from another request with its id.
    due
        When it is looked at next, in seconds since 1970.
    erasure_ids
        The erasures that it became, one for each subject.
    events
        What is to be sent; empty once it is sent or cancelled.
    """

    model_config = ConfigDict(frozen=True)

    subject_request_id: str
    controller_id: str
    body: str
    received_at: datetime
    expected_at: datetime
    state: State = State.HELD
    due: float
    erasure_ids: tuple[str, ...]
    events: tuple[SubjectErasureRequested, ...] = ()
    callback_urls: tuple[str, ...] = ()
    notices: tuple[Notice, ...] = ()

    def at(self, state: State, due: float) -> RequestRecord:
        """Return the record in another state, with callbacks if that changes the status."""
        changed = state.status != self.state.status
        new = [Notice(url=url, status=state.status) for url in self.callback_urls if changed]
        kept = () if state in (State.SENT, State.CANCELLED) else self.events
        update = {"state": state, "due": due, "events": kept, "notices": (*self.notices, *new)}
        return self.model_copy(update=update)

    @property
    def ended(self) -> bool:
        """Whether nothing more is to be done."""
        return self.state in (State.COMPLETED, State.CANCELLED) and not self.notices


def status_of(record: RequestRecord) -> dict[str, Any]:
    """Return what the standard says of a request's status."""
    return {
        "controller_id": record.controller_id,
        "subject_request_id": record.subject_request_id,
        "request_status": record.state.status,
        "expected_completion_time": rfc3339(record.expected_at),
        "api_version": "1.0",
    }


class Records:
    """The requests in one store; for any thread."""

    def __init__(self, client: redis.Redis) -> None:
        self._client = client

    def add(self, record: RequestRecord) -> RequestRecord:
        """Write a new record; return it, or the one that is there under its id already."""
        with reachable(self._client):
            # The list first: an entry without a record is dropped, a record without one is lost.
            self._client.zadd(_OPEN, {record.subject_request_id: record.due}, nx=True)
            added = self._client.set(
                _key(record.subject_request_id), record.model_dump_json(), nx=True
            )
        return record if added else self.find(record.subject_request_id) or record

    def find(self, subject_request_id: str) -> RequestRecord | None:
        """Return a record, if there is one."""
        with reachable(self._client):
            stored: Any = self._client.get(_key(subject_request_id))
        return _parsed(stored, subject_request_id)

    def change(
        self, subject_request_id: str, to: Callable[[RequestRecord], RequestRecord | None]
    ) -> RequestRecord | None:
        """Replace a record by what ``to`` makes of it (None: leave it); return what is there now.

        ``to`` may be called again, if another process changes the record at the same moment.
        """
        key = _key(subject_request_id)
        pipeline: Any
        with reachable(self._client), self._client.pipeline() as pipeline:
            for _ in range(_TRIES):
                pipeline.watch(key)
                before = _parsed(pipeline.get(key), subject_request_id)
                after = None if before is None else to(before)
                if after is None:
                    return before
                pipeline.multi()
                pipeline.set(key, after.model_dump_json(), ex=KEPT_SECONDS if after.ended else None)
                if after.ended:
                    pipeline.zrem(_OPEN, subject_request_id)
                else:
                    pipeline.zadd(_OPEN, {subject_request_id: after.due})
                try:
                    pipeline.execute()
                except redis.WatchError:
                    continue
                return after
        raise CorruptState(f"OpenDSR request {subject_request_id}: it keeps being changed")

    def due(self, now: float, limit: int) -> list[str]:
        """Return the ids of requests that are to be looked at, the oldest first."""
        with reachable(self._client):
            names: Any = self._client.zrangebyscore(_OPEN, "-inf", now, start=0, num=limit)
        return [name.decode() for name in names]

    def drop(self, subject_request_id: str) -> None:
        """Drop an entry of the list that has no record: its server died before it wrote one."""
        with reachable(self._client):
            self._client.zrem(_OPEN, subject_request_id)


def _key(subject_request_id: str) -> str:
    return f"{PREFIX}:{{opendsr}}:request:{subject_request_id}"


def _parsed(stored: bytes | None, subject_request_id: str) -> RequestRecord | None:
    if stored is None:
        return None
    try:
        return RequestRecord.model_validate_json(stored)
    except ValueError:
        raise CorruptState(f"OpenDSR request {subject_request_id}: its record is damaged") from None
