"""Topics of requests that are made again, and the person who goes on as docs/operations.md says."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field

from lethe.consumers.contract import topics
from lethe.consumers.log.base import Log, Message
from lethe.engine.errors import Unavailable
from tests.proof.chaos.collect import read_topic
from tests.proof.chaos.crew import ROLES, Crew, wait_until
from tests.proof.chaos.history import Record
from tests.proof.chaos.store_pair import Loss
from tests.support.command import Lethe

_LOOK_SECONDS = 0.5
_QUIET_SECONDS = 0.3
_PATIENCE_SECONDS = 60.0
_RECOVERED, _NOTHING_LOST = "recovered", "nothing is lost"


class Gate:
    """Lets senders through, any number at a time, unless it is shut."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._inside = 0
        self._is_shut = False

    @contextmanager
    def passing(self) -> Iterator[None]:
        """Wait until it is open; it is not shut while the block runs."""
        with self._changed:
            self._changed.wait_for(lambda: not self._is_shut)
            self._inside += 1
        try:
            yield
        finally:
            with self._changed:
                self._inside -= 1
                self._changed.notify_all()

    @contextmanager
    def shut(self) -> Iterator[None]:
        """Keep everybody out while the block runs."""
        with self._changed:
            self._is_shut = True
            self._changed.wait_for(lambda: not self._inside)
        try:
            yield
        finally:
            with self._changed:
                self._is_shut = False
                self._changed.notify_all()


def send_until_taken(log: Log, gate: Gate, messages: Sequence[Message]) -> None:
    """Send messages again and again until the log has acknowledged all of them at once."""
    with closing(log.producer()) as producer:
        while messages:
            try:
                with gate.passing():
                    producer.publish(messages, timeout=20.0)
            except Unavailable:
                time.sleep(0.2)
            else:
                break


def make_again(log: Log, crew: Crew, gate: Gate, topic: str) -> list[Record]:
    """Delete a topic of requests and create it again; return what it had.

    Whoever sends to it is held up, so that everything that was in it is known; deletion workers
    go on with what they have.
    """
    sending = ["erasures", "refresh"] if topic == topics.DELETIONS else []
    with crew.without(*sending), gate.shut(), closing(log.reader()) as reader:
        had: list[Record] = []
        while True:  # what was sent by those who were killed may still come
            time.sleep(_QUIET_SECONDS)
            found = read_topic(reader, topic)
            if len(found) == len(had):
                break
            had = found
        former = reader.partitions(topic)
        log.delete_topic(topic)
        wait_until(lambda: not reader.partitions(topic), _PATIENCE_SECONDS, f"{topic} is deleted")
        specs = [spec for spec in topics.specs(len(former)) if spec.name == topic]

        def there() -> bool:
            log.ensure_topics(specs)
            return len(reader.partitions(topic)) == len(former)

        wait_until(there, _PATIENCE_SECONDS, f"{topic} is made again")
    return had


@dataclass
class Operator:
    """Whoever is called when workers end because a topic has lost requests.

    Attributes
    ----------
    crew, lethe
        The workers, and the command.
    send_again
        Has senders send what they have no final receipt of to a topic; returns how much that was.
    losses
        When the store lost what.
    recovered, sent_again
        How often each topic was recovered, and how many requests were sent again then.
    errors
        What went otherwise than the documentation says.
    """

    crew: Crew
    lethe: Lethe
    send_again: Sequence[Callable[[str], int]]
    losses: Sequence[Loss]
    recovered: Counter[str] = field(default_factory=Counter)
    sent_again: Counter[str] = field(default_factory=Counter)
    errors: list[str] = field(default_factory=list)

    def run(self, stop: threading.Event) -> None:
        """Recover what workers name until told to stop."""
        while not stop.wait(_LOOK_SECONDS):
            refused = self.crew.refused()
            if refused is not None:
                self._recover(*refused)

    def _recover(self, topic: str, since: float) -> None:
        with self.crew.without(*ROLES):
            said = ""
            deadline = time.monotonic() + _PATIENCE_SECONDS
            while _RECOVERED not in said and time.monotonic() < deadline:
                before, said = said, self.lethe.say("recover", "--topic", topic, "--yes")
                if _NOTHING_LOST in said:
                    # The answer to the try before may be lost, or what the store knew of topics.
                    if not before and not any(loss.end > since for loss in self.losses):
                        self.errors.append(f"workers ended for {topic}, and {said}")
                    break
            else:
                if _RECOVERED not in said:
                    self.errors.append(f"{topic} was not recovered: {said}")
            self.recovered[topic] += 1
            self.sent_again[topic] += sum(send(topic) for send in self.send_again)
