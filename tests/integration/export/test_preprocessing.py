"""Exported models with preprocessing predict what the published version predicts."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from lethe.consumers.contract.version_chain import theta_of
from lethe.consumers.export.files import Exported, as_onnx, as_skops
from lethe.consumers.subscriber.model_version import ModelVersion
from lethe.engine.errors import InvalidData
from lethe.engine.fit.objective import Kind
from lethe.engine.preprocess.input.columns import (
    Column,
    Columns,
    Date,
    Numeric,
    OneHot,
    Ordinal,
    TargetEncode,
)
from tests.support import pipelines
from tests.support.extras import need
from tests.support.missing_values import (
    KINDS as KINDS_WITH_GAPS,
    frame_of,
    is_refused_by_scikit_learn,
    objects,
)
from tests.support.platform import Platform
from tests.support.prepared import PreparedTable

TRUSTED = ["numpy.dtype"]
DATED = pipelines.EVERY_KIND
PLAIN: Columns = {name: column for name, column in DATED.items() if not isinstance(column, Date)}


def registered(memory: Platform, columns: Columns) -> PreparedTable:
    """Return a table, some of whose categories have no live row any more."""
    table = PreparedTable(memory, columns)
    table.register()
    counts = {town: list(table.rows["town"]).count(town) for town in table.rows["town"]}
    rare = min(counts, key=lambda town: counts[town])
    table.delete(*np.flatnonzero(table.rows["town"] == rare).tolist(), 3, 4)
    memory.drain()
    table.check()
    return table


def version_of(memory: Platform) -> ModelVersion:
    event = memory.parameters()
    return ModelVersion.of(
        memory.newest_version(),
        event.feature_names,
        event.target_names,
        theta_of(event),
        columns=event.columns,
    )


def exported(memory: Platform) -> Exported:
    event = memory.parameters()
    return Exported(event, theta_of(event), 1.0)


def live(table: PreparedTable) -> dict[str, NDArray[Any]]:
    """Return the live rows as they were given."""
    places = list(table.live)
    return {str(name): table.rows[name][places] for name in table.columns}


def frame(rows: dict[str, NDArray[Any]]) -> Any:
    import pandas as pd

    return pd.DataFrame({name: rows[name].tolist() for name in reversed(rows)})


def test_a_skops_file_holds_the_pipeline_and_no_code(memory: Platform) -> None:
    need("skops")
    from skops.io import get_untrusted_types, loads

    table = registered(memory, PLAIN)
    data = as_skops(exported(memory))
    assert get_untrusted_types(data=data) == ["numpy.dtype"]
    pipeline = loads(data, trusted=TRUSTED)
    rows, version = live(table), version_of(memory)
    expected = version.predict(rows)
    X = pipelines.matrix(PLAIN, table.rows, list(table.live))
    np.testing.assert_allclose(pipeline.predict(frame(rows)), expected, rtol=1e-12)
    np.testing.assert_allclose(table.fitted().predict(X), expected, rtol=1e-9)


def test_both_refuse_a_category_whose_last_row_has_gone(memory: Platform) -> None:
    need("skops")
    from skops.io import loads

    table = registered(memory, PLAIN)
    pipeline, version = loads(as_skops(exported(memory)), trusted=TRUSTED), version_of(memory)
    [town] = [column for column in version.columns if column.name == "town"]
    assert town.vanished
    row = {name: values[:1].copy() for name, values in live(table).items()}
    row["town"][0] = town.categories[town.vanished[0]]
    with pytest.raises(InvalidData, match="no live row"):
        version.predict(row)
    with pytest.raises(ValueError, match="unknown categories"):
        pipeline.predict(frame(row))


def test_unknown_categories_and_gaps_predict_the_same(memory: Platform) -> None:
    need("skops", "onnxruntime")
    from skops.io import loads

    columns: Columns = {"age": Numeric(), "town": OneHot("ignore"), "post": TargetEncode()}
    table = registered(memory, columns)
    rows = {name: values[:4].copy() for name, values in live(table).items()}
    rows["age"][0], rows["town"][1], rows["post"][2] = None, "Atlantis", "nowhere"
    expected = version_of(memory).predict(rows)
    pipeline = loads(as_skops(exported(memory)), trusted=TRUSTED)
    np.testing.assert_allclose(pipeline.predict(frame(rows)), expected, rtol=1e-12)
    np.testing.assert_allclose(predicted(as_onnx(exported(memory)), rows), expected, rtol=1e-12)


def predicted(graph: bytes, rows: dict[str, NDArray[Any]]) -> NDArray[np.float64]:
    """Return what ONNX Runtime makes of rows: days for dates, NaN and empty text where missing."""
    from onnxruntime import InferenceSession

    session = InferenceSession(graph, providers=["CPUExecutionProvider"])
    given: dict[str, NDArray[Any]] = {}
    for one in session.get_inputs():
        values = rows[one.name]
        if one.name == "joined":
            values = pipelines.days(values)
        if one.type == "tensor(double)":
            values = np.array([np.nan if v is None else float(v) for v in values])
        given[one.name] = values[:, None]
    [out] = session.run(None, given)
    return np.asarray(out)[:, 0]


def test_an_onnx_file_takes_every_kind_of_column(memory: Platform) -> None:
    need("skl2onnx", "onnxruntime")
    table = registered(memory, DATED)
    graph = as_onnx(exported(memory))
    rows, version = live(table), version_of(memory)
    np.testing.assert_allclose(predicted(graph, rows), version.predict(rows), rtol=1e-12)
    [town] = [column for column in version.columns if column.name == "town"]
    rows["town"] = rows["town"].copy()
    rows["town"][:2] = "Atlantis", town.categories[town.vanished[0]]
    assert np.isnan(predicted(graph, rows)[:2]).all(), "what the version refuses is no number"
    assert not np.isnan(predicted(graph, rows)[2:]).any()


KINDS: dict[str, list[Any]] = {
    "text": ["a", None, "b", "c"],
    "number": [3, 7, 7, 12],
    "flag": [True, False, True, True],
}


@pytest.mark.parametrize(
    "column", [OneHot(), OneHot(impute="most_frequent"), Ordinal(), TargetEncode()], ids=str
)
@pytest.mark.parametrize("kind", list(KINDS))
def test_categories_of_every_kind_predict_the_same(
    memory: Platform, kind: str, column: Column
) -> None:
    need("skops", "onnxruntime")
    from skops.io import loads

    values = ["d" if v is None and isinstance(column, Ordinal) else v for v in KINDS[kind]]
    given: dict[str, NDArray[Any]] = {"x": np.array(values * 5, dtype=object)}
    PreparedTable(
        memory, {"x": column}, rows={"x": given["x"].copy()}, y=np.arange(20.0) % 7
    ).register()
    expected = version_of(memory).predict(given)
    pipeline = loads(as_skops(exported(memory)), trusted=TRUSTED)
    np.testing.assert_allclose(pipeline.predict(frame(given)), expected, rtol=1e-12)
    if kind == "text":
        given["x"][given["x"] == None] = ""  # noqa: E711 (an array)
    else:
        given["x"] = np.array(given["x"].tolist())
    np.testing.assert_allclose(predicted(as_onnx(exported(memory)), given), expected, rtol=1e-12)


@pytest.mark.parametrize("column", [OneHot(), OneHot(unknown="ignore"), TargetEncode()], ids=str)
@pytest.mark.parametrize("kind", list(KINDS_WITH_GAPS))
def test_a_missing_category_predicts_the_same_whatever_stands_for_it(
    memory: Platform, kind: str, column: Column
) -> None:
    need("skops", "onnxruntime")
    from skops.io import get_untrusted_types, loads

    forms, known, last = KINDS_WITH_GAPS[kind]
    values, y = [*known, None] * 5, np.arange(15.0) % 7
    rows = {"c": np.array(values, dtype=object)}
    PreparedTable(memory, {"c": column}, rows={"c": rows["c"].copy()}, y=y).register()
    filled = np.array([[last if v is None else v] for v in values], dtype=object)
    expected = pipelines.pipeline({"c": column}).fit(filled, y).predict(filled)
    data, version = as_skops(exported(memory)), version_of(memory)
    assert get_untrusted_types(data=data) == TRUSTED
    pipeline = loads(data, trusted=TRUSTED)
    blank = {"blank": objects("")} if kind == "text" else {}
    for name, form in {**forms, **blank}.items():
        given = frame_of(form(values))
        np.testing.assert_allclose(version.predict(given), expected, rtol=1e-9, err_msg=name)
        if is_refused_by_scikit_learn(given["c"]):
            with pytest.raises(TypeError, match="NA"):
                pipeline.predict(given)
        else:
            np.testing.assert_allclose(pipeline.predict(given), expected, rtol=1e-9, err_msg=name)
    if kind == "text":
        rows["c"][2::3] = ""
    np.testing.assert_allclose(predicted(as_onnx(exported(memory)), rows), expected, rtol=1e-9)


def test_empty_text_beside_missing_values_is_refused_by_name_for_onnx(memory: Platform) -> None:
    need("skl2onnx")
    values = np.array(["a", None, "", "a"], dtype=object)
    PreparedTable(memory, {"x": OneHot()}, rows={"x": values}, y=np.arange(4.0)).register()
    with pytest.raises(InvalidData, match="column 'x' has categories of several kinds, or empty"):
        as_onnx(exported(memory))


def test_dates_are_refused_by_name_where_scikit_learn_has_no_transformer(memory: Platform) -> None:
    need("skops")
    registered(memory, DATED)
    with pytest.raises(InvalidData, match="column 'joined' holds dates"):
        as_skops(exported(memory))


def test_a_model_without_rows_predicts_0(memory: Platform) -> None:
    need("skops", "onnxruntime")
    from skops.io import loads

    table = PreparedTable(memory, PLAIN, 40)
    table.register()
    rows = live(table)
    table.delete(*range(40))
    memory.drain()
    pipeline = loads(as_skops(exported(memory)), trusted=TRUSTED)
    assert not pipeline.predict(frame(rows)).any()
    assert not predicted(as_onnx(exported(memory)), rows).any()


def test_a_poisson_model_is_exported_with_the_means_of_its_counts(memory: Platform) -> None:
    need("skops", "onnxruntime")
    from skops.io import loads

    columns: Columns = {"age": Numeric(), "town": OneHot(), "post": TargetEncode()}
    table = PreparedTable(memory, columns, 200, kind=Kind.POISSON)
    table.register()
    table.delete(0)
    memory.drain()
    table.check()
    rows, event = live(table), memory.parameters()
    version = ModelVersion.of(
        memory.newest_version(), event.feature_names, event.target_names, theta_of(event),
        event.classes, event.columns,
    )  # fmt: skip
    expected = version.predict(rows)
    assert 0 < expected.min() < 1 < expected.max()
    pipeline = loads(as_skops(exported(memory)), trusted=TRUSTED)
    np.testing.assert_allclose(pipeline.predict(frame(rows)), expected, rtol=1e-12)
    np.testing.assert_allclose(predicted(as_onnx(exported(memory)), rows), expected, rtol=1e-12)


def test_a_logistic_model_is_exported_as_a_classifier(memory: Platform) -> None:
    need("skops", "onnxruntime")
    from onnxruntime import InferenceSession
    from skops.io import loads

    columns: Columns = {"age": Numeric(), "town": OneHot(), "post": TargetEncode()}
    table = PreparedTable(memory, columns, 200, kind=Kind.LOGISTIC)
    table.register()
    table.delete(0)
    memory.drain()
    table.check()
    rows, event = live(table), memory.parameters()
    version = ModelVersion.of(
        memory.newest_version(), event.feature_names, event.target_names, theta_of(event),
        event.classes, event.columns,
    )  # fmt: skip
    expected = version.predict(rows)
    assert 0 < expected.min() < expected.max() < 1
    pipeline = loads(as_skops(exported(memory)), trusted=TRUSTED)
    likely = pipeline.predict_proba(frame(rows))[:, 1]
    np.testing.assert_allclose(likely, expected, rtol=1e-12)
    session = InferenceSession(as_onnx(exported(memory)), providers=["CPUExecutionProvider"])
    given = {name: rows[name][:, None] for name in ("town", "post")}
    given["age"] = rows["age"].astype(np.float64)[:, None]
    label, probabilities = session.run(["label", "probabilities"], given)
    np.testing.assert_allclose(probabilities[:, 1], expected, rtol=1e-12)
    np.testing.assert_allclose(probabilities.sum(axis=1), 1.0, rtol=1e-15)
    np.testing.assert_array_equal(label, pipeline.predict(frame(rows)))


def test_several_classes_are_exported_as_a_classifier_of_each_against_the_rest(
    memory: Platform,
) -> None:
    need("skops", "onnx")
    from onnx.reference import ReferenceEvaluator
    from skops.io import loads

    columns: Columns = {"age": Numeric(), "town": OneHot()}
    classes = ("basic", "plus", "pro")
    table = PreparedTable(memory, columns, 300, kind=Kind.LOGISTIC, classes=classes)
    table.register()
    table.delete(0)
    memory.drain()
    table.check()
    rows, event = live(table), memory.parameters()
    version = ModelVersion.of(
        memory.newest_version(), event.feature_names, event.target_names, theta_of(event),
        event.classes, event.columns,
    )  # fmt: skip
    expected = version.predict(rows)
    assert expected.shape == (299, 3)
    pipeline = loads(as_skops(exported(memory)), trusted=TRUSTED)
    np.testing.assert_allclose(pipeline.predict_proba(frame(rows)), expected, rtol=1e-12)
    given = {"town": rows["town"][:, None], "age": rows["age"].astype(np.float64)[:, None]}
    graph = ReferenceEvaluator(as_onnx(exported(memory)))
    label, probabilities = graph.run(["label", "probabilities"], given)
    np.testing.assert_allclose(probabilities, expected, rtol=1e-12)
    np.testing.assert_array_equal(label, pipeline.predict(frame(rows)))
