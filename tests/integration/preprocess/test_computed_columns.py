"""Columns that are computed, in the service: from a TOML file to a deletion, a new row, a check."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone
from sklearn.compose import make_column_transformer
from sklearn.impute import SimpleImputer
from sklearn.kernel_approximation import RBFSampler
from sklearn.linear_model import Ridge
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import (
    FunctionTransformer,
    OneHotEncoder,
    PolynomialFeatures,
    SplineTransformer,
    StandardScaler,
)

from lethe.consumers.audit.digest_check import verify_digest
from lethe.consumers.audit.verify import verify
from lethe.consumers.contract.version_chain import theta_of
from lethe.consumers.export.estimator import estimator_of_version
from lethe.consumers.registration.table.foreseen import foresee
from lethe.consumers.registration.table.in_blocks import TableInBlocks
from lethe.consumers.registration.table.preprocess_file import read_preprocess_file
from lethe.consumers.registration.table.reader import (
    Columns as Roles,
    read_given_rows,
    read_prepared_table,
)
from lethe.consumers.registration.training_data import TrainingData
from lethe.consumers.subscriber.subscriber import ModelSubscriber
from lethe.engine.errors import InvalidData
from lethe.engine.fit.objective import Kind
from lethe.engine.refresh.size import RefreshSize
from lethe.engine.store.layout.config import ModelConfig
from lethe.engine.store.layout.preprocessing import columns_of
from tests.support.extras import need
from tests.support.platform import Platform, with_row_files

ROLES = Roles(id="id", targets=("y",))
N = 60
GIVEN = ["length", "width", "town"]

FILE = """
[columns.length]
step = "numeric"
impute = "none"
[columns."length**2"]
step = "numeric"
impute = "none"
of = "length**2"
[columns.area]
step = "numeric"
impute = "none"
of = "length * width"
[columns."log width"]
step = "numeric"
of = "log1p(width)"
standardise = false
[columns.wave]
step = "numeric"
impute = "none"
standardise = false
of = "{wave}"
[columns.low]
step = "numeric"
impute = "none"
of = "spline(1, 0, width, 1.0, 1.75, 3.0)"
[columns.middle]
step = "numeric"
impute = "none"
of = "spline(1, 1, width, 1.0, 1.75, 3.0)"
[columns.round]
step = "numeric"
impute = "none"
standardise = false
of = "spline('periodic', 2, 0, length, 4.0, 4.5, 5.0, 5.5)"
[columns.tangent]
step = "numeric"
impute = "none"
standardise = false
of = "spline('linear', 2, 3, length, 4.5, 5.0, 5.5)"
[columns.town]
step = "one-hot"
of = "filled(town, 'none')"
"""

WAVE = RBFSampler(gamma=0.2, n_components=1, random_state=3)
_ROUND = [[4.0], [4.5], [5.0], [5.5]]
FIRST_OF_ROUND = make_pipeline(
    SplineTransformer(degree=2, knots=_ROUND, extrapolation="periodic"),
    make_column_transformer(("passthrough", [0])),
)
LAST_WITH_TANGENT = make_pipeline(
    SplineTransformer(degree=2, knots=[[4.5], [5.0], [5.5]], extrapolation="linear"),
    make_column_transformer(("passthrough", [3])),
)
LOW_AND_MIDDLE = SplineTransformer(degree=1, knots=[[1.0], [1.75], [3.0]], include_bias=False)


def file() -> str:
    """Return the file, with the wave that the sampler draws."""
    drawn_of = WAVE.fit(np.ones((1, 2)))
    [one, other], [plus] = drawn_of.random_weights_[:, 0].tolist(), drawn_of.random_offset_.tolist()
    wave = f"{2**0.5!r} * cos({one!r} * length + {other!r} * width + {plus!r})"
    return FILE.replace("{wave}", wave)


def pipeline() -> Pipeline:
    """Return scikit-learn's pipeline that does the same."""
    products = make_pipeline(
        PolynomialFeatures(2, include_bias=False),
        make_column_transformer((StandardScaler(), [0, 2, 3])),
    )
    filled = SimpleImputer(strategy="constant", fill_value="none", missing_values=None)
    return make_pipeline(
        make_column_transformer(
            (products, ["length", "width"]),
            (FunctionTransformer(np.log1p), ["width"]),
            (WAVE, ["length", "width"]),
            (make_pipeline(LOW_AND_MIDDLE, StandardScaler()), ["width"]),
            (FIRST_OF_ROUND, ["length"]),
            (LAST_WITH_TANGENT, ["length"]),
            (make_pipeline(filled, OneHotEncoder(handle_unknown="ignore")), ["town"]),
        ),
        Ridge(1.0),
    )


def drawn(n: int, seed: int, prefix: str) -> pd.DataFrame:
    rng = np.random.default_rng(seed)
    towns = np.array(["Ulm", "Bonn", None], dtype=object)[rng.integers(0, 3, n)]
    frame = pd.DataFrame({"id": [f"{prefix}{i}" for i in range(n)]})
    frame["width"], frame["length"] = rng.uniform(1, 3, n), 5 + rng.standard_normal(n)
    frame["other"] = "not learnt from"
    frame["town"] = pd.Series(towns, dtype=object)
    frame["y"] = frame["length"] * frame["width"] + rng.standard_normal(n)
    return frame.set_index("id", drop=False)


def truth(rows: pd.DataFrame) -> Any:
    fitted = clone(pipeline()).fit(rows[GIVEN].replace({np.nan: None}), rows["y"])
    return np.append(fitted[-1].coef_, fitted[-1].intercept_)


class Registered:
    """A model that is registered from files, and its live rows."""

    def __init__(
        self, platform: Platform, directory: Path, *, sums: bool, in_files: bool = False
    ) -> None:
        self.platform, self.directory, self.rows = platform, directory, drawn(N, 0, "u")
        toml = directory / "columns.toml"
        toml.write_text(file())
        columns = read_preprocess_file(toml)
        path = self.written(self.rows)
        read = read_prepared_table(path, ROLES, Kind.LINEAR, columns)
        assert set(read.left_out) == {"other"}
        self.config = ModelConfig(
            model_id="m",
            kind=Kind.LINEAR,
            method="exact",
            ridge=1.0,
            fit_intercept=True,
            feature_names=read.data.feature_names,
            target_names=("y",),
            error_budget=0.5,
            preprocess=read.data.preprocess,
            exact_sums=sums,
        )
        if not in_files:
            platform.registrar().register(self.config, read.data)
            return
        roles = Roles("id", ("y",), tuple(GIVEN))
        foreseen = foresee(path, roles, Kind.LINEAR, columns, limited=False)
        table = TableInBlocks.of(foreseen, roles, Kind.LINEAR, columns)
        bare = self.config.model_copy(update={"preprocess": (), "feature_names": table.names})
        url = (directory / "rows").as_uri()
        platform.file_registrar().register_in_files(with_row_files(bare, url), table)

    def written(self, rows: pd.DataFrame) -> Path:
        path = self.directory / f"{len(list(self.directory.iterdir()))}.csv"
        rows.to_csv(path, index=False)
        return path

    def check(self) -> None:
        self.platform.drain()
        theta = theta_of(self.platform.parameters())[:, 0]
        np.testing.assert_allclose(theta, truth(self.rows), rtol=1e-9, atol=1e-12)

    def table(self, config: ModelConfig) -> TrainingData:
        """Return the live rows as `lethe verify --data` reads them."""
        columns = {str(name): one for name, one in columns_of(config.preprocess).items()}
        path = self.written(self.rows)
        return read_prepared_table(path, ROLES, Kind.LINEAR, columns).data

    def delete(self, *ids: str) -> None:
        request = self.platform.send("m", *ids)
        assert self.platform.answer(request).status == "APPLIED"
        self.rows = self.rows.drop(index=list(ids))

    def change(self, op: str, rows: pd.DataFrame, changes: list[Any]) -> None:
        request = self.platform.send_change("m", op, *changes)
        receipt = self.platform.answer(request)
        assert receipt.status == "APPLIED", receipt.detail
        self.rows = pd.concat([self.rows.drop(index=rows.index, errors="ignore"), rows])

    def insert_from_file(self, rows: pd.DataFrame) -> None:
        """Insert rows as `lethe insert` sends them."""
        read = read_given_rows(self.written(rows), ROLES, self.config)
        zipped = zip(read.ids, read.values, read.y, strict=True)
        changes = [{"id": i, "values": list(v), "target": float(y[0])} for i, v, y in zipped]
        self.change("insert", rows, changes)

    def correct_by_name(self, rows: pd.DataFrame) -> None:
        """Correct rows as another program sends them to the topic."""
        plain = rows.replace({np.nan: None})
        named = plain[GIVEN].to_dict("records")
        zipped = zip(rows["id"], named, rows["y"], strict=True)
        self.change("correct", rows, [{"id": i, "values": v, "target": y} for i, v, y in zipped])


@pytest.mark.parametrize(
    ("sums", "in_files"), [(True, False), (False, False), (True, True)],
    ids=["sums", "bounds", "rows in files"],
)  # fmt: skip
def test_every_change_leaves_the_refitted_pipeline(
    memory: Platform, tmp_path: Path, sums: bool, in_files: bool
) -> None:
    model = Registered(memory, tmp_path, sums=sums, in_files=in_files)
    model.check()
    model.delete("u3", "u4", "u5")
    model.check()
    model.insert_from_file(drawn(3, 1, "n"))
    model.check()
    model.correct_by_name(drawn(8, 2, "u").iloc[6:])
    model.check()
    model.delete("n0", "u6")
    memory.refresh("m", RefreshSize.REBUILD)
    model.check()
    assert verify(memory.store, "m").holds
    if sums:
        assert verify_digest(memory.store, "m").equal
        assert verify_digest(memory.store, "m", model.table).equal
        model.rows.loc["u7", "id"] = "u99"
        other = verify_digest(memory.store, "m", model.table).other_row
        assert other == "row 'u99' is not a live row of the model"


def test_a_version_predicts_on_the_columns_of_the_table(memory: Platform, tmp_path: Path) -> None:
    model = Registered(memory, tmp_path, sums=True)
    model.delete("u1")
    memory.drain()
    with ModelSubscriber(memory.log, memory.raw()) as models:
        version = models.latest("m")
    table = model.rows[GIVEN].replace({np.nan: None})
    fitted = clone(pipeline()).fit(table, model.rows["y"])
    expected = fitted.predict(table)
    np.testing.assert_allclose(version.predict(table), expected, rtol=1e-9)
    one = dict(table.iloc[0])
    assert version.predict(one) == pytest.approx(expected[0])
    plain = estimator_of_version(version)
    np.testing.assert_allclose(plain.predict(table), expected, rtol=1e-9)
    with pytest.raises(InvalidData, match=r"length, width, town; 'width' is missing"):
        version.predict({"length": 1.0, "town": "Ulm"})
    with pytest.raises(InvalidData, match="'town' holds 'Atlantis', which no live row"):
        version.predict({**one, "town": "Atlantis"})


def test_no_graph_is_made_of_what_is_computed(memory: Platform, tmp_path: Path) -> None:
    need("onnx")
    from lethe.consumers.export.table_graph import table_graph

    Registered(memory, tmp_path, sums=True)
    event = memory.parameters()
    with pytest.raises(InvalidData, match=r"'length\*\*2' is computed \(length\*\*2\)"):
        table_graph(event, theta_of(event), {})


@pytest.mark.parametrize(
    ("values", "detail"),
    [
        ({"length": 1.0, "town": "Ulm"}, "lacks feature 'width'"),
        ({"length": 1.0, "width": 1.0, "town": "Ulm", "area": 1.0}, "has no feature 'area'"),
        ({"length": 1.0, "width": -2.0, "town": "Ulm"}, "'log width' has a value that is not"),
        ({"length": 1.0, "width": "wide", "town": "Ulm"}, "'area' has a value that is not a num"),
        ({"length": None, "width": 1.0, "town": "Ulm"}, "'length' has a value that is not"),
        ([1.0], "a row has 1 values; the model has 3"),
    ],
)
def test_rows_that_cannot_be_computed_are_rejected(
    memory: Platform, tmp_path: Path, values: Any, detail: str
) -> None:
    Registered(memory, tmp_path, sums=True)
    row = {"id": "new", "values": values, "target": 1.0}
    receipt = memory.answer(memory.send_change("m", "insert", row))
    assert (receipt.status, receipt.code) == ("REJECTED", "SCHEMA")
    assert detail in (receipt.detail or "")


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ('step = "numeric"\nof = "length +"', "column 'a': 'length \\+' is no expression"),
        ('step = "numeric"\nof = "open(length)"', "column 'a': there is no function 'open'"),
        ('step = "numeric"\nof = 7', "column 'a': of is text, not 7"),
        ('step = "one-hot"\nof = "length**2"', "column 'a': of=length.*OneHot takes a column"),
    ],
)
def test_a_file_with_another_expression_is_refused(
    tmp_path: Path, fields: str, message: str
) -> None:
    path = tmp_path / "columns.toml"
    path.write_text(f"[columns.a]\n{fields}\n")
    with pytest.raises(InvalidData, match=message):
        read_preprocess_file(path)
