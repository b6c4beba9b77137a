"""Section ``preprocessing``: a request to a model with preprocessing beside one to a bare model."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field

import numpy as np

from benchmarks.synthetic import NO_BUDGET, RIDGE, LocalWorker, request, row_id
from harness.records import Record, Setting, at_most, compared, measured
from harness.study import Section, Setup
from lethe.consumers.registration.register import Registrar, TrainingData
from lethe.consumers.service.embedded_valkey import EmbeddedValkey
from lethe.consumers.service.loop import collect_rarely
from lethe.consumers.service.telemetry.logs import configure_logging
from lethe.engine.fit.objective import Kind
from lethe.engine.preprocess.input.columns import Columns, Numeric, TargetEncode, passthrough
from lethe.engine.preprocess.input.table import read_table
from lethe.engine.store.layout.config import ModelConfig
from lethe.engine.store.layout.preprocessing import layout_of, recorded
from lethe.engine.store.server.connection import NoBarrier, connect
from lethe.engine.store.store import ModelStore

_LARGEST = 3.0  # times a bare model's processor time, docs/preprocessing.md
_MISSING = 0.1  # of the values of a column that is imputed
_CATEGORIES = 8

_NOTE = """
One request of k rows at a time to one worker in this process (log in memory, Valkey beside it), to
models of d features in turns: processor time of the worker from poll to publication. A bare model
has no preprocessing: its features come as they are, with an intercept. Each round deletes from
every model, so that K is the same for all.
"""

_BARE = "none"


@dataclass(frozen=True, slots=True)
class Mixture:
    """How many features are standardised only, imputed as well, or target-encoded."""

    plain: int
    imputed: int = 0
    encoded: int = 0

    def columns(self) -> Columns:
        """Return the columns, standardised all of them."""
        return {
            **{f"plain_{i}": Numeric(impute=None) for i in range(self.plain)},
            **{f"imputed_{i}": Numeric() for i in range(self.imputed)},
            **{f"encoded_{i}": TargetEncode(standardise=True) for i in range(self.encoded)},
        }

    def __str__(self) -> str:
        counts = (("imputed", self.imputed), ("encoded", self.encoded))
        return ", ".join(["standardised", *(f"{n} {name}" for name, n in counts if n)])


@dataclass(frozen=True, slots=True)
class Plan:
    """Sizes; ``requests`` to each model, after as many as warm it up."""

    n: int = 3000
    k: int = 10
    requests: int = 20
    warm: int = 3
    mixtures: Mapping[str, Mixture] = field(
        default_factory=lambda: _named(Mixture(1000), Mixture(900, 100), Mixture(800, 190, 10))
    )


def _named(*mixtures: Mixture) -> Mapping[str, Mixture]:
    return {str(mixture): mixture for mixture in mixtures}


def run(plan: Plan, setup: Setup) -> Iterator[Record]:
    """Register the models, and send them requests in turns."""
    configure_logging("WARNING", "json")
    directory = setup.directory / "preprocessing"
    directory.mkdir(parents=True, exist_ok=True)
    rng = np.random.default_rng(setup.seed)
    d = max(mixture.plain for mixture in plan.mixtures.values())
    bare = {f"plain_{i}": passthrough() for i in range(d)}
    models = {_BARE: bare, **{name: one.columns() for name, one in plan.mixtures.items()}}
    taken: dict[str, list[float]] = {name: [] for name in models}
    with ExitStack() as stack:
        client = connect(stack.enter_context(EmbeddedValkey(directory)).url)
        stack.callback(client.close)
        local = LocalWorker(ModelStore(client, NoBarrier()))
        stack.callback(local.worker.close)
        for number, columns in enumerate(models.values()):
            _register(local.registrar, f"model-{number}", columns, plan.n, rng, bare=number == 0)
        collect_rarely()
        for turn in range(plan.warm + plan.requests):
            rows = range(turn * plan.k, (turn + 1) * plan.k)
            for number, times in enumerate(taken.values()):
                local.send([request(turn * len(models) + number, number, rows)])
                begin = time.process_time()
                local.drain()
                times.append(1e6 * (time.process_time() - begin))
    for name, times in taken.items():
        del times[: plan.warm]
        yield measured(_setting(plan, d, name), "processor time of a request", "us", times)
    for name in plan.mixtures:
        ratios = [with_ / without for with_, without in zip(taken[name], taken[_BARE], strict=True)]
        middle = float(np.median(ratios))
        metric = "of a bare model's"
        setting = _setting(plan, d, name)
        yield compared(setting, metric, [middle], at_most(_LARGEST), samples=len(ratios))


def _setting(plan: Plan, d: int, preprocessing: str) -> Setting:
    return {"preprocessing": preprocessing, "n": plan.n, "d": d, "k": plan.k}


def _register(
    registrar: Registrar,
    name: str,
    columns: Columns,
    n: int,
    rng: np.random.Generator,
    *,
    bare: bool,
) -> None:
    ids, y = tuple(row_id(i) for i in range(n)), rng.standard_normal((n, 1))
    values = {name: _drawn(column, n, rng) for name, column in columns.items()}
    if bare:
        names, X = tuple(values), np.column_stack(list(values.values())).astype(np.float64)
        data = TrainingData(ids, X, y, names, ("target",), {})
    else:
        records, table = recorded(columns, read_table(columns, values))
        names, nothing = layout_of(records).names, np.empty((n, 0))
        data = TrainingData(
            ids, nothing, y, names, ("target",), {}, preprocess=records, table=table
        )
    config = ModelConfig(
        model_id=name,
        kind=Kind.LINEAR,
        method="exact",
        ridge=RIDGE,
        fit_intercept=True,
        feature_names=data.feature_names,
        target_names=data.target_names,
        error_budget=NO_BUDGET,
        preprocess=data.preprocess,
    )
    registrar.register(config, data)


def _drawn(column: object, n: int, rng: np.random.Generator) -> np.ndarray:
    """Return a column's values."""
    if isinstance(column, TargetEncode):
        return np.array([f"v{i}" for i in rng.integers(_CATEGORIES, size=n)], dtype=object)
    values = rng.standard_normal(n)
    if column == Numeric():
        values[rng.random(n) < _MISSING] = np.nan
    return values


SECTION = Section(
    "preprocessing",
    _NOTE,
    Plan(),
    Plan(n=100, k=2, requests=3, warm=1, mixtures=_named(Mixture(20), Mixture(15, 3, 2))),
    run,
)
