"""What is asked of the platform: models, requests of every kind, and orders of refreshes."""

from __future__ import annotations

import json
import random
import threading
import time
import uuid
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime

import numpy as np

from lethe.consumers.commits.publish import job_message
from lethe.consumers.contract import topics
from lethe.consumers.contract.cloudevents import headers as event_headers
from lethe.consumers.contract.events import DELETION_REQUESTED, ROWS_CHANGED, RefreshRequested
from lethe.consumers.log.base import Log, Message
from lethe.engine.errors import Unavailable
from lethe.engine.refresh.size import RefreshSize
from lethe.engine.store.layout.config import LimitsRecord
from tests.proof.chaos.history import Asked, Json, change_of
from tests.proof.chaos.recovering import Gate, send_until_taken
from tests.proof.tables import BY_ORDER, TableData, draw, values_like
from tests.support.families import Data

_STRANGERS = 5
_BACKLOG = 4000  # requests without a final receipt, above which producers wait
_KEPT = 20_000  # requests that may be sent again later
_UNSURE = 0.2  # of the batches that failed are never sent again

_OF_INSERTED = 0.2  # of the deletions by row name a row that somebody wanted to insert, too
_OUT_OF_PLACE = 0.05  # of the inserts name rows that may be there already


@dataclass(frozen=True, slots=True)
class Plan:
    """A model of the run."""

    name: str
    data: Data
    method: str
    budget: float
    limits: LimitsRecord = field(default_factory=LimitsRecord)
    disclosure: bool = False
    exact_sums: bool = False
    in_files: bool = False


def plans(rng: random.Random, rows: int) -> list[Plan]:
    """Return the models: linear and logistic, several outputs, classes, tables, one soon empty.

    Of one, the store keeps what its versions disclose.
    """
    drawn = np.random.default_rng(rng.randrange(1 << 32))
    wide = LimitsRecord(floor_rows=256, completions=8)
    return [
        Plan("linear-pru", make(drawn, "linear", rows, 8), "pru", 0.01, wide),
        Plan("linear-exact", make(drawn, "linear", rows, 16, m=2), "exact", 0.02),
        Plan("exact-sums", make(drawn, "linear", rows, 8, m=2), "exact", 0.02, exact_sums=True),
        Plan(
            "in-files", make(drawn, "linear", rows, 6), "pru", 0.02, exact_sums=True, in_files=True
        ),
        Plan("logistic-pru", make(drawn, "logistic", rows, 8), "pru", 0.02, wide),
        Plan("logistic-in-files", make(drawn, "logistic", rows, 6), "pru", 0.02, in_files=True),
        Plan("logistic-exact", make(drawn, "logistic", rows, 12), "exact", 0.005),
        Plan("logistic-influence", make(drawn, "logistic", rows, 5), "influence", 0.02),
        Plan("classes", make(drawn, "classes", rows // 2, 6), "pru", 0.02, wide),
        Plan("table-exact", draw(rows // 2, drawn), "exact", 0.02, wide),
        Plan("table-pru", draw(rows // 4, drawn), "pru", 0.1),
        Plan("table-by-order", draw(rows // 4, drawn, columns=BY_ORDER), "exact", 0.1),
        Plan(
            "table-in-files", draw(rows // 4, drawn), "exact", 0.02, exact_sums=True, in_files=True
        ),
        Plan("table-logistic", draw(rows // 2, drawn, "logistic"), "exact", 0.1, wide),
        Plan("soon-empty", make(drawn, "linear", 48, 5), "exact", 0.05),
        Plan(
            "disclosing", make(drawn, "linear", rows // 2, 6), "exact", 0.02, wide, disclosure=True
        ),
    ]


def make(rng: np.random.Generator, kind: str, n: int, d: int, m: int = 1) -> Data:
    """Return rows of which every number is a marker: 52 random bits that nothing else has."""
    X = rng.standard_normal((n, d))
    pull = X @ rng.standard_normal((d, 3 if kind == "classes" else m)) / np.sqrt(d)
    if kind == "linear":
        y = 1.0 + pull + 0.3 * rng.standard_normal((n, m))
    elif kind == "classes":
        y = np.eye(3)[np.argmax(pull + rng.gumbel(size=(n, 3)), axis=1)]
    else:
        y = (rng.random((n, 1)) < 1 / (1 + np.exp(-pull))).astype(np.float64)
    return Data(
        "chaos", "linear" if kind == "linear" else "logistic", X, y, np.ones(n), 1.0, True,
        np.arange(0),
    )  # fmt: skip


class Producers:
    """Draw requests and send them in batches, until told to stop.

    Parameters
    ----------
    log, gate
        Where requests go; every thread has its own producer. What holds them up.
    models
        Whom they are about.
    rate
        Requests a second, of all threads together.
    planned
        Requests of the whole run: rows are named for the first time so seldom that they last.
    """

    def __init__(
        self, log: Log, gate: Gate, models: Sequence[Plan], rate: float, planned: float
    ) -> None:
        self._log = log
        self._gate = gate
        self._models = list(models)
        self._rate = rate
        rows = sum(len(plan.data.X) for plan in models)
        self._fresh = min(0.67, 0.75 * rows / max(1.0, planned))
        self._lock = threading.Lock()
        self._names = 0
        self._kept: list[tuple[Asked, bytes]] = []  # what may be sent again
        self._order = {plan.name: self._shuffled(plan) for plan in models}
        self._rows = {name: order[::-1] for name, order in self._order.items()}
        self._inserted: dict[str, list[str]] = {plan.name: [] for plan in models}
        self.contents: dict[tuple[str, str], dict[Asked, bool]] = {}
        self.garbage: dict[bytes, bool] = {}
        self.sent = 0
        self.unsure = 0
        self.answered: set[tuple[str, str]] = set()
        self._waiting: dict[tuple[str, str], dict[bytes, Message]] = {}
        self.stop = threading.Event()

    @staticmethod
    def _shuffled(plan: Plan) -> list[int]:
        rows = list(range(len(plan.data.X)))
        random.Random(plan.name).shuffle(rows)
        return rows

    def waiting(self) -> set[tuple[str, str]]:
        """Return the acknowledged requests that have no final receipt yet."""
        with self._lock:
            return set(self._waiting)

    def answer(self, model: str, request_id: str) -> None:
        """Take note of a final receipt; the watcher of receipts calls this."""
        with self._lock:
            self.answered.add((model, request_id))
            self._waiting.pop((model, request_id), None)

    def send_again(self, topic: str) -> int:
        """Send what a topic took, and what has no final receipt, again; return how much."""
        with self._lock:
            messages = [
                message
                for sent in self._waiting.values()
                for message in sent.values()
                if message.topic == topic
            ]
        send_until_taken(self._log, self._gate, messages)
        return len(messages)

    def asked(self) -> list[Asked]:
        """Return every content that was sent, and whether it was acknowledged."""
        return [
            replace(one, acknowledged=done)
            for contents in self.contents.values()
            for one, done in contents.items()
        ]

    # -- one thread ---------------------------------------------------------------------------

    def run(self, seed: int, share: float) -> None:
        """Send until told to stop; then send again what must not stay unsure."""
        rng = random.Random(seed)
        producer = self._log.producer()
        again: list[tuple[Asked | None, Message]] = []
        due = time.monotonic()
        while not self.stop.is_set() or again:
            count = rng.choice([1, 5, 20, 60])
            if again:
                batch, again = again, []
            else:
                due += count / (self._rate * share)  # what an outage held up is made good
                self.stop.wait(max(0.0, due - time.monotonic()))
                while len(self._waiting) > _BACKLOG and not self.stop.wait(0.2):
                    due = time.monotonic()
                batch = [self._draw(rng) for _ in range(count)]
            try:
                with self._gate.passing():
                    producer.publish([message for _, message in batch], timeout=20.0)
            except Unavailable:
                time.sleep(0.2)
                if rng.random() < _UNSURE and not self.stop.is_set():
                    self.unsure += len(batch)
                else:
                    again = batch
                continue
            self._acknowledge(batch)
        producer.close()

    def _acknowledge(self, batch: Sequence[tuple[Asked | None, Message]]) -> None:
        with self._lock:
            self.sent += len(batch)
            for asked, message in batch:
                if asked is None:
                    self.garbage[message.value or b""] = True
                else:
                    name = (asked.model, asked.request_id)
                    self.contents[name][asked] = True
                    if name not in self.answered:
                        value = message.value or b""
                        self._waiting.setdefault(name, {}).setdefault(value, message)
                    if len(self._kept) < _KEPT:
                        self._kept.append((asked, message.value or b""))

    # -- drawing ------------------------------------------------------------------------------

    def _draw(self, rng: random.Random) -> tuple[Asked | None, Message]:
        kind = rng.random()
        plan = rng.choice(self._models)
        if kind < 0.03:
            return self._garbage(rng, plan)
        if kind < 0.11 and self._kept:
            return self._repeat(rng)
        if kind < 0.15 and self._kept:
            return self._conflict(rng)
        model, subject = plan.name, None
        rows: tuple[str, ...] | None = None
        if kind < 0.19:
            model, rows = f"nobody-{rng.randrange(_STRANGERS)}", ("row-0",)
        elif kind < 0.23:
            rows = (f"stranger-{rng.randrange(1000)}",)
        elif kind < 0.35:
            subject = self._some_subject(rng, plan)
        elif kind < 0.60:
            return self._change(rng, plan)
        else:
            extra = ("stranger",) if kind < 0.63 else ()
            rows = (*self._some_rows(rng, plan), *extra)
        return self._request(rng, model, rows, subject)

    def _some_subject(self, rng: random.Random, plan: Plan) -> str:
        """Return any subject now and then, else one of a row that was named before."""
        row = rng.randrange(len(plan.data.X))
        if rng.random() > self._fresh:
            order = self._order[plan.name]
            row = order[rng.randrange(max(1, len(order) - len(self._rows[plan.name])))]
        return f"subject-{row // 3}"

    def _some_rows(self, rng: random.Random, plan: Plan) -> tuple[str, ...]:
        """Return rows that were not named yet, or (one time in three) any."""
        fresh = self._rows[plan.name]
        count = rng.choice([1, 1, 1, 2, 3])
        spare = plan.name == "soon-empty" or len(fresh) > len(plan.data.X) // 10
        with self._lock:
            if spare and len(fresh) >= count and rng.random() < self._fresh:
                chosen = [fresh.pop() for _ in range(count)]
            else:
                # Rows that were named before, so that the pool lasts as long as the run.
                named = max(1, len(plan.data.X) - len(fresh))
                chosen = [self._order[plan.name][rng.randrange(named)] for _ in range(count)]
            inserted = self._inserted[plan.name]
            extra = [rng.choice(inserted)] if inserted and rng.random() < _OF_INSERTED else []
        return tuple(dict.fromkeys([*(f"row-{row}" for row in chosen), *extra]))

    def _change(self, rng: random.Random, plan: Plan) -> tuple[Asked, Message]:
        """Insert new rows or correct others, now and then such as are there or are not."""
        op = rng.choice(["insert", "correct"])
        count = rng.choice([1, 1, 2, 4])
        with self._lock:
            inserted = self._inserted[plan.name]
            known = [f"row-{rng.randrange(len(plan.data.X))}", *inserted[-20:]]
            if op == "correct" or rng.random() < _OUT_OF_PLACE:
                names = rng.sample(known, min(count, len(known)))
            else:
                names = [f"new-{len(inserted) + i}" for i in range(count)]
                inserted += names
        rows = [self._row(rng, plan, name, inserts=op == "insert") for name in names]
        return self._request(rng, plan.name, None, None, change={"op": op, "rows": rows})

    def _row(self, rng: random.Random, plan: Plan, name: str, *, inserts: bool) -> Json:
        data = plan.data
        y = [rng.gauss(1, 1) if data.kind == "linear" else 1.0 for _ in range(data.y.shape[1])]
        row: Json = {"id": name, "values": [rng.gauss(0, 1) for _ in data.X[0]], "target": y}
        if isinstance(data, TableData):
            row["values"] = values_like(data, rng)
        if rng.random() < 0.3:
            row["weight"] = rng.choice([0.5, 2.0])
        if inserts and rng.random() < 0.3:
            row["subject"] = f"subject-{rng.randrange(len(data.X)) // 3}"
        return row

    def _request(
        self,
        rng: random.Random,
        model: str,
        rows: tuple[str, ...] | None,
        subject: str | None,
        request_id: str | None = None,
        change: Json | None = None,
    ) -> tuple[Asked, Message]:
        with self._lock:
            self._names += 1
            name = request_id or f"r{self._names}"
        asked = Asked(model, name, rows, subject, False, change_of(change or {}))
        body = {"request_id": name, "model_id": model}
        named: Json = {"row_ids": list(rows)} if rows is not None else {"subject_id": subject}
        named = change or named
        value = json.dumps(body | named).encode()
        with self._lock:
            self.contents.setdefault((model, name), {}).setdefault(asked, False)
        return asked, _message(rng, model, value, _topic_of(asked))

    def _repeat(self, rng: random.Random) -> tuple[Asked, Message]:
        asked, value = rng.choice(self._kept)
        return asked, _message(rng, asked.model, value, _topic_of(asked))

    def _conflict(self, rng: random.Random) -> tuple[Asked, Message]:
        first, _ = rng.choice(self._kept)
        rows = (f"row-{rng.randrange(40)}", f"other-{rng.randrange(1000)}")
        return self._request(rng, first.model, rows, None, first.request_id)

    def _garbage(self, rng: random.Random, plan: Plan) -> tuple[None, Message]:
        mark = uuid.UUID(int=rng.getrandbits(128)).hex
        value = rng.choice(
            [
                f"no request {mark}".encode(),
                f'{{"request_id": "{mark}"'.encode(),
                f'["{mark}"]'.encode(),
                f'"{mark}"'.encode(),
                bytes.fromhex(mark) + b"\xff\x00",
                f'{{"mark": "{mark}", "row_ids": 7}}'.encode(),
            ]
        )
        with self._lock:
            self.garbage.setdefault(value, False)
        topic = rng.choice([topics.DELETIONS, topics.ROW_CHANGES])
        return None, Message(topic, plan.name.encode(), value)


def _topic_of(asked: Asked) -> str:
    return topics.DELETIONS if asked.change is None else topics.ROW_CHANGES


def _message(rng: random.Random, model: str, value: bytes, topic: str) -> Message:
    headers: tuple[tuple[str, bytes], ...] = ()
    if rng.random() < 0.3:
        kind = DELETION_REQUESTED if topic == topics.DELETIONS else ROWS_CHANGED
        headers = event_headers(kind, uuid.uuid4().hex, datetime.now(UTC), model)
    return Message(topic, model.encode(), value, headers)


def refresh_order(size: RefreshSize | None, model: str, generation: int, version: int) -> Message:
    """Return a person's order of a refresh."""
    event = RefreshRequested(
        job_id=uuid.uuid4().hex,
        model_id=model,
        generation=generation,
        version=version,
        reason="ordered",
        size=size,
    )
    return job_message(event, datetime.now(UTC))
