"""Sends requests of every kind to the log, and waits for what answers them.

A sender first asks where answers will come (`Client.answers`), then sends, then waits.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass
from functools import cached_property
from itertools import chain
from typing import TypeVar

from lethe.consumers.contract.erasure_events import SubjectErasureCompleted
from lethe.consumers.contract.receipt import Receipt
from lethe.consumers.contract.requests import Request, request_message
from lethe.consumers.contract.signatures import Signer, TrustedKeys
from lethe.consumers.contract.signed_log import is_believed
from lethe.consumers.log.base import Appended, Log, Message, Partition, Producer, Reader, Record
from lethe.consumers.service.telemetry.progress import Progress, no_progress
from lethe.engine.errors import InvalidRequest, Unavailable

_MESSAGES = 1_000  # sent at a time
_READ_SECONDS = 0.5
_READ_RECORDS = 500

A = TypeVar("A", Receipt, SubjectErasureCompleted)


class NoReceipt(Unavailable):
    """No final receipt came in time; the request is in the log and will be processed."""

    code = "NO_RECEIPT"
    exit_code = 1


@dataclass(frozen=True, slots=True)
class Answers:
    """Where answers to requests come: what is appended to a partition from an offset on.

    With ``trusted`` keys, what none of them signed is passed over.
    """

    reader: Reader
    partition: Partition
    offset: int
    trusted: TrustedKeys | None

    def until(self, deadline: float) -> Iterator[Sequence[Record]]:
        """Yield records as they come, nothing twice a second, until a deadline of the clock."""
        offset = self.offset
        while (left := deadline - time.monotonic()) > 0:
            pause = min(_READ_SECONDS, left)
            records, offset = self.reader.read(self.partition, offset, pause, _READ_RECORDS)
            yield [record for record in records if is_believed(record, self.trusted)]


def newest_answers(
    batches: Iterable[Sequence[Record]],
    read: Callable[[Record], tuple[str, A] | None],
    waiting: Iterable[str],
    news: Callable[[A], None] = lambda _: None,
) -> dict[str, A]:
    """Return the final answers as soon as all have come, else the newest of each request.

    ``read`` returns the id of the request that a record answers, and the answer; None if it is none
    of these. ``news`` is called with the first answer to a request, if it is not final.
    """
    newest: dict[str, A] = {}
    left = set(waiting)
    for record in chain.from_iterable(batches):
        name, answer = read(record) or ("", None)
        if answer is None or name not in left:
            continue
        if answer.final:
            left.discard(name)
        elif name not in newest:
            news(answer)
        newest[name] = answer
        if not left:
            break
    return newest


class Client:
    """Sends requests and finds their answers; one thread uses it, in a ``with`` statement.

    ``signer`` signs requests, where workers accept signed requests only; ``trusted`` is whose
    answers are believed, None: everybody's.
    """

    def __init__(
        self, log: Log, signer: Signer | None = None, trusted: TrustedKeys | None = None
    ) -> None:
        self._log = log
        self._signer = signer
        self._trusted = trusted
        self._opened = ExitStack()

    def __enter__(self) -> Client:
        """Return itself: connections are opened when they are needed."""
        return self

    def __exit__(self, *_: object) -> None:
        """Release connections."""
        self._opened.close()

    @cached_property
    def reader(self) -> Reader:
        """What reads the log."""
        return self._opened.enter_context(closing(self._log.reader()))

    @cached_property
    def _producer(self) -> Producer:
        return self._opened.enter_context(closing(self._log.producer()))

    def answers(self, requests: str, answers: str, key: str) -> Answers:
        """Return where answers to requests that are sent from now on will come: topics, and a key.

        Raises
        ------
        InvalidRequest
            A topic does not exist: what is sent now would be lost.
        """
        if not (self.reader.partitions(requests) and self.reader.partitions(answers)):
            raise InvalidRequest(
                f"the topics {requests} and {answers} do not exist; `lethe register` and "
                "`lethe work` create them. Nothing was sent"
            )
        partition = self.reader.partition_for(answers, key.encode())
        return Answers(self.reader, partition, self.reader.bounds(partition).end, self._trusted)

    def send(self, requests: Sequence[Request], progress: Progress = no_progress) -> list[Appended]:
        """Send requests, and return where they are once the log has acknowledged them.

        Raises
        ------
        LogUnavailable
            They were not acknowledged, and may be in the log: sent again, each is one request.
        """
        places: list[Appended] = []
        for start in range(0, len(requests), _MESSAGES):
            progress("sending requests", start, len(requests))
            part = requests[start : start + _MESSAGES]
            places += self.append(request_message(one, self._signer) for one in part)
        return places

    def append(self, messages: Iterable[Message]) -> Sequence[Appended]:
        """Send messages that are made already; raises what `send` raises."""
        return self._producer.append(messages)
