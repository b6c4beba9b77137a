"""Combined receipts of erasures, against the models' own: for the simulation and the chaos run.

It shares nothing with the product but the documented form of events (docs/erasures.md).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

HOLDS_NOTHING = ("UNKNOWN_ROWS", "MODEL_UNREGISTERED")
"""Codes of rejections after which a model has no row of the subject."""

CHILD = "erasure-"
"""How the ids of requests begin that erasure workers send to models."""

FinalOf = Callable[[str, str], Mapping[str, Any] | None]
"""Returns the final receipt of a request, by model and request id."""


@dataclass(frozen=True, slots=True)
class Asked:
    """The first request of an id: where it lies, when it came, and what it asks for."""

    offset: int
    time: datetime
    subject: str
    lifts: bool


def asked_of(value: bytes, offset: int, timestamp_ms: int) -> tuple[str, Asked]:
    """Return the id of a request in ``lethe.erasures``, and what it asks for."""
    body = json.loads(value)
    time = datetime.fromtimestamp(timestamp_ms / 1000, UTC)
    return body["erasure_id"], Asked(offset, time, body["subject_id"], body.get("lift", False))


def wrong_of(receipt: Mapping[str, Any], asked: Asked, final_of: FinalOf) -> str | None:
    """Return what a final combined receipt says that is not so, None if all of it is."""
    status, code = receipt["status"], receipt.get("code")
    if receipt["source"]["offset"] != asked.offset:
        return "it is of another request"
    if receipt["complete"] is not (status == "COMPLETE"):
        return f"{status}, and complete is {receipt['complete']}"
    if (receipt.get("op") == "lift") is not asked.lifts:
        return f"its op is {receipt.get('op')}"
    if asked.lifts:
        good = status == "COMPLETE" or code == "ERASURE_PENDING"
        return None if good else f"{status} {code}"
    return "it is rejected" if status == "REJECTED" else _wrong_of_models(receipt, asked, final_of)


def _wrong_of_models(receipt: Mapping[str, Any], asked: Asked, final_of: FinalOf) -> str | None:
    times, gone = [asked.time], True
    for model in receipt["models"]:
        name = model["model_id"]
        answers = [final_of(name, request) for request in model["request_ids"]]
        found = [answer for answer in answers if answer is not None]
        if not found or len(found) < len(answers):
            return f"{name} has not answered"
        if model["rows_deleted"] != sum(one["rows_deleted"] for one in found):
            return f"{name}: {model['rows_deleted']} rows"
        if model["status"] not in {one["status"] for one in found}:
            return f"{name}: {model['status']}"
        times += [datetime.fromisoformat(one["completed_at"]) for one in found]
        gone &= all(one["status"] != "REJECTED" or one["code"] in HOLDS_NOTHING for one in found)
    if receipt["rows_deleted"] != sum(one["rows_deleted"] for one in receipt["models"]):
        return f"{receipt['rows_deleted']} rows in all"
    if datetime.fromisoformat(receipt["completed_at"]) != max(times):
        return f"completed at {receipt['completed_at']}, and the last answer at {max(times)}"
    return None if receipt["complete"] is gone else f"complete is {receipt['complete']}"
