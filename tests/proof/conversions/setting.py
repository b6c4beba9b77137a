"""A setting: an estimator, its table, and what is expected of its conversion."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import pandas as pd
from numpy.random import Generator
from numpy.typing import NDArray
from sklearn.base import clone

from lethe.engine.fit.objective import Kind

Offence: TypeAlias = tuple[str, ...]
"""Why an estimator is no model, as the pieces that a refusal must have: step, column, parameter."""

Rows: TypeAlias = NDArray[np.intp]

N = 120
TOWNS = ("Bonn", "Kiel", "Ulm", "Worms")
SIZES = ("L", "M", "S")

NUMBERS = ("income", "score", "member")
GAPS = ("age", "weight")
CATEGORIES = ("town", "size", "grade")
CATEGORIES_WITH_GAPS = ("post",)


def rows_of(X: Any, rows: Rows) -> Any:
    """Return rows of a table or an array."""
    return X.iloc[rows] if isinstance(X, pd.DataFrame) else X[rows]


def fitted(estimator: Any, X: Any, y: NDArray[Any], _: Rows) -> Any:
    """Return a clone that was fitted to these rows."""
    return clone(estimator).fit(X, y)


@dataclass(frozen=True, slots=True)
class Setting:
    """An estimator, and what it is fitted on.

    Attributes
    ----------
    name
        What it is, in a word.
    linear
        Whether it is given to `LinearModel`, or to `LogisticModel`.
    estimator
        It, not fitted.
    table, target
        Names of what it is fitted on, in `TABLES` and `TARGETS`.
    offences
        Each a reason why it must be refused; none if it must become a model.
    fit
        Fits a clone to rows: estimator, X, y, places of the rows in the whole table.
    learnt_from
        What the model is given as X, if it is not what the estimator was fitted on.
    weights
        Of the rows, which the model is given.
    other
        The kind of a model of counts, or of one softmax; None of those that ``linear`` names.
    """

    name: str
    linear: bool
    estimator: Any
    table: str
    target: str
    offences: tuple[Offence, ...] = ()
    fit: Callable[[Any, Any, NDArray[Any], Rows], Any] = fitted
    learnt_from: Callable[[Any], Any] = lambda X: X
    weights: NDArray[np.float64] | None = None
    other: Kind | None = None

    @property
    def kind(self) -> Kind:
        """Of the model that it is given to."""
        return self.other or (Kind.LINEAR if self.linear else Kind.LOGISTIC)


def drawn_tables(rng: Generator) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
    """Return tables of N rows by name, and targets.

    Kiel has three rows: it vanishes when they are deleted. Scores of -1 and 0 occur. Numbers are
    of moderate size, so that each of scikit-learn's solvers can come to its optimum.
    """
    town = rng.choice(["Bonn", "Ulm", "Worms"], N)
    town[:3] = "Kiel"
    age, weight = 4 + rng.standard_normal(N), 7 + 1.2 * rng.standard_normal(N)
    age[rng.random(N) < 0.2] = np.nan
    weight[rng.random(N) < 0.1] = np.nan
    post = rng.choice(["a", "b", "c"], N).astype(object)
    post[rng.random(N) < 0.15] = np.nan
    frame = pd.DataFrame(
        {
            "income": 3 + 0.5 * rng.standard_normal(N),
            "score": rng.integers(-1, 6, N).astype(float),
            "member": rng.random(N) < 0.4,
            "age": age,
            "weight": weight,
            "town": town,
            "size": rng.choice(SIZES, N),
            "grade": rng.integers(1, 5, N),
            "post": post,
        }
    )
    numbers = rng.standard_normal((N, 4)) + np.array([0.0, 2.0, -1.0, 3.0])
    value = numbers @ [1.0, -2.0, 0.5, 0.3] + (town == "Ulm") - (frame["size"] == "S")
    value = (value + frame["income"] + rng.standard_normal(N)).to_numpy()
    two, edges = value > np.median(value), np.quantile(value, [0.3, 0.6])
    tables: dict[str, Any] = {
        "numbers": numbers,
        "named": pd.DataFrame(numbers, columns=list("abcd")),
        "integers": rng.integers(0, 4, (N, 3)),
        "frame": frame,
    }
    targets: dict[str, NDArray[Any]] = {
        "number": value,
        "column of numbers": value[:, None],
        "two numbers": np.column_stack([value, rng.standard_normal(N)]),
        "two words": np.where(two, "yes", "no"),
        "two integers": two.astype(int) + 3,
        "true or false": two,
        "three words": np.array(["x", "y", "z"])[np.digitize(value, edges)],
        "counts": rng.poisson(2.0, N),
    }
    return tables, targets


TABLES, TARGETS = drawn_tables(np.random.default_rng(32))
