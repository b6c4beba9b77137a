"""One-hot columns that leave a category out, in the service."""

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
from lethe.engine.preprocess.input.columns import Columns, Numeric, OneHot
from lethe.engine.refresh.size import RefreshSize
from tests.support.platform import Platform
from tests.support.prepared import BOTH, PreparedTable

LEFT_OUT: Columns = {
    "age": Numeric(),
    "town": OneHot(drop="first"),
    "kind": OneHot(drop="if_binary"),
    "job": OneHot(drop=("q",)),
}


def table_of(platform: Platform, n: int = 120, **options: Any) -> PreparedTable:
    """Return a table of which rows 0 and 1 alone have the first town and the third kind."""
    rng = np.random.default_rng(5)
    rows: Any = {
        "age": (40.0 + rng.standard_normal(n)).astype(object),
        "town": rng.choice(np.array(["b", "c", "d"], dtype=object), n),
        "kind": rng.choice(np.array(["x", "y"], dtype=object), n),
        "job": rng.choice(np.array(["p", "q", "r"], dtype=object), n),
    }
    rows["town"][:2], rows["kind"][:2] = "a", "z"
    y = rows["age"].astype(float) - 40.0 + (rows["town"] == "b") + rng.logistic(size=n)
    if options.get("kind") is Kind.LOGISTIC:
        y = (y > 0).astype(float)
    return PreparedTable(platform, LEFT_OUT, rows=rows, y=y, **options)


@BOTH
def test_what_is_left_out_follows_the_live_rows(platform: Platform, sums: bool) -> None:
    rng = np.random.default_rng(2)
    table = table_of(platform, exact_sums=sums)
    table.register()
    table.check()
    requests = [table.delete(3, 4, 5), table.change("correct", 7, rng=rng)]
    platform.drain()
    assert [platform.final(request).status for request in requests] == ["APPLIED"] * 2
    table.check()
    assert verify(platform.store, "m").holds
    request = table.delete(0, 1)  # the first town, and one of three kinds
    platform.drain()
    assert ("DEFERRED" in platform.statuses(request)) is not sums
    assert platform.final(request).status == "APPLIED"
    table.check()
    assert verify(platform.store, "m").holds
    platform.refresh("m", RefreshSize.REBUILD)
    table.check()


def test_a_logistic_model_leaves_out_the_next_category_after_a_rebuild(memory: Platform) -> None:
    table = table_of(memory, 600, kind=Kind.LOGISTIC)
    table.register(budget=0.5)
    table.check()
    table.delete(5)
    memory.drain()
    table.check()
    request = table.delete(0, 1)
    memory.drain()
    assert memory.final(request).status == "APPLIED"
    assert memory.load("m").meta.generation == 1
    table.check()
    assert verify(memory.store, "m").holds


@BOTH
def test_a_subscriber_predicts_as_the_refitted_pipeline(memory: Platform, sums: bool) -> None:
    table = table_of(memory, exact_sums=sums)
    table.register()
    table.delete(*range(10))
    memory.drain()
    with ModelSubscriber(memory.log, memory.raw()) as models:
        version = models.latest("m")
    given = {name: table.rows[name][list(table.live)] for name in table.columns}
    matrix = np.column_stack([np.asarray(given[name], dtype=object) for name in table.columns])
    np.testing.assert_allclose(version.predict(given), table.fitted().predict(matrix), rtol=1e-9)
    with pytest.raises(InvalidData, match="'town' holds 'a', which no live row"):
        version.predict({name: values[0] for name, values in table.rows.items()})


@BOTH
def test_a_category_that_comes_back_first_is_left_out_or_refused(
    memory: Platform, sums: bool
) -> None:
    table = table_of(memory, exact_sums=sums)
    table.register()
    table.delete(0, 1)
    memory.drain()
    row = {"age": 41.0, "town": "a", "kind": "x", "job": "p"}
    answer = memory.answer(
        memory.send_change("m", "insert", {"id": "row-120", "values": row, "target": 1.0})
    )
    assert (answer.status, answer.code) == (
        ("APPLIED", None) if sums else ("REJECTED", "STATISTICS_MOVED")
    )
    if sums:
        for name, value in row.items():
            table.rows[name] = np.append(table.rows[name], np.array([value], dtype=object))
        table.y, table.live[120] = np.append(table.y, 1.0), None
    table.check()
    assert verify(memory.store, "m").holds


def test_a_file_names_what_is_left_out(tmp_path: Path) -> None:
    path = tmp_path / "columns.toml"
    path.write_text(
        '[columns.a]\nstep = "one-hot"\ndrop = "first"\n'
        '[columns.b]\nstep = "one-hot"\ndrop = ["Ulm"]\n'
    )
    assert read_preprocess_file(path) == {"a": OneHot(drop="first"), "b": OneHot(drop=("Ulm",))}
    path.write_text('[columns.a]\nstep = "one-hot"\ndrop = "Ulm"\n')
    with pytest.raises(InvalidData, match=r"column 'a': drop must be .* one category, as in"):
        read_preprocess_file(path)
