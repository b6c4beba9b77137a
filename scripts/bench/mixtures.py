"""Synthetic models with preprocessing, and the bare model that they are compared with."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from bench.synthetic import NO_BUDGET, RIDGE, row_id
from lethe.consumers.registration.register import Registrar, TrainingData
from lethe.engine.fit.objective import Kind
from lethe.engine.preprocess.input.columns import Columns, Numeric, TargetEncode, passthrough
from lethe.engine.preprocess.input.table import read_table
from lethe.engine.store.layout.config import ModelConfig
from lethe.engine.store.layout.preprocessing import layout_of, recorded

_MISSING = 0.1  # of the values of a column that is imputed
_CATEGORIES = 8


@dataclass(frozen=True, slots=True)
class Mixture:
    """How many features are standardised only, imputed as well, or target-encoded.

    ``bare``: a model without preprocessing, whose features come as they are, with an intercept.
    """

    plain: int
    imputed: int = 0
    encoded: int = 0
    bare: bool = False

    def columns(self) -> Columns:
        """Return the columns, standardised all of them unless they are bare."""
        plain = passthrough() if self.bare else Numeric(impute=None)
        return {
            **{f"plain_{i}": plain for i in range(self.plain)},
            **{f"imputed_{i}": Numeric() for i in range(self.imputed)},
            **{f"encoded_{i}": TargetEncode(standardise=True) for i in range(self.encoded)},
        }

    def __str__(self) -> str:
        if self.bare:
            return "none"
        counts = (("imputed", self.imputed), ("encoded", self.encoded))
        return ", ".join(["standardised", *(f"{n} {name}" for name, n in counts if n)])


def register_mixture(
    registrar: Registrar, name: str, mixture: Mixture, n: int, rng: np.random.Generator
) -> None:
    """Register a linear model of n rows, for the exact method."""
    ids = tuple(row_id(i) for i in range(n))
    columns = mixture.columns()
    values = {name: _drawn(column, n, rng) for name, column in columns.items()}
    y = _targets(values, rng)
    if mixture.bare:
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


def _targets(values: Mapping[str, np.ndarray], rng: np.random.Generator) -> np.ndarray:
    """Return n x 1 targets of a noisy linear model: numbers and categories explain as much."""
    numbers, effects = [], []
    for column in values.values():
        if column.dtype == object:
            _, place = np.unique(column.astype(str), return_inverse=True)
            effects.append(rng.standard_normal(_CATEGORIES)[place])
        else:
            numbers.append(rng.standard_normal() * np.nan_to_num(column))
    parts = [np.sum(each, axis=0) / np.sqrt(len(each)) for each in (numbers, effects) if each]
    y: np.ndarray = np.sum(parts, axis=0)[:, None]
    return y + 0.5 * rng.standard_normal(y.shape)
