"""Columns of which half a StandardScaler is asked, in the service."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from lethe.consumers.audit.verify import verify
from lethe.consumers.registration.table.preprocess_file import read_preprocess_file
from lethe.consumers.subscriber.subscriber import ModelSubscriber
from lethe.engine.errors import InvalidData
from lethe.engine.fit.objective import Kind
from lethe.engine.preprocess.input.columns import Columns, Date, Numeric, Ordinal, TargetEncode
from tests.support.platform import Platform
from tests.support.prepared import BOTH, PreparedTable, check_changes

HALVES: Columns = {
    "age": Numeric(standardise="scale"),
    "score": Numeric(impute=None, standardise="centre"),
    "joined": Date(standardise="scale"),
    "grade": Ordinal(standardise="scale"),
    "post": TargetEncode(standardise="centre"),
}


@BOTH
def test_after_deletions_inserts_and_corrections_it_is_the_refitted_pipeline(
    platform: Platform, sums: bool
) -> None:
    table = PreparedTable(platform, HALVES, exact_sums=sums)
    table.register()
    check_changes(table, (3, 4, 5))


@BOTH
def test_a_subscriber_predicts_as_the_refitted_pipeline(memory: Platform, sums: bool) -> None:
    table = PreparedTable(memory, HALVES, exact_sums=sums)
    table.register()
    table.delete(*range(10))
    memory.drain()
    with ModelSubscriber(memory.log, memory.raw()) as models:
        version = models.latest("m")
    given = {name: table.rows[name][list(table.live)] for name in table.columns}
    matrix = np.column_stack([np.asarray(given[name], dtype=object) for name in table.columns])
    expected = table.fitted().predict(matrix)
    np.testing.assert_allclose(version.predict(given), expected, rtol=1e-9)


def test_a_logistic_model_states_a_bound_until_a_class_is_gone(memory: Platform) -> None:
    rng = np.random.default_rng(3)
    columns: Columns = {"year": Numeric(standardise="scale"), "b": Numeric(standardise="centre")}
    rows: Any = {
        "year": (2000.0 + 10.0 * rng.standard_normal(600)).astype(object),
        "b": rng.standard_normal(600).astype(object),
    }
    y = 1.0 * (rows["b"].astype(float) + rng.logistic(size=600) > 0)
    table = PreparedTable(memory, columns, kind=Kind.LOGISTIC, rows=rows, y=y)
    table.register(budget=0.5)
    table.check()
    table.delete(0, 1)
    memory.drain()
    table.check()
    assert verify(memory.store, "m").holds
    request = table.delete(*(int(i) for i in np.flatnonzero(y == 1) if i in table.live))
    assert memory.answer(request).status == "APPLIED"
    assert memory.load("m").meta.status == "INTERCEPT_PENALISED"
    assert verify(memory.store, "m").holds


def test_a_file_names_the_half(tmp_path: Path) -> None:
    path = tmp_path / "columns.toml"
    path.write_text('[columns.a]\nstep = "numeric"\nstandardise = "scale"\n')
    assert read_preprocess_file(path) == {"a": Numeric(standardise="scale")}
    path.write_text('[columns.a]\nstep = "numeric"\nstandardise = "half"\n')
    with pytest.raises(InvalidData, match="column 'a': standardise must be True, False"):
        read_preprocess_file(path)
    path.write_text('[columns.a]\nstep = "numeric"\nstandardise = 1\n')
    with pytest.raises(
        InvalidData, match="standardise is true, false, text or a list of two numbers"
    ):
        read_preprocess_file(path)
