"""Requests by subject: a subject may have more rows than any update takes."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace

import pytest

from lethe.engine.store import lookup as lookup_module
from lethe.engine.store.layout.config import LimitsRecord
from lethe.engine.store.server.pipeline import present
from tests.support.families import make
from tests.support.platform import Platform, config_of, row_ids, training_data

LIMITS = LimitsRecord(floor_rows=2, fraction_of_d=0)  # 16 rows in a generation at most


def register_owners(platform: Platform, owners: Mapping[str, Sequence[str]]) -> tuple[str, ...]:
    """Register model ``m`` whose rows belong to these subjects."""
    data = make("benign", "linear")
    platform.registrar().register(
        config_of(data, "m", "pru", 0.05, LIMITS),
        replace(training_data(data), subjects={name: list(rows) for name, rows in owners.items()}),
    )
    platform.data["m"] = data
    return row_ids(data)


def ask(platform: Platform, subject: str) -> None:
    body = {"request_id": f"forget-{subject}", "model_id": "m", "subject_id": subject}
    platform.send_raw(json.dumps(body).encode())


def test_the_records_of_a_subject_of_many_rows_are_not_read(
    memory: Platform, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = row_ids(make("benign", "linear"))
    register_owners(memory, {"org": names[:-10]})
    read: list[int] = []

    def watched(fields: Sequence[str], values: Sequence[object]) -> dict[str, object]:
        found = present(fields, values)
        read.append(sum(isinstance(v, bytes) and len(v) > 64 for v in found.values()))
        return found

    worker = memory.deletion_worker()
    worker.run_once(0.01)
    monkeypatch.setattr(lookup_module, "present", watched)
    ask(memory, "org")
    memory.drain(worker)
    monkeypatch.undo()
    [receipt] = memory.receipts()
    assert (receipt.status, receipt.code) == ("DEFERRED", "GENERATION_FULL")
    assert sum(read) == 0
    worker.close()
    memory.drain()
    done = memory.final("forget-org")
    assert (done.status, done.rows_deleted) == ("APPLIED", len(names) - 10)
    assert memory.load().meta.rows_live == 10


def test_a_subject_most_of_whose_rows_are_gone_is_applied_at_once(memory: Platform) -> None:
    names = row_ids(make("benign", "linear"))
    register_owners(memory, {"org": names[:40]})
    memory.send("m", *names[:30], request_id="most")
    memory.drain()
    assert memory.final("most").status == "APPLIED"
    ask(memory, "org")
    memory.drain()
    assert memory.statuses("forget-org") == ["APPLIED"]
    assert memory.final("forget-org").rows_deleted == 10


def test_a_subject_that_owns_every_row_empties_the_model(memory: Platform) -> None:
    names = row_ids(make("benign", "linear"))
    register_owners(memory, {"org": names})
    ask(memory, "org")
    memory.drain()
    assert memory.statuses("forget-org") == ["APPLIED"]
    assert memory.load().meta.status == "EMPTY"


def test_a_batch_of_subjects_is_cut_where_a_generation_is_full(memory: Platform) -> None:
    """All of it together is too much; each request alone, and several, are not."""
    names = row_ids(make("benign", "linear"))
    owners = {f"s{i}": names[6 * i : 6 * i + 6] for i in range(4)}
    register_owners(memory, owners)
    for subject in owners:
        ask(memory, subject)
    memory.drain()
    assert {r.status for r in memory.finals().values()} == {"APPLIED"}
    assert [r.version for r in memory.receipts() if r.request_id == "forget-s1"][-1] == 1
    assert memory.load().meta.rows_deleted == 24
