"""What versions disclose of rows: kept with each commit, rebuilt from the log, gone with people."""

from __future__ import annotations

from contextlib import closing
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from lethe.consumers.audit.disclosures import disclosed_row, most_disclosed
from lethe.consumers.service.telemetry.steps import Step
from lethe.engine.error.terms import ObjectiveNoise
from lethe.engine.errors import InvalidData, UnknownModel
from lethe.engine.refresh.size import RefreshSize
from lethe.engine.store.layout.disclosed import RowFate
from lethe.engine.store.layout.keys import ModelKeys
from tests.integration.deletions.test_deferral import leveraged
from tests.support import erasures
from tests.support.disclosed import check_deleted, dense, disclosures_of, keep_rows_in_files
from tests.support.families import Data, make
from tests.support.invariants import check_model, ledger_of
from tests.support.platform import Platform
from tests.support.tables import Table


@pytest.fixture(params=["store", "files"])
def memory(
    memory: Platform, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> Platform:
    """The platform, where models have their rows in the store, or in files."""
    if request.param == "files":
        keep_rows_in_files(memory, monkeypatch)
    return memory


def register(platform: Platform, family: str | Data = "benign", **options: Any) -> None:
    platform.register("m", family, method="exact", budget=10.0, disclosure=True, **options)


def delete_some(platform: Platform) -> None:
    """Make versions of one row, of several requests, of several rows, and over a refresh."""
    for rows in ([3], [4, 5, 6], [7]):
        platform.delete("m", *rows)
    platform.refresh("m", RefreshSize.COMPACT)
    platform.send_index("m", 8)
    platform.send_index("m", 9)
    platform.drain()
    platform.refresh("m", RefreshSize.REBUILD)
    platform.delete("m", 10)


def test_every_deletion_is_kept_with_its_cooks_distance(platform: Platform) -> None:
    register(platform)
    delete_some(platform)
    assert len(disclosures_of(platform)) == 8
    check_model(platform)  # compares with refits


@pytest.mark.parametrize("family", ["wide", "sparse", "no_intercept", "high_leverage"])
def test_on_hard_rows(memory: Platform, family: str) -> None:
    register(memory, family)
    for i in range(6):
        memory.delete("m", i)
    check_model(memory)


def test_a_row_that_waits_for_a_rebuild_is_priced_when_that_deletes_it(memory: Platform) -> None:
    register(memory, leveraged("linear"))
    memory.send_index("m", 0, 12)
    memory.send_index("m", 14)
    memory.drain()
    kept = disclosures_of(memory)
    assert kept.keys() == {"row-0", "row-12", "row-14"}
    check_deleted(memory, "m", ledger_of(memory), set())


def test_changed_rows_add_up(memory: Platform) -> None:
    register(memory)
    table, data = Table(memory), memory.data["m"]
    new = [table.row("new-1"), table.row("row-3"), table.row("row-3")]
    table.change("insert", new[0])
    memory.drain()
    table.change("correct", new[1])
    memory.drain()
    table.change("correct", new[2])
    memory.drain()
    table.delete("row-3", "new-1")
    memory.drain()
    table.check()
    kept = disclosures_of(memory)
    fates = [(one.version, one.fate) for one in kept["row-3"].versions]
    assert fates == [(2, RowFate.CORRECTED), (3, RowFate.CORRECTED), (4, RowFate.DELETED)]
    # The same steps refitted: lines of a table that has every value that a row ever had
    values = [[row["values"], row["target"]] for row in new]
    wide = replace(
        data,
        X=np.vstack([data.X, *(np.reshape(x, (1, -1)) for x, _ in values)]),
        y=np.vstack([data.y, *(np.reshape(y, (1, -1)) for _, y in values)]),
    )
    n = len(data.X)
    ids = np.arange(n + 3)
    first = ids < n
    inserted = first | (ids == n)
    corrected = (inserted & (ids != 3)) | (ids == n + 1)
    again = (inserted & (ids != 3)) | (ids == n + 2)
    gone = again & ~np.isin(ids, [n, n + 2])
    at = np.flatnonzero

    def distance(version: int, row: str) -> float | None:
        return next(one.distance for one in kept[row].versions if one.version == version)

    expected = {
        (1, "new-1"): dense(wide, at(inserted), at(first), inserted),
        (2, "row-3"): dense(wide, at(inserted), at(corrected), inserted),
        (3, "row-3"): dense(wide, at(corrected), at(again), corrected),
        (4, "row-3"): dense(wide, at(gone | (ids == n + 2)), at(gone), again),
        (4, "new-1"): dense(wide, at(gone | (ids == n)), at(gone), again),
    }
    for (version, row), (cook, _) in expected.items():
        assert distance(version, row) == pytest.approx(cook, rel=1e-6)
    total = sum(cook for (_, row), (cook, _) in expected.items() if row == "row-3")
    assert kept["row-3"].distance == pytest.approx(total, rel=1e-6)


def test_a_model_that_is_registered_again_keeps_nothing_of_former_rows(memory: Platform) -> None:
    register(memory)
    delete_some(memory)
    key = memory.load().keys.dataset(memory.load().meta.dataset_key).disclosed
    assert memory.raw().exists(key)
    register(memory, replace_model=True)
    assert not memory.raw().exists(key)
    assert not disclosures_of(memory)


def test_nothing_is_kept_of_a_person_who_is_erased(memory: Platform) -> None:
    """Neither of rows that the erasure deletes nor of one that was deleted before."""
    erasures.register(memory, "m", disclosure=True)
    memory.send("m", "row-3", "row-22")
    memory.drain()
    memory.send_change("m", "correct", Table(memory).row("row-21"))
    memory.drain()
    assert disclosures_of(memory).keys() == {"row-3", "row-21", "row-22"}
    with closing(erasures.erasure_worker(memory)) as worker:
        erasures.erase(memory, "subject-7", "e-1")  # row-21, row-22, row-23
        erasures.drain(memory, worker)
    assert ledger_of(memory).keys() == {"row-3", "row-21", "row-22", "row-23"}
    assert disclosures_of(memory).keys() == {"row-3"}
    _, why = disclosed_row(memory.store, "m", "row-22")
    assert why is not None
    assert "erased" in why


def test_nothing_is_kept_of_a_person_whose_rows_wait_for_a_rebuild(memory: Platform) -> None:
    data = leveraged("linear")
    register(memory, data)
    memory.send("m", "row-1")
    memory.drain()
    assert disclosures_of(memory).keys() == {"row-1"}
    with closing(erasures.erasure_worker(memory)) as worker:
        erasures.erase(memory, "subject-0", "e-1")  # row-0 has leverage one
        erasures.drain(memory, worker)
    assert ledger_of(memory).keys() == {"row-0", "row-1", "row-2"}
    assert not disclosures_of(memory)


def test_they_go_with_the_model(memory: Platform) -> None:
    register(memory)
    delete_some(memory)
    key = memory.load().keys.dataset(memory.load().meta.dataset_key).disclosed
    register(memory, replace_model=True)
    assert not memory.raw().exists(key)
    memory.delete("m", 20)
    assert disclosures_of(memory).keys() == {"row-20"}
    key = memory.load().keys.dataset(memory.load().meta.dataset_key).disclosed
    memory.registrar().unregister("m")
    assert not memory.raw().exists(key)
    with pytest.raises(UnknownModel):
        most_disclosed(memory.store, "m", 1)


def test_the_scale_forgets_rows_that_were_deleted_while_the_model_was_registered(
    memory: Platform,
) -> None:
    register(memory)
    done: list[str] = []

    def meanwhile(step: str) -> None:
        if step == Step.REGISTER_APPEND and not done:
            done.append(step)
            memory.delete("m", 0, 1)

    register(memory, replace_model=True, at_step=meanwhile)
    assert done
    memory.delete("m", 2)
    kept = disclosures_of(memory)
    assert kept.keys() == {"row-2"}
    n = len(memory.data["m"].X)
    live = np.arange(n) > 2
    before = np.arange(n) > 1
    distance, _ = dense(memory.data["m"], np.flatnonzero(before), np.flatnonzero(live), before)
    assert kept["row-2"].distance == pytest.approx(distance, rel=1e-6)


def test_the_last_rows_are_not_priced(memory: Platform) -> None:
    register(memory)
    memory.delete("m", *range(len(memory.data["m"].X)))
    report = most_disclosed(memory.store, "m", 3)
    assert report.total == len(memory.data["m"].X)
    assert all(row.unpriced == 1 and row.distance == 0.0 for row in report.rows)


def test_without_the_option_nothing_is_kept(memory: Platform) -> None:
    memory.register("m", method="exact")
    memory.delete("m", 1)
    state = memory.load()
    assert not memory.raw().exists(state.keys.dataset(state.meta.dataset_key).disclosed)
    with pytest.raises(InvalidData, match="--replace --disclosure"):
        most_disclosed(memory.store, "m", 1)


def test_a_row_that_no_version_changed_and_one_that_never_was(memory: Platform) -> None:
    register(memory)
    report, why = disclosed_row(memory.store, "m", "row-1")
    assert (report.rows, why) == (
        [],
        "no version has deleted, corrected or inserted it since the model was registered",
    )
    with pytest.raises(InvalidData, match="has no row"):
        disclosed_row(memory.store, "m", "nobody")


@pytest.mark.parametrize(
    ("family", "options"),
    [
        (make("benign", "logistic"), {"method": "exact"}),
        ("several_outputs", {"method": "exact"}),
        ("benign", {"method": "pru"}),
        ("benign", {"method": "exact", "certify": ObjectiveNoise(1.0, 1e-4, 10.0)}),
    ],
)
def test_models_of_which_it_is_not_known_exactly_are_refused(
    memory: Platform, family: str | Data, options: dict[str, Any]
) -> None:
    with pytest.raises(InvalidData, match="--disclosure is for linear models of one target"):
        memory.register("m", family, disclosure=True, **options)
    assert not memory.raw().exists(ModelKeys("m").head)
