"""Erasures on a platform: ask for them, let all three workers work, read the combined receipts."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from lethe.consumers.contract import topics
from lethe.consumers.contract.erasure_events import SubjectErasureCompleted
from lethe.consumers.log.base import Message
from lethe.consumers.registration.register import Registered
from lethe.consumers.service.loop import TRANSIENT
from lethe.consumers.workers.erasure_worker import ErasureWorker
from lethe.engine.store.layout.config import LimitsRecord
from lethe.engine.store.layout.keys import ModelKeys
from lethe.engine.store.server.connection import text
from tests.support.families import make
from tests.support.platform import DRAIN_SECONDS, Platform, config_of, training_data

SUBJECT_ROWS = 3
"""Rows of a subject in `training_data`: subject-7 has row-21, row-22 and row-23."""


def rows_of(number: int) -> list[str]:
    """Return the rows of a subject of `training_data`."""
    return [f"row-{SUBJECT_ROWS * number + i}" for i in range(SUBJECT_ROWS)]


def register(
    platform: Platform,
    model_id: str,
    *,
    kind: str = "linear",
    subjects: bool = True,
    namespace: str | None = None,
    keep: Sequence[int] | None = None,
    replace_model: bool = False,
    accept_forgotten: bool = False,
    limits: LimitsRecord | None = None,
    disclosure: bool = False,
    **options: Any,
) -> Registered:
    """Register a model of the benign family; its subjects have three rows each."""
    data = make("benign", kind)
    method, limits = "exact" if disclosure else "pru", limits or LimitsRecord()
    config = config_of(data, model_id, method, 10.0, limits, disclosure=disclosure)
    if namespace is not None:
        config = config.model_copy(update={"subject_namespace": namespace})
    rows = training_data(data, keep)
    rows = rows if subjects else replace(rows, subjects={})
    registrar = platform.registrar(**options)
    done = registrar.register(
        config, rows, replace_model=replace_model, accept_forgotten=accept_forgotten
    )
    platform.data[model_id] = data
    return done


def erase(platform: Platform, subject: str, erasure_id: str, **members: Any) -> None:
    """Ask for an erasure, or for a lift."""
    body = {"erasure_id": erasure_id, "subject_id": subject, **members}
    send_erasure(platform, json.dumps(body).encode(), subject)


def send_erasure(platform: Platform, value: bytes | None, key: str = "any") -> None:
    """Send any bytes to ``lethe.erasures``."""
    platform.producer.publish([Message(topics.ERASURES, key.encode(), value)])


def erasure_worker(platform: Platform, **options: Any) -> ErasureWorker:
    """Return a new erasure worker; the caller closes it."""
    store = platform.new_store()
    return ErasureWorker(platform.log, store, platform.seals, sweep_seconds=0.0, **options)


def turn(worker: ErasureWorker) -> int:
    """Run one turn; recover from what `ErasureWorker.run` recovers from."""
    try:
        return worker.run_once(0.002)
    except TRANSIENT:
        worker.recover()
        return 1


def drain(platform: Platform, worker: ErasureWorker) -> None:
    """Run all workers until every erasure is finished and nothing else is left to do."""
    deadline = time.monotonic() + DRAIN_SECONDS
    while True:
        turn(worker)
        platform.drain()
        if worker.idle():
            platform.drain()  # what a search of registrations has asked for
            return
        if time.monotonic() > deadline:
            raise TimeoutError(f"erasures were not finished after {DRAIN_SECONDS:g} s")


def published(platform: Platform) -> list[tuple[SubjectErasureCompleted, bytes]]:
    """Return all combined receipts with their bytes, in order."""
    values = [record.value or b"" for record in platform.records(topics.ERASURE_RECEIPTS)]
    return [(SubjectErasureCompleted.read(value), value) for value in values]


def finals(platform: Platform) -> dict[str, SubjectErasureCompleted]:
    """Return the final receipt of each erasure; repeats must be byte-identical."""
    found: dict[str, bytes] = {}
    for receipt, value in published(platform):
        if receipt.final and receipt.code != "REQUEST_ID_CONFLICT":
            first = found.setdefault(receipt.erasure_id, value)
            assert first == value, f"{receipt.erasure_id}: two final receipts"
    return {name: SubjectErasureCompleted.read(value) for name, value in found.items()}


def outcomes(receipt: SubjectErasureCompleted) -> dict[str, tuple[str, int]]:
    """Return of each model its status, and how many rows were deleted."""
    return {model.model_id: (model.status, model.rows_deleted) for model in receipt.models}


def live_rows(platform: Platform, model_id: str) -> set[str]:
    """Return the rows that a model holds a record of."""
    state = platform.load(model_id)
    live = ModelKeys(model_id).generation(state.rows_generation)
    stored: list[Any] = [platform.store.client.hkeys(key) for key in live.every_rows()]
    return {text(row) for rows in stored for row in rows}
