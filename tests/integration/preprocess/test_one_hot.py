"""Settings of categories, in the service: scaled features, rare categories, and named ones."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest

from lethe.consumers.audit.verify import verify
from lethe.consumers.registration.table.preprocess_file import read_preprocess_file
from lethe.consumers.subscriber.model_version import ModelVersion
from lethe.consumers.subscriber.subscriber import ModelSubscriber
from lethe.engine.errors import InvalidData
from lethe.engine.fit.objective import Kind
from lethe.engine.preprocess.input.columns import Columns, Numeric, OneHot, Ordinal
from lethe.engine.refresh.size import RefreshSize
from lethe.engine.store.layout.columns import FittedColumn
from tests.support.extras import need
from tests.support.pipelines import joined
from tests.support.platform import Platform
from tests.support.prepared import BOTH, PreparedTable, check_exports

SETTINGS: dict[str, Columns] = {
    "scaled": {
        "age": Numeric(),
        "town": OneHot(standardise=True),
        "kind": OneHot("ignore", standardise="scale"),
        "job": OneHot(drop="first", standardise="centre"),
    },
    "rare": {
        "age": Numeric(),
        "town": OneHot("infrequent_if_exist", min_frequency=4),
        "kind": OneHot("ignore", "first", standardise=True, max_categories=2),
        "job": OneHot(min_frequency=0.2),
    },
    "named": {
        "age": Numeric(),
        "town": OneHot(categories=("d", "c", "b", "a", "e")),
        "kind": OneHot(drop="first", categories=("z", "y", "x", "w")),
        "job": Ordinal(unknown=-1, standardise=True),
    },
}


def table_of(
    platform: Platform, setting: str, n: int = 120, *, seed: int = 5, **options: Any
) -> PreparedTable:
    """Return a table of which rows 0 and 1 alone have the first town and the third kind."""
    rng = np.random.default_rng(seed)
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
    return PreparedTable(platform, SETTINGS[setting], rows=rows, y=y, **options)


@pytest.mark.parametrize("setting", SETTINGS)
@BOTH
def test_features_follow_the_live_rows(platform: Platform, sums: bool, setting: str) -> None:
    rng = np.random.default_rng(2)
    table = table_of(platform, setting, exact_sums=sums)
    table.register()
    table.check()
    requests = [table.delete(3, 4, 5), table.change("correct", 7, rng=rng)]
    platform.drain()
    assert [platform.final(request).status for request in requests] == ["APPLIED"] * 2
    table.check()
    assert verify(platform.store, "m").holds
    request = table.delete(0, 1)  # the first town, and one of three kinds, both of them rare
    platform.drain()
    waited = setting == "scaled" and not sums
    assert ("DEFERRED" in platform.statuses(request)) is waited
    assert platform.final(request).status == "APPLIED"
    table.check()
    assert verify(platform.store, "m").holds
    platform.refresh("m", RefreshSize.REBUILD)
    table.check()


@pytest.mark.parametrize("setting", SETTINGS)
def test_a_logistic_model_is_rebuilt_once_a_category_is_gone(
    memory: Platform, setting: str
) -> None:
    table = table_of(memory, setting, 600, kind=Kind.LOGISTIC)
    table.register(budget=0.5)
    table.check()
    table.delete(5)
    memory.drain()
    table.check()
    request = table.delete(0, 1)
    memory.drain()
    assert memory.final(request).status == "APPLIED"
    assert memory.load("m").meta.generation >= 1
    table.check()
    assert verify(memory.store, "m").holds


@pytest.mark.parametrize("setting", SETTINGS)
@BOTH
def test_what_is_published_predicts_as_the_refitted_pipeline(
    memory: Platform, sums: bool, setting: str
) -> None:
    need("skops", "onnxruntime")
    table = table_of(memory, setting, exact_sums=sums)
    table.register()
    table.delete(*range(10))
    memory.drain()
    check_exports(table)


@BOTH
def test_a_category_that_crosses_the_threshold_is_rare_from_then_on(
    memory: Platform, sums: bool
) -> None:
    table = table_of(memory, "rare", exact_sums=sums)
    table.register()
    [town] = [place for place, name in enumerate(table.columns) if name == "town"]
    assert columns_of(memory)[town].rare == (0,)
    of_b = np.flatnonzero(table.rows["town"] == "b").tolist()
    request = table.delete(*of_b[3:])
    memory.drain()
    assert ("DEFERRED" in memory.statuses(request)) is not sums
    assert columns_of(memory)[town].rare == (0, 1)
    table.check()
    assert verify(memory.store, "m").holds
    again = {name: values[of_b[:1]] for name, values in table.rows.items()}
    table.rows, table.y = joined(table.rows, again), np.append(table.y, 1.0)
    request = table.send("insert", 120)  # b has four rows with it
    memory.drain()
    if sums:
        assert memory.final(request).status == "APPLIED"
        assert columns_of(memory)[town].rare == (0,)
        table.live[120] = None
    else:  # the rebuild that other features need has no row that is not there yet
        assert memory.final(request).code == "STATISTICS_MOVED"
    table.check()
    assert verify(memory.store, "m").holds


def columns_of(platform: Platform) -> tuple[FittedColumn, ...]:
    published = platform.load("m").published_pipeline
    assert published is not None
    return published.columns


def test_a_subscriber_takes_an_unknown_category_for_a_rare_one(memory: Platform) -> None:
    table = table_of(memory, "rare", exact_sums=True)
    table.register()
    with ModelSubscriber(memory.log, memory.raw()) as models:
        version = models.latest("m")
    row = {str(name): table.rows[name][0] for name in table.columns} | {"town": "Atlantis"}
    check_prediction(table, version, row)
    with pytest.raises(InvalidData, match="'job' holds 'none', which no live row"):
        version.predict(row | {"job": "none"})


@BOTH
def test_categories_that_are_named_are_known_without_rows(memory: Platform, sums: bool) -> None:
    table = table_of(memory, "named", exact_sums=sums)
    table.register()
    table.delete(0, 1)
    memory.drain()
    table.check()
    with ModelSubscriber(memory.log, memory.raw()) as models:
        version = models.latest("m")
    row = {str(name): table.rows[name][5] for name in table.columns}
    check_prediction(table, version, row | {"town": "e", "kind": "w", "job": "none"})
    with pytest.raises(InvalidData, match="'town' holds 'f', which no live row"):
        version.predict(row | {"town": "f"})
    again = {name: values[:1] for name, values in table.rows.items()} | {"town": np.array(["e"])}
    table.rows, table.y = joined(table.rows, again), np.append(table.y, 1.0)
    request = table.send("insert", 120)
    table.live[120] = None
    memory.drain()
    assert memory.final(request).status == "APPLIED"
    table.check()
    assert verify(memory.store, "m").holds


def check_prediction(table: PreparedTable, version: ModelVersion, row: dict[str, Any]) -> None:
    X = np.array([[row[str(name)] for name in table.columns]], dtype=object)
    with warnings.catch_warnings():  # scikit-learn says that a category is unknown
        warnings.simplefilter("ignore", UserWarning)
        expected = table.fitted().predict(X)[0]
    np.testing.assert_allclose(version.predict(row), expected, rtol=1e-9)


def test_a_file_names_the_settings(tmp_path: Any) -> None:
    path = tmp_path / "columns.toml"
    path.write_text(
        '[columns.a]\nstep = "one-hot"\nstandardise = "scale"\nmin_frequency = 0.01\n'
        '[columns.b]\nstep = "one-hot"\nmin_frequency = 20\nmax_categories = 12\n'
        '[columns.c]\nstep = "one-hot"\ncategories = ["x", "y"]\n'
        '[columns.d]\nstep = "ordinal"\nunknown = -1\n'
    )
    assert read_preprocess_file(path) == {
        "a": OneHot(standardise="scale", min_frequency=0.01),
        "b": OneHot(min_frequency=20, max_categories=12),
        "c": OneHot(categories=("x", "y")),
        "d": Ordinal(unknown=-1),
    }
    for setting, message in (
        ('min_frequency = "20"', "min_frequency is a number, not '20'"),
        ("min_frequency = 20.0", "min_frequency must be a whole number from 1, or a share below 1"),
        ("max_categories = 2.5", "max_categories is a whole number, not 2.5"),
    ):
        path.write_text(f'[columns.a]\nstep = "one-hot"\n{setting}\n')
        with pytest.raises(InvalidData, match=f"column 'a': {message}"):
            read_preprocess_file(path)


@pytest.mark.parametrize("setting", SETTINGS)
@BOTH
def test_rows_in_files_have_the_same_features(memory: Platform, sums: bool, setting: str) -> None:
    table = table_of(memory, setting, exact_sums=sums, rows_url=memory.folder())
    table.register()
    table.check()
    requests = [table.delete(3, 4, 5), table.delete(0, 1)]
    memory.drain()
    assert [memory.final(request).status for request in requests] == ["APPLIED"] * 2
    table.check()
    assert verify(memory.store, "m").holds
