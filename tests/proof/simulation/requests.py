"""What producers do: well-formed requests and others, late, twice, and to any partition."""

from __future__ import annotations

import json
from collections.abc import Callable
from random import Random
from typing import Any

from lethe.consumers.contract import topics
from lethe.consumers.contract.events import Receipt
from lethe.consumers.log.base import Message, Record
from tests.proof.simulation.log import SimulatedLog

Counted = Callable[[str], None]

UNREGISTERED = "nobody"
"""A model id that is never registered."""


class Producers:
    """All producers of a run.

    Parameters
    ----------
    rng, log
        What decides, and where requests go.
    counted
        Called with the kind of each fault.
    rows
        How many rows each model has, by its id.
    """

    def __init__(
        self, rng: Random, log: SimulatedLog, counted: Counted, rows: dict[str, int]
    ) -> None:
        self._rng = rng
        self._log = log
        self._counted = counted
        self._rows = rows
        self._producer = log.producer()
        self._late: list[tuple[Message, int | None]] = []
        self._strays = rng.random() < 0.25  # one producer has a partitioner of its own
        self._bodies: dict[tuple[str, str], list[bytes]] = {}
        self._of_body: dict[bytes, tuple[str, str]] = {}
        self.garbage: set[bytes] = set()
        self.sent = 0

    def send(self) -> str:
        """Send something; return a line about it."""
        self.sent += 1
        kind = self._rng.random()
        if kind < 0.72:
            return self._new(self._rng.choice(list(self._rows)))
        if kind < 0.87:
            return self._repeat()
        if kind < 0.93:
            self._counted("request for a model that is not registered")
            return self._ask(UNREGISTERED, {"row_ids": ["row-0"]})
        garbage = b"not a request %d" % len(self.garbage)
        self.garbage.add(garbage)
        self._counted("request that cannot be read")
        self._append(garbage, self._rng.choice(list(self._rows)))
        return "send garbage"

    def deliver(self, everything: bool = False) -> None:
        """Send what was delayed, in any order."""
        self._rng.shuffle(self._late)
        while self._late:
            message, index = self._late.pop()
            self._put(message, index)
            if not everything:
                return

    def of_record(self, record: Record) -> tuple[str, str] | None:
        """Return model and request id of the request in a record; None: it is none of ours."""
        value = record.value or b""
        return self._of_body.get(value)

    def answered_by(self, receipt: Receipt) -> dict[str, Any]:
        """Return the request that a receipt answers: the record that it names."""
        bodies = self._bodies[receipt.model_id, receipt.request_id]
        place = (receipt.source.partition, receipt.source.offset)
        for record in self._log.everything(topics.DELETIONS):
            found = (record.partition.index, record.offset) == place and record.value in bodies
            if found:
                body: dict[str, Any] = json.loads(record.value or b"")
                return body
        raise AssertionError(f"{receipt.request_id}: its receipt names a record that is not its")

    # -- kinds --------------------------------------------------------------------------------

    def _new(self, model: str) -> str:
        n = self._rows[model]
        kind = self._rng.random()
        if kind < 0.08:
            return self._ask(model, {"row_ids": ["stranger", f"row-{self._rng.randrange(n)}"]})
        if kind < 0.14:
            return self._ask(model, {"row_ids": ["stranger"]})
        if kind < 0.30:
            return self._ask(model, {"subject_id": f"subject-{self._rng.randrange(n // 3)}"})
        rows = self._rng.sample(range(n), min(n, self._rng.choice([1, 1, 2, 5, 12])))
        return self._ask(model, {"row_ids": [f"row-{row}" for row in rows]})

    def _ask(self, model: str, what: dict[str, object]) -> str:
        name = f"request-{len(self._bodies)}"
        body = json.dumps({"request_id": name, "model_id": model, **what}).encode()
        self._bodies[model, name] = [body]
        self._of_body[body] = model, name
        self._append(body, model)
        return f"send {name} to {model}: {what}"

    def _repeat(self) -> str:
        """Send an earlier request again: the same body, or another one under its name."""
        if not self._bodies:
            return "nothing to repeat"
        (model, name), bodies = self._rng.choice(list(self._bodies.items()))
        if self._rng.random() < 0.3 and model in self._rows:
            row = f"row-{self._rng.randrange(self._rows[model])}"
            body = {"request_id": name, "model_id": model, "row_ids": [row]}
            bodies.append(json.dumps(body).encode())
            self._of_body[bodies[-1]] = model, name
            self._counted("other body under a used request id")
        self._append(bodies[-1], model)
        return f"repeat {name}: {bodies[-1].decode()}"

    # -- ways into the log --------------------------------------------------------------------

    def _append(self, value: bytes, model: str) -> None:
        message = Message(topics.DELETIONS, model.encode(), value)
        index = None
        if self._strays and self._rng.random() < 0.4:
            index = self._rng.randrange(len(self._log.partitions(topics.DELETIONS)))
            self._counted("producer with another partitioner")
        if self._rng.random() < 0.15:
            self._late.append((message, index))
            self._counted("request delayed")
            return
        self._put(message, index)
        if self._rng.random() < 0.08:
            self._put(message, index)
            self._counted("producer retries: the same append twice")

    def _put(self, message: Message, index: int | None) -> None:
        if index is None:
            self._producer.publish([message])
        else:
            partitions = len(self._log.partitions(topics.DELETIONS))
            self._log.append_to(index % partitions, message)

    def resend(self, records: list[Record]) -> None:
        """Send records again as they are, in their order: into a topic that was made again."""
        for record in records:
            message = Message(topics.DELETIONS, record.key or b"", record.value, record.headers)
            self._producer.publish([message])
