"""Erasures in a run: who is asked for, and what must have come of it in the end."""

from __future__ import annotations

import json
import random
import threading
from collections.abc import Mapping, Sequence
from typing import Any

from lethe.consumers.contract import topics
from lethe.consumers.log.base import Log, Message
from tests.proof.chaos.facts import Facts, Verdict
from tests.proof.chaos.history import Asked, Record, answered_by, by_source
from tests.proof.chaos.recovering import Gate, send_until_taken
from tests.proof.erased import CHILD, Asked as Erasure, asked_of, wrong_of

_AGAIN, _LIFT = 0.15, 0.25
"""Of what is sent: a request of before once more; and the lift of somebody who was asked for."""


class Askers:
    """Sends erasures and lifts until told to stop.

    Parameters
    ----------
    log, gate
        Where they go, and what holds them up.
    subjects
        How many there are: ``subject-0`` and so on.
    rate
        Requests a second.
    """

    def __init__(self, log: Log, gate: Gate, subjects: int, rate: float) -> None:
        self._log = log
        self._gate = gate
        self._subjects = subjects
        self._rate = rate
        self._lock = threading.Lock()
        self._waiting: dict[str, Message] = {}
        self._answered: set[str] = set()
        self.sent = 0

    def waiting(self) -> set[str]:
        """Return the ids of erasures and lifts without a final receipt."""
        with self._lock:
            return set(self._waiting)

    def answer(self, erasure_id: str) -> None:
        """Take note of a final receipt; the watcher of receipts calls this."""
        with self._lock:
            self._answered.add(erasure_id)
            self._waiting.pop(erasure_id, None)

    def send_again(self, topic: str) -> int:
        """Send what has no final receipt again, if it goes to a topic; return how much."""
        with self._lock:
            messages = list(self._waiting.values()) if topic == topics.ERASURES else []
        send_until_taken(self._log, self._gate, messages)
        return len(messages)

    def run(self, seed: int, stop: threading.Event) -> None:
        """Send until told to stop; what the log may not have is sent again."""
        rng = random.Random(seed)
        messages: list[Message] = []
        while not stop.wait(rng.uniform(0.5, 1.5) / self._rate):
            messages.append(self._draw(rng, messages))
            # whoever asks for an erasure is not content with less
            send_until_taken(self._log, self._gate, messages[-1:])
            name = json.loads(messages[-1].value or b"")["erasure_id"]
            with self._lock:
                if name not in self._answered:
                    self._waiting.setdefault(name, messages[-1])
            self.sent += 1

    def _draw(self, rng: random.Random, before: Sequence[Message]) -> Message:
        kind = rng.random()
        if before and kind < _AGAIN:
            return rng.choice(before)
        if before and kind < _AGAIN + _LIFT:
            subject = json.loads(rng.choice(before[-10:]).value or b"")["subject_id"]
            body = {"erasure_id": f"l{len(before)}", "subject_id": subject, "lift": True}
        else:
            subject = f"subject-{rng.randrange(self._subjects)}"
            body = {"erasure_id": f"e{len(before)}", "subject_id": subject}
        return Message(topics.ERASURES, subject.encode(), json.dumps(body).encode())


def children(records: Sequence[Record]) -> list[Asked]:
    """Return the requests that erasure workers sent to models: they are judged like any other."""
    found: dict[Asked, None] = {}
    for record in records:
        data = record.data or {}
        if str(data.get("request_id", "")).startswith(CHILD):
            name, subject = data["request_id"], data["subject_id"]
            there = record.life == 0  # else the erasure worker may ask otherwise when it asks again
            found[Asked(data["model_id"], name, None, subject, acknowledged=there)] = None
    return list(found)


def erasures_of(facts: Facts) -> Mapping[str, Erasure]:
    """Return the request of each id that was answered, else the first, in the order of the log."""
    records = facts.history.topics.get(topics.ERASURES, [])
    at = by_source(records)
    answered = {
        name: answered_by(json.loads(values[-1]), at) for name, values in _finals(facts).items()
    }
    found: dict[str, Erasure] = {}
    for record in records:
        name, asked = asked_of(record.value, record.source[2], record.timestamp_ms)
        if answered.get(name) in (None, record):
            found.setdefault(name, asked)
    return found


def one_combined_receipt(facts: Facts) -> Verdict:
    """Every erasure and every lift has one final combined receipt, and it says what is so.

    A repeat is the same byte for byte: no model is registered meanwhile.
    """
    verdict = Verdict("erasures without exactly one true final receipt")
    finals = _finals(facts)
    for name, asked in erasures_of(facts).items():
        values = dict.fromkeys(finals.get(name, []))
        verdict.notes["repeats, byte for byte"] += len(finals.get(name, [])) - len(values)
        verdict.check(len(values) == 1, f"{name}: {len(values)} final receipts")
        for value in values:
            receipt = json.loads(value)
            wrong = wrong_of(receipt, asked, lambda model, one: facts.final((model, one)))
            verdict.check(wrong is None, f"{name}: {wrong}")
            verdict.notes[f"{'lifts' if asked.lifts else 'erasures'} {receipt['status']}"] += 1
            verdict.notes["rows deleted"] += receipt["rows_deleted"]
    sent = [
        record
        for record in facts.history.topics.get(topics.DELETIONS, [])
        if str((record.data or {}).get("request_id", "")).startswith(CHILD)
    ]
    verdict.notes["requests to models"] = len({record.value for record in sent})
    verdict.notes["of which were sent again"] = len(sent) - len({record.value for record in sent})
    return verdict


def the_erased_stay_away(facts: Facts) -> Verdict:
    """No model has a row of a subject whose erasure was not lifted; all of them are on the list."""
    verdict = Verdict("subjects who were erased and have rows, or are not on the list")
    finals, asked = _finals(facts), erasures_of(facts)
    away: dict[str, bool] = {}
    for name, one in asked.items():
        lifted = one.lifts and all(json.loads(v)["complete"] for v in finals.get(name, []))
        if lifted or not one.lifts:
            away[one.subject] = not lifted
    marks: dict[bytes, Any] = {}
    for record in facts.history.topics.get(topics.SUPPRESSIONS, []):
        marks[record.key] = record.data or {}
    listed = {asked[one["erasure_id"]].subject for one in marks.values() if not one["lifted"]}
    live = {
        (model, row.subject)
        for model, rows in facts.history.rows.items()
        for row in rows.live.values()
    }
    for subject, gone in away.items():
        verdict.check((subject in listed) is gone, f"{subject}: listed is {subject in listed}")
        left = [model for model in facts.history.data if (model, subject) in live]
        verdict.check(not (gone and left), f"{subject} has rows in {left}")
        verdict.notes["erased"] += gone
    verdict.notes["inserts refused"] = sum(
        receipt["code"] == "SUBJECT_ERASED"
        for finals_of in facts.finals.values()
        for receipt in finals_of.values()
    )
    return verdict


def _finals(facts: Facts) -> Mapping[str, list[bytes]]:
    found: dict[str, list[bytes]] = {}
    for record in facts.history.topics.get(topics.ERASURE_RECEIPTS, []):
        receipt = record.data or {}
        if receipt["status"] != "PENDING" and receipt.get("code") != "REQUEST_ID_CONFLICT":
            found.setdefault(receipt["erasure_id"], []).append(record.value)
    return found
