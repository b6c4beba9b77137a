"""A model with preprocessing on a platform, beside scikit-learn's pipeline on its live rows."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import date
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from lethe.consumers.audit.verify import verify
from lethe.consumers.contract.version_chain import theta_of
from lethe.consumers.export.files import Exported, as_onnx, as_skops
from lethe.consumers.registration.register import Registered, TrainingData
from lethe.consumers.service.telemetry.steps import no_hook
from lethe.consumers.subscriber.features import features_of
from lethe.consumers.subscriber.subscriber import ModelSubscriber
from lethe.engine.error.budget import OverBudget
from lethe.engine.fit.objective import Kind
from lethe.engine.preprocess.input.columns import Columns, Numeric
from lethe.engine.preprocess.input.table import read_table
from lethe.engine.refresh.size import RefreshSize
from lethe.engine.store.layout.columns import packed_columns
from lethe.engine.store.layout.config import LimitsRecord, ModelConfig
from lethe.engine.store.layout.preprocessing import layout_of, recorded
from lethe.engine.store.layout.state import ModelState
from tests.support import pipelines
from tests.support.invariants import check_commits, check_row_files, check_rows
from tests.support.pipeline_in_decimals import minimiser
from tests.support.pipelines import Rows
from tests.support.platform import Blocks, Platform, with_row_files

Array = NDArray[np.float64]


def table_data(
    columns: Columns,
    ids: tuple[str, ...],
    rows: Rows,
    y: Array,
    subjects: Mapping[str, Sequence[str]] | None = None,
    classes: tuple[str, ...] = (),
) -> TrainingData:
    """Return a table as a file would give it."""
    records, table = recorded(columns, read_table(columns, rows))
    names = layout_of(records).names
    nothing = np.empty((len(ids), 0))
    return TrainingData(
        ids, nothing, y, names, ("y",), subjects or {}, classes, preprocess=records, table=table
    )


BOTH = pytest.mark.parametrize("sums", [False, True], ids=["bounds", "sums"])
"""With and without exact sums."""


class PreparedTable:
    """A table, the model that is registered from it, and which of its rows are live."""

    def __init__(
        self,
        platform: Platform,
        columns: Columns = pipelines.EVERY_KIND,
        n: int = 150,
        *,
        seed: int = 0,
        ridge: float = 1.0,
        model_id: str = "m",
        rows: Rows | None = None,
        y: Array | None = None,
        kind: Kind = Kind.LINEAR,
        subjects: Mapping[str, Sequence[str]] | None = None,
        exact_sums: bool = False,
        rows_url: str | None = None,
        classes: tuple[str, ...] = (),
    ) -> None:
        rng = np.random.default_rng(seed)
        self.kind, self.threshold, self.classes = kind, 0.0, classes
        self.platform, self.columns, self.model_id, self.ridge = platform, columns, model_id, ridge
        self.rows = pipelines.draw_rows(columns, n, rng) if rows is None else rows
        if y is None:
            y = pipelines.draw_target(columns, self.rows, rng)
            self.threshold = float(np.median(y))
            y = self._targets(y, rng)
        self.y = y
        self.subjects, self.exact_sums, self.rows_url = subjects, exact_sums, rows_url
        self.live = dict.fromkeys(range(len(self.y)))
        self.known: Sequence[Any] = ()

    @staticmethod
    def name(place: int) -> str:
        """Return the id of a row."""
        return f"row-{place}"

    def _targets(self, drawn: Array, rng: np.random.Generator) -> Array:
        """Return targets: noisy classes 0 and 1, places among several, or counts."""
        if self.kind is Kind.LINEAR:
            return drawn
        if self.kind is Kind.POISSON:
            margin = np.clip((drawn - self.threshold) / 5.0, -2.0, 2.0)
            return rng.poisson(np.exp(margin)).astype(np.float64)
        noise = rng.logistic(scale=3.0, size=len(drawn))
        if self.classes:
            cuts = np.linspace(-3.0, 3.0, len(self.classes) - 1)
            return np.digitize(drawn - self.threshold + noise, cuts).astype(np.float64)
        return (drawn - self.threshold + noise > 0).astype(np.float64)

    def training_data(self) -> TrainingData:
        """Return the table as a file would give it."""
        names = tuple(self.name(i) for i in range(len(self.y)))
        y = self.y[:, None]
        if self.classes:
            y = np.eye(len(self.classes))[self.y.astype(np.intp)]
        return table_data(self.columns, names, self.rows, y, self.subjects, self.classes)

    def register(
        self, *, method: str = "exact", budget: float = 0.01, **options: Any
    ) -> Registered:
        """Register the model."""
        data = self.training_data()
        config = ModelConfig(
            model_id=self.model_id,
            kind=self.kind,
            method=method,
            ridge=self.ridge,
            fit_intercept=True,
            feature_names=data.feature_names,
            target_names=data.target_names,
            class_names=self.classes,
            error_budget=budget,
            limits=options.pop("limits", LimitsRecord()),
            over_budget=options.pop("over_budget", OverBudget.COMPLETE),
            preprocess=data.preprocess,
            exact_sums=self.exact_sums,
        )
        at_step = options.pop("at_step", no_hook)
        if self.rows_url is None:
            done = self.platform.registrar(at_step=at_step).register(config, data, **options)
        else:
            columns = {"preprocess": (), "feature_names": tuple(map(str, self.columns))}
            config = with_row_files(config.model_copy(update=columns), self.rows_url)
            registrar = self.platform.file_registrar(at_step=at_step)
            done = registrar.register_in_files(config, Blocks(data), **options)
        self.known = done.state.meta.config.preprocess
        return done

    def delete(self, *places: int) -> str:
        """Send a request to delete rows; they are no longer live."""
        for place in places:
            self.live.pop(place, None)
        return self.platform.send(self.model_id, *(self.name(place) for place in places))

    def change(self, op: str, *places: int, rng: np.random.Generator, missing: float = 0.1) -> str:
        """Send a request to insert or correct rows, with new values of known categories.

        A place past the table's end is a new row.
        """
        more = max(places) + 1 - len(self.y)
        if more > 0:
            drawn = self._drawn(more, rng, missing)
            self.rows = pipelines.joined(self.rows, drawn)
            drawn_y = pipelines.draw_target(self.columns, drawn, rng)
            self.y = np.append(self.y, self._targets(drawn_y, rng))
        if op == "correct":
            drawn = self._drawn(len(places), rng, missing)
            for name, values in drawn.items():
                self.rows[name] = self.rows[name].copy()
                self.rows[name][list(places)] = values
            drawn_y = pipelines.draw_target(self.columns, drawn, rng)
            self.y[list(places)] = self._targets(drawn_y, rng)
        self.live |= dict.fromkeys(places)
        return self.send(op, *places)

    def send(self, op: str, *places: int) -> str:
        """Send a request with rows as the table has them."""
        rows = [
            {
                "id": self.name(place),
                "values": {str(name): _json(self.rows[name][place]) for name in self.columns},
                "target": self._target(place),
            }
            for place in places
        ]
        return self.platform.send_change(self.model_id, op, *rows)

    def _target(self, place: int) -> float | str:
        y = float(self.y[place])
        return self.classes[int(y)] if self.classes else y

    def _drawn(self, n: int, rng: np.random.Generator, missing: float) -> Rows:
        """Return random rows whose categories and gaps the registered model has places for."""
        drawn = pipelines.draw_rows(self.columns, n, rng, missing=missing)
        for record in self.known:
            values = drawn[record.name]
            if record.categories:
                known = set(record.categories)
                values[:] = [v if v in known else record.categories[0] for v in values]
        return drawn

    def fitted(self) -> Any:
        """Return scikit-learn's pipeline, fitted to the live rows."""
        X = pipelines.matrix(self.columns, self.rows, list(self.live))
        rows, kind = len(self.live), "classes" if self.classes else str(self.kind)
        fresh = pipelines.pipeline(self.columns, ridge=self.ridge, kind=kind, rows=rows)
        return fresh.fit(X, self.y[list(self.live)])

    def distance(self) -> tuple[float, float]:
        """Return how far published parameters are from the pipeline's, and the pipeline's length.

        A category that no live row has keeps its place in the model, with weight 0.
        """
        expected = pipelines.parameters(self.fitted())
        state = self.platform.load(self.model_id)
        assert state.published_pipeline is not None
        fitted = state.published_pipeline.fitted  # as the worker wrote it, and as readers write it
        assert fitted.packed == packed_columns(fitted.columns)
        theta, kept = state.published, self._kept(state)
        expected = expected.reshape(len(expected), -1)
        assert not theta[~kept].any()
        length = float(np.linalg.norm(expected))
        return float(np.linalg.norm(theta[kept] - expected)), length

    @staticmethod
    def _kept(state: ModelState) -> np.ndarray:
        """Return which parameters are not those of a category without a live row, or left out."""
        assert state.published_pipeline is not None
        drops = {record.name: record.drop for record in state.meta.config.preprocess}
        keep: list[bool] = []
        for column in state.published_pipeline.columns:
            there, drop = np.flatnonzero(column.kept()).tolist(), drops[column.name]
            if drop == "first" or (drop == "if_binary" and len(there) == len("ab")):
                there = there[1:]
            elif isinstance(drop, tuple):
                there = [place for place in there if column.categories[place] != drop[0]]
            keep += [place in there for place in range(column.width)]
        return np.array([*keep, True])

    def check(self, tolerance: float = 1e-9) -> None:
        """Check what is published: parameters, stated error, and predictions of live rows.

        Of a logistic or Poisson model the error is a bound, however far it is from the optimum.
        """
        distance, length = self.distance()
        state = self.platform.load(self.model_id)
        error = state.meta.error
        assert state.meta.rows_live == len(self.live)
        assert error.bound is not None
        if self.kind is not Kind.LINEAR:  # scikit-learn's own solver stops somewhere, too
            assert error.kind == "certificate"
            assert distance <= error.bound + 1e-8 * length, (distance, error)
            return
        if error.kind == "rounded":
            self._check_bytes(state)
        else:
            assert distance <= error.bound + 1e-12 * length, (distance, error)
        if state.meta.config.method == "exact":
            assert distance <= tolerance * length, (distance, length)
            assert state.published_pipeline is not None
            places = list(self.live)
            given = {name: self.rows[name][places] for name in self.columns}
            features = features_of(state.published_pipeline.columns, given)
            theta = state.published[:, 0]
            predicted = features @ theta[:-1] + theta[-1]
            X = pipelines.matrix(self.columns, self.rows, places)
            np.testing.assert_allclose(predicted, self.fitted().predict(X), rtol=1e-8, atol=1e-8)

    def _check_bytes(self, state: ModelState) -> None:
        """Check that parameters are those of the pipeline in decimals, each rounded once."""
        places = list(self.live)
        rows = {name: np.asarray(self.rows[name], dtype=object)[places] for name in self.columns}
        theta = minimiser(self.columns, rows, self.y[places], ridge=self.ridge, digits=120)
        assert state.published[self._kept(state)].tobytes() == theta.tobytes()


def _json(value: Any) -> Any:
    """Return a value as a request has it."""
    return value.isoformat() if isinstance(value, date) else value


def check_changes(table: PreparedTable, *deletions: Sequence[int]) -> None:
    """Delete, insert and correct rows, and check the versions before and after a rebuild."""
    rng, platform, n = np.random.default_rng(2), table.platform, len(table.y)
    table.check()
    requests = [
        *(table.delete(*rows) for rows in deletions),
        table.change("insert", n, n + 1, rng=rng),
        table.change("correct", 7, rng=rng),
    ]
    platform.drain()
    assert {platform.final(request).status for request in requests} == {"APPLIED"}
    table.check()
    assert verify(platform.store, table.model_id).holds
    platform.refresh(table.model_id, RefreshSize.REBUILD)
    table.check()
    assert verify(platform.store, table.model_id).holds


def check_exports(table: PreparedTable) -> None:
    """What subscribers, .skops and .onnx predict is what the pipeline does, fitted to live rows."""
    import pandas as pd
    from onnxruntime import InferenceSession
    from skops.io import loads

    platform, live = table.platform, list(table.live)
    given = {str(name): table.rows[name][live] for name in table.columns}
    expected = table.fitted().predict(pipelines.matrix(table.columns, table.rows, live))
    with ModelSubscriber(platform.log, platform.raw()) as models:
        predicted = models.latest("m").predict(given)
    event = platform.parameters()
    made = Exported(event, theta_of(event), 1.0)
    plain = loads(as_skops(made), trusted=["numpy.dtype"])
    frame = pd.DataFrame({name: values.tolist() for name, values in given.items()})
    session = InferenceSession(as_onnx(made), providers=["CPUExecutionProvider"])
    inputs = {
        name: values[:, None].astype(np.float64)
        if isinstance(table.columns[name], Numeric)
        else np.array([["" if one is None else one] for one in values], dtype=object)
        for name, values in given.items()
    }
    [variable] = session.run(["variable"], inputs)
    for one in (predicted, plain.predict(frame), variable[:, 0]):
        np.testing.assert_allclose(one, expected, rtol=1e-9)


class Pair:
    """Two models of one table: ``m``, whose rows are in files, and ``other``."""

    def __init__(self, platform: Platform, columns: Columns, n: int, **options: Any) -> None:
        owners = {f"subject-{i}": [f"row-{3 * i + j}" for j in range(3)] for i in range(n // 3)}
        self.platform = platform
        self.url = platform.folder()
        self.m, self.other = (
            PreparedTable(
                platform, columns, n, model_id=model, subjects=owners, rows_url=url, **options
            )
            for model, url in (("m", self.url), ("other", None))
        )

    def register(self, **options: Any) -> None:
        for table in (self.m, self.other):
            table.register(**options)
        self.check()

    def do(self, send: Callable[[PreparedTable], object]) -> None:
        """Have one thing asked of both models, and compare them."""
        for table in (self.m, self.other):
            send(table)
        self.platform.drain()
        self.check()

    def change(self, op: str, *places: int, seed: int) -> None:
        self.do(lambda table: table.change(op, *places, rng=np.random.default_rng(seed)))

    def refresh(self) -> None:
        for table in (self.m, self.other):
            self.platform.refresh(table.model_id, RefreshSize.REBUILD)
        self.check()

    def check(self) -> None:
        """Compare them: a test's own pair says how near they must be."""
        ours, theirs = (self.platform.load(table.model_id) for table in (self.m, self.other))
        assert ours.meta.config.preprocess == theirs.meta.config.preprocess
        assert ours.version == theirs.version
        check_rows(self.platform, "m")
        check_row_files(self.platform)
        check_commits(self.platform, "m")
