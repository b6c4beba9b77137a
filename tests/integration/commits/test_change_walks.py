"""Walks of inserts, corrections, deletions, refreshes and lost stores, judged at the end.

The judge knows what was asked and what the receipts say, and refits: it uses nothing that decides.
"""

from __future__ import annotations

import random
from typing import Any

import pytest

from lethe.consumers.workers.deletion_worker import DeletionWorker
from lethe.engine.refresh.size import RefreshSize
from lethe.engine.store.layout.config import LimitsRecord
from tests.support.events import settle, walk
from tests.support.platform import Platform
from tests.support.stores import neighbour_of
from tests.support.tables import Table

CROWDED = LimitsRecord(fraction_of_d=0.01, floor_rows=6)
Sent = dict[str, tuple[str, list[dict[str, Any]]]]


def ask(platform: Platform, table: Table, dice: random.Random, sent: Sent) -> None:
    """Send one request of any kind; some cannot be applied."""
    pool = [f"row-{i}" for i in range(60)] + [f"new-{i}" for i in range(20)]
    op = dice.choice(["insert", "insert", "correct", "delete"])
    names = dice.sample(pool[60:] if op == "insert" else pool, dice.choice([1, 1, 2, 4]))
    if op == "delete":
        rows: list[dict[str, Any]] = [{"id": name} for name in names]
        sent[platform.send(table.model_id, *names)] = op, rows
        return
    rows = [table.row(name, dice.choice([None, 2.0])) for name in names]
    sent[platform.send_change(table.model_id, op, *rows)] = op, rows


@pytest.mark.parametrize("seed", range(8))
def test_walks_of_changes_rollbacks_and_refreshes(memory: Platform, seed: int) -> None:
    """Any earlier store comes back between any two steps of a worker, of a fold, of a swap."""
    dice = random.Random(seed)
    models = ["m", neighbour_of("m")]
    for model in models:
        limits = CROWDED if dice.random() < 0.3 else None
        method = dice.choice(["pru", "exact", "influence"])
        memory.register(model, "benign", "linear", method=method, budget=10.0, limits=limits)
    tables = {model: Table(memory, model, seed) for model in models}
    sent: dict[str, Sent] = {model: {} for model in models}

    def act(worker: DeletionWorker) -> None:
        model = dice.choice(models)
        draw = dice.random()
        if draw < 0.75:
            ask(memory, tables[model], dice, sent[model])
        elif draw < 0.85:
            memory.order(model, dice.choice([RefreshSize.REBUILD, RefreshSize.POLISH]))
        elif draw < 0.9:
            worker.recover()

    walk(memory, dice, act)
    for model in models:  # what was lost of a refresh is made up for when somebody asks
        sent[model][memory.send(model, "row-70")] = "delete", [{"id": "row-70"}]
    settle(memory)
    for model in models:
        finals = memory.finals(model)
        assert finals.keys() == sent[model].keys()
        assert any(receipt.op == "insert" for receipt in finals.values())
        assert not memory.load(model).awaiting_rebuild
        tables[model].take(sent[model])
        tables[model].check()
