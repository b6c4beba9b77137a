"""What producers do: well-formed requests and others, late, twice, and to any partition."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from random import Random
from typing import Any

from lethe.consumers.contract import topics
from lethe.consumers.log.base import Message, Record
from tests.proof.erased import CHILD
from tests.proof.simulation.log import SimulatedLog
from tests.proof.tables import TableData, values_like
from tests.support.families import Data

Counted = Callable[[str], None]

_OF_ERASURE = b'{"request_id":"' + CHILD.encode()
"""How requests begin that erasure workers send: nobody else sends such."""

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
    data
        What each model is registered with, by its id.
    subjects
        Whose rows are inserted more often than those of others, if any.
    """

    def __init__(
        self,
        rng: Random,
        log: SimulatedLog,
        counted: Counted,
        data: Mapping[str, Data],
        subjects: Sequence[str] = (),
    ) -> None:
        self._rng = rng
        self._log = log
        self._counted = counted
        self._data = data
        self._subjects = subjects
        self._rows = {model: len(of.X) for model, of in data.items()}
        self._inserts: dict[str, list[str]] = {model: [] for model in data}
        self._producer = log.producer()
        self._late: list[tuple[Message, int | None]] = []
        self._strays = rng.random() < 0.25  # one producer has a partitioner of its own
        self._bodies: dict[tuple[str, str], list[bytes]] = {}
        self._topics: dict[bytes, str] = {}
        self._of_body: dict[bytes, tuple[str, str]] = {}
        self.garbage: set[bytes] = set()
        self.sent = 0

    def send(self) -> str:
        """Send something; return a line about it."""
        self.sent += 1
        kind = self._rng.random()
        if kind < 0.42:
            return self._new(self._rng.choice(list(self._rows)))
        if kind < 0.72:
            return self._change(self._rng.choice(list(self._rows)))
        if kind < 0.87:
            return self._repeat()
        if kind < 0.93:
            self._counted("request for a model that is not registered")
            return self._ask(UNREGISTERED, {"row_ids": ["row-0"]})
        garbage = b"not a request %d" % len(self.garbage)
        topic = self._rng.choice([topics.DELETIONS, topics.ROW_CHANGES])
        changes = topic == topics.ROW_CHANGES  # of these, dead letters have the digest alone
        self.garbage.add(hashlib.sha256(garbage).hexdigest().encode() if changes else garbage)
        self._counted("request that cannot be read")
        self._append(topic, garbage, self._rng.choice(list(self._rows)))
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
        if value.startswith(_OF_ERASURE):
            body = json.loads(value)
            return body["model_id"], body["request_id"]
        return self._of_body.get(value)

    def answered_by(self, receipt: Mapping[str, Any]) -> dict[str, Any]:
        """Return the request that a receipt answers: the record that it names.

        A topic that was made again has another record at the same place: the newest counts, since
        everything before was decided.
        """
        source, named = receipt["source"], (receipt["model_id"], receipt["request_id"])
        for record in reversed(self._log.everything(source["topic"])):
            place = (record.partition.index, record.offset)
            if place != (source["partition"], source["offset"]):
                continue
            if self.of_record(record) == named:
                body: dict[str, Any] = json.loads(record.value or b"")
                return body
        raise AssertionError(f"{receipt['request_id']}: its receipt names a record that is not its")

    def publish(self, message: Message) -> None:
        """Send a message of somebody else."""
        self._producer.publish([message])

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
        rows = self._known(model, self._rng.choice([1, 1, 2, 5, 12]))
        return self._ask(model, {"row_ids": rows})

    def _known(self, model: str, count: int) -> list[str]:
        """Return ids of rows that were registered, or that somebody wanted to insert."""
        inserted = self._inserts[model]
        rows = {f"row-{self._rng.randrange(self._rows[model])}": None for _ in range(count)}
        if inserted and self._rng.random() < 0.4:
            rows[self._rng.choice(inserted)] = None
        return list(rows)

    def _change(self, model: str) -> str:
        """Ask for an insert or a correction, now and then of rows that cannot be changed so."""
        op = self._rng.choice(["insert", "insert", "correct"])
        self._counted(f"request to {op} rows")
        if op == "correct" or self._rng.random() < 0.1:
            rows = self._known(model, self._rng.choice([1, 1, 3]))
        else:
            first, count = self._rng.randrange(1000), self._rng.choice([1, 1, 2, 4])
            rows = [f"new-{row}" for row in range(first, first + count)]
            self._inserts[model] += rows
        if self._rng.random() < 0.04:
            rows.append("stranger")
        values = [self._values(model, row, inserts=op == "insert") for row in rows]
        return self._ask(model, {"op": op, "rows": values}, f"{op} {rows}")

    def _values(self, model: str, row: str, *, inserts: bool) -> dict[str, object]:
        """Return a row like one of the model's own; zeros stay, so that sparse rows stay sparse."""
        data, like = self._data[model], self._rng.randrange(self._rows[model])
        x: Any
        if isinstance(data, TableData):
            x = values_like(data, self._rng)
        else:
            x = [value * (1 + 0.3 * self._rng.gauss(0, 1)) for value in data.X[like].tolist()]
        y = data.y[like].tolist()
        if data.kind == "linear":
            y = [value + 0.3 * self._rng.gauss(0, 1) for value in y]
        if self._rng.random() < 0.02:
            x.pop("age" if isinstance(x, dict) else -1)
        found: dict[str, object] = {"id": row, "values": x, "target": y}
        if self._rng.random() < 0.3:
            found["weight"] = self._rng.choice([0.5, 2.0])
        if inserts and self._rng.random() < 0.3:
            found["subject"] = f"subject-{self._rng.randrange(self._rows[model] // 3)}"
        if inserts and self._subjects and self._rng.random() < 0.5:
            found["subject"] = self._rng.choice(self._subjects)
        return found

    def _ask(self, model: str, what: dict[str, Any], said: str = "") -> str:
        name = f"request-{len(self._bodies)}"
        self._bodies[model, name] = []
        body = self._add_body(model, name, what)
        self._append(self._topics[body], body, model)
        return f"send {name} to {model}: {said or what}"

    def _add_body(self, model: str, name: str, what: dict[str, Any]) -> bytes:
        body = json.dumps({"request_id": name, "model_id": model, **what}).encode()
        self._bodies[model, name].append(body)
        self._of_body[body] = model, name
        self._topics[body] = topics.ROW_CHANGES if "op" in what else topics.DELETIONS
        return body

    def _repeat(self) -> str:
        """Send an earlier request again: the same body, or another one under its name."""
        if not self._bodies:
            return "nothing to repeat"
        (model, name), bodies = self._rng.choice(list(self._bodies.items()))
        if self._rng.random() < 0.3 and model in self._rows:
            row, changes = f"row-{self._rng.randrange(self._rows[model])}", self._rng.random() < 0.3
            values = [self._values(model, row, inserts=False)]
            self._add_body(
                model, name, {"op": "correct", "rows": values} if changes else {"row_ids": [row]}
            )
            self._counted("other body under a used request id")
        self._append(self._topics[bodies[-1]], bodies[-1], model)
        return f"repeat {name}: {bodies[-1][:120].decode()}"

    # -- ways into the log --------------------------------------------------------------------

    def _append(self, topic: str, value: bytes, model: str) -> None:
        message = Message(topic, model.encode(), value)
        index = None
        if self._strays and self._rng.random() < 0.4:
            index = self._rng.randrange(len(self._log.partitions(topic)))
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
            partitions = len(self._log.partitions(message.topic))
            self._log.append_to(index % partitions, message)

    def resend(self, records: list[Record]) -> None:
        """Send records again as they are, in their order: into a topic that was made again."""
        for record in records:
            topic, key = record.partition.topic, record.key or b""
            self._producer.publish([Message(topic, key, record.value, record.headers)])
