"""2,000 people are erased from 50 models while workers are killed and models are registered."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import replace
from functools import partial

import numpy as np

from lethe.consumers.registration.register import TrainingData
from lethe.consumers.service.telemetry.steps import Step
from lethe.engine.store.layout.config import LimitsRecord
from tests.support import erasures
from tests.support.families import Data, make
from tests.support.invariants import ledger_of
from tests.support.oracles import relative, retrain_wide
from tests.support.platform import Platform, config_of
from tests.support.worker_process import Death, WorkerProcess

MODELS, LATER = 50, 6
PEOPLE, ERASED = 2_400, 2_000
MODELS_OF_A_PERSON, ROWS = 5, 2
SECONDS = 900.0
DEATHS: list[Death] = [
    (step, count, "kill")
    for step, count in (
        (Step.ERASE_SWEEP, 1),  # all models are new at first
        *((step, 2) for step in Step if step.startswith("erase_") and step != Step.ERASE_SWEEP),
        *((step, 5) for step in (Step.APPEND, Step.APPLY, Step.PUBLISH, Step.ADVANCE)),
    )
]


def table_of(people: Sequence[int], seed: int) -> tuple[Data, TrainingData]:
    """Return the rows of some people: two each, named after them."""
    draw, like = np.random.default_rng(seed), make("benign", "linear")
    X = draw.standard_normal((ROWS * len(people), like.X.shape[1]))
    y = X @ draw.standard_normal((X.shape[1], like.y.shape[1]))
    y += draw.standard_normal(y.shape)
    data = replace(like, X=X, y=y, weight=np.ones(len(X)))
    rows = TrainingData(
        tuple(row for person in people for row in rows_of(person)),
        X,
        y,
        tuple(f"x{j}" for j in range(X.shape[1])),
        tuple(f"y{j}" for j in range(y.shape[1])),
        {f"person-{person}": rows_of(person) for person in people},
    )
    return data, rows


def rows_of(person: int) -> list[str]:
    """Return the ids of a person's rows."""
    return [f"row-{person}-{i}" for i in range(ROWS)]


def register(platform: Platform, model_id: str, people: Sequence[int], seed: int) -> TrainingData:
    """Register a model on the rows of some people."""
    data, rows = table_of(people, seed)
    platform.registrar().register(config_of(data, model_id, "pru", 10.0, LimitsRecord()), rows)
    return rows


def check_rows(platform: Platform, model_id: str, rows: TrainingData, gone: set[str]) -> None:
    """The model is what its file gives without the rows of those who are erased."""
    kept = [i for i, row in enumerate(rows.ids) if row not in gone]
    assert erasures.live_rows(platform, model_id) == {rows.ids[i] for i in kept}
    like = make("benign", "linear")
    data = replace(like, X=rows.X[kept], y=rows.y[kept], weight=np.ones(len(kept)))
    wide = retrain_wide("linear", data.design, data.y, data.weight, data.penalty)
    theta = platform.load(model_id).stream.theta_exact
    assert relative(theta, np.asarray(wide, dtype=float)) < 1e-8


def all_final(platform: Platform) -> bool:
    """Return whether every erasure has its final receipt."""
    return len({one.erasure_id for one, _ in erasures.published(platform) if one.final}) == ERASED


def test_every_combined_receipt_is_right_and_later_models_hold_none_of_the_rows(
    platform_on: Callable[..., Platform], names: str
) -> None:
    # Given 50 models, each of which knows some of 2,400 people
    platform, draw = platform_on("streams", partitions=4), np.random.default_rng(50)
    members: dict[int, list[int]] = {model: [] for model in range(MODELS)}
    models_of: dict[int, set[str]] = {}
    for person in range(PEOPLE):
        chosen = draw.choice(MODELS, MODELS_OF_A_PERSON, replace=False)
        models_of[person] = {f"m{model}" for model in chosen}
        for model in chosen:
            members[int(model)].append(person)
    tables = {f"m{k}": register(platform, f"m{k}", members[k], k) for k in range(MODELS)}
    # When 2,000 of them are erased while workers are killed and models are registered
    roles, sent = "deletions refresh erasures", 0
    dying = WorkerProcess(platform, names, DEATHS, roles, session_seconds=3.0)
    working = None
    try:
        while sent < ERASED:
            erasures.erase(platform, f"person-{sent}", f"e-{sent}")
            if sent % (ERASED // LATER) == ERASED // LATER // 2:
                name = f"later{sent}"
                people = sorted(draw.choice(PEOPLE, 300, replace=False).tolist())
                tables[name] = register(platform, name, people, sent)
            sent += 1
            time.sleep(0.05 if dying.running() else 0.0)
        dying.check()
        working = WorkerProcess(platform, names, roles=roles, session_seconds=3.0)
        working.wait_until(partial(all_final, platform), SECONDS)
    finally:
        dying.stop()
        if working is not None:
            working.stop()
    with closing(erasures.erasure_worker(platform)) as worker:
        erasures.drain(platform, worker)
    # Then each receipt names the models that knew the person, and what was deleted from each
    finals = erasures.finals(platform)
    assert finals.keys() == {f"e-{person}" for person in range(ERASED)}
    for person in range(ERASED):
        receipt = finals[f"e-{person}"]
        assert receipt.complete, receipt
        told = {
            name: outcome
            for name, outcome in erasures.outcomes(receipt).items()
            if not name.startswith("later")
        }
        assert told == dict.fromkeys(models_of[person], ("APPLIED", ROWS))
    # And no model holds a row of theirs, whenever it was registered
    gone = {row for person in range(ERASED) for row in rows_of(person)}
    for name, rows in tables.items():
        check_rows(platform, name, rows, gone)
    check_ledgers(platform, members, gone)


def check_ledgers(platform: Platform, members: Mapping[int, Sequence[int]], gone: set[str]) -> None:
    """Of the first models, every row was deleted once."""
    for model, people in members.items():
        theirs = {row for person in people for row in rows_of(person)}
        assert ledger_of(platform, f"m{model}").keys() == theirs & gone
        receipts = platform.finals(f"m{model}").values()
        assert sum(receipt.rows_deleted for receipt in receipts) == len(theirs & gone)
