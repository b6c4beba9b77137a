"""Pipelines: transformers of columns, in the ways in which they are put together."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from random import Random
from typing import Any

from joblib import Memory  # type: ignore[import-untyped]
from sklearn.compose import ColumnTransformer, make_column_selector
from sklearn.linear_model import LogisticRegression, Ridge, RidgeClassifier
from sklearn.multiclass import OneVsRestClassifier
from sklearn.pipeline import Pipeline
from sklearn.preprocessing import FunctionTransformer, StandardScaler

from tests.proof.conversions import estimators
from tests.proof.conversions.estimators import Values, can_be_fitted, shown
from tests.proof.conversions.setting import (
    CATEGORIES,
    CATEGORIES_WITH_GAPS,
    GAPS,
    NUMBERS,
    TABLES,
    Offence,
    Setting,
)
from tests.proof.conversions.transformers import (
    KNOWN,
    SCALERS,
    Part,
    drawn,
    learns,
    made,
    offences,
    on_categories,
    on_gaps,
    on_numbers,
)

COLUMN_TRANSFORMER: Values = {
    "transformers": ((),),  # drawn
    "remainder": ("drop", "passthrough", StandardScaler()),
    "sparse_threshold": (0.3, 0.0, 1.0),
    "n_jobs": (None, 1),
    "transformer_weights": (None, None, None, None, None, {"numbers": 2.0, "gaps": 0.5}),
    "verbose": (False,),
    "verbose_feature_names_out": (True, False),
}

PIPELINE: Values = {
    "steps": ((),),  # drawn
    "transform_input": (None,),  # another needs routing: `special` has one
    "memory": (None, Memory(None)),
    "verbose": (False,),
}

_COLUMNS: Mapping[str, Sequence[str]] = {
    "numbers": NUMBERS,
    "gaps": GAPS,
    "categories": CATEGORIES,
    "post": CATEGORIES_WITH_GAPS,
}

_FINALS: Sequence[tuple[type, bool, Sequence[str]]] = (
    (Ridge, True, ("number", "two numbers")),
    (Ridge, True, ("number",)),
    (RidgeClassifier, True, ("two words", "three words")),
    (LogisticRegression, False, ("two words", "true or false", "two integers")),
    (LogisticRegression, False, ("two words",)),
    (OneVsRestClassifier, False, ("two words", "three words")),
)


def _part(rng: Random, label: str, columns: Sequence[str], defaults: float) -> Part:
    if label == "numbers":
        return on_numbers(rng, columns, defaults)
    if label == "gaps":
        return on_gaps(rng, columns, defaults)
    return on_categories(rng, columns, defaults, gaps=label == "post")


def _of_columns(
    rng: Random, defaults: float
) -> tuple[ColumnTransformer, list[str], list[Offence], bool]:
    """Return a ColumnTransformer, the columns that it takes, offences, and if it scales any."""
    labels = [label for label in _COLUMNS if rng.random() < 0.7] or ["numbers"]
    transformers, taken, wrong, scales = [], [], [], False
    for label in rng.sample(labels, len(labels)):
        columns = [name for name in _COLUMNS[label] if rng.random() < 0.8] or [_COLUMNS[label][0]]
        rng.shuffle(columns)
        part = _part(rng, label, columns, defaults)
        transformers.append((label, part.transformer, columns))
        taken += columns
        wrong += [
            ("'columns' > ", f"'{label}'", f"column {columns[0]!r}", *o) for o in part.offences
        ]
        said = " ".join(repr(part.transformer).split())
        scales |= "Scaler" in said and "with_mean=False, with_std=False" not in said
    given = {
        name: rng.choice(options) if rng.random() > 0.6 else options[0]
        for name, options in COLUMN_TRANSFORMER.items()
    }
    known = {label for label, *_ in transformers}
    if given["transformer_weights"]:
        weights = {k: v for k, v in given["transformer_weights"].items() if k in known}
        given["transformer_weights"] = weights or None
    transformer = ColumnTransformer(**{**given, "transformers": transformers})
    weights = transformer.transformer_weights or {}
    if any(learns(one) for label, one, _ in transformers if label in weights):
        wrong.append(("'columns'", shown(transformer, "transformer_weights", weights)))
    rest = [name for name in _numeric_rest(taken) if transformer.remainder != "drop"]
    scales |= bool(rest) and isinstance(transformer.remainder, StandardScaler)
    return transformer, [*taken, *rest], wrong, scales


def _numeric_rest(taken: Sequence[str]) -> list[str]:
    return [name for name in NUMBERS if name not in taken]


def _final(rng: Random, defaults: float) -> tuple[Any, bool, str, list[Offence]]:
    kind, linear, targets = rng.choice(_FINALS)
    target = rng.choice(targets)
    values, _ = estimators.CLASSES[kind]
    final = estimators.drawn(rng, kind, values) if rng.random() > defaults else _default(kind)
    wrong: list[Offence] = [("'model'", *one) for one in estimators.offences(final)]
    return final, linear, target, wrong


def _default(kind: type) -> Any:
    """Return a last step with its defaults."""
    return kind(LogisticRegression()) if kind is OneVsRestClassifier else kind()


def settings(rng: Random, n: int) -> Iterator[Setting]:
    """Yield ``n`` drawn pipelines that scikit-learn takes."""
    while n > 0:
        defaults = rng.choice((0.6, 0.93, 1.0))
        transformer, columns, wrong, scales = _of_columns(rng, defaults)
        final, linear, target, wrong_final = _final(rng, defaults)
        one = getattr(final, "estimator", final)
        if scales and not one.fit_intercept:
            wrong_final.append(("'model'", "column ", "fit_intercept=False"))
        steps = _around(rng, [("columns", transformer)])
        given = {name: rng.choice(options) for name, options in PIPELINE.items()}
        pipeline = Pipeline(**{**given, "steps": [*steps, ("model", final)]})
        table = "frame of " + " ".join(columns)
        # The whole table has columns that remainder="drop" drops: they are left out of it.
        TABLES.setdefault(table, TABLES["frame"][columns])
        if can_be_fitted(pipeline, table, target):
            n -= 1
            expected = tuple(wrong + wrong_final)
            yield Setting("Pipeline", linear, pipeline, table, target, expected)


def _around(rng: Random, steps: list[tuple[str, Any]]) -> list[tuple[str, Any]]:
    """Return steps with others that do nothing, or in pipelines of their own."""
    if rng.random() < 0.2:
        nothing = rng.choice(("passthrough", None, FunctionTransformer()))
        steps = (
            [("nothing", nothing), *steps] if rng.random() < 0.5 else [*steps, ("none", nothing)]
        )
    if rng.random() < 0.2:
        steps = [("inner", Pipeline(steps))]
    return steps


def one_at_a_time() -> Iterator[Setting]:
    """Yield each documented value of each transformer, all else at its default."""
    of = {
        "SimpleImputer": ["score", "income"],
        "OneHotEncoder": ["town", "size"],
        "OrdinalEncoder": ["size", "grade"],
        "FunctionTransformer": ["member", "score"],
    }
    for kind, values in KNOWN.items():
        columns = of.get(kind.__name__, ["income", "score"])
        TABLES.setdefault(table := " ".join(columns), TABLES["frame"][columns])
        for name, options in values.items():
            for value in options:
                step = made(kind, {name: value}, columns)
                wrong = tuple(
                    ("step 'only'", f"column {columns[0]!r}", *one) for one in offences(step)
                )
                pipeline = Pipeline([("only", step), ("model", Ridge())])
                if can_be_fitted(pipeline, table, "number"):
                    yield Setting(kind.__name__, True, pipeline, table, "number", wrong)


def for_all_columns(rng: Random, n: int) -> Iterator[Setting]:
    """Yield pipelines whose transformers take every column, of an array or a data frame."""
    for _ in range(n):
        scaler = drawn(rng, rng.choice(SCALERS), (), 0.9)
        wrong = [("'scale'", "column ", *one) for one in offences(scaler)]
        final, linear, target, wrong_final = _final(rng, 1.0)
        steps = _around(rng, [("scale", scaler)])
        pipeline = Pipeline([*steps, ("model", final)])
        table = rng.choice(("numbers", "named", "integers"))
        if can_be_fitted(pipeline, table, target):
            expected = tuple(wrong + wrong_final)
            yield Setting("Pipeline", linear, pipeline, table, target, expected)


SELECTORS = (
    (make_column_selector(dtype_include="number"), ()),
    (["income", "score"], ()),
    (slice(0, 2), ()),
    (slice("income", "score"), ()),
    ([True, True, False], ()),
    ([-1, 0], ()),
    (lambda frame: list(frame.columns[:2]), ()),
)
"""Ways to name columns, and what a refusal of one says."""


def selected() -> Iterator[Setting]:
    """Yield each way to name columns."""
    TABLES.setdefault("income score member", TABLES["frame"][["income", "score", "member"]])
    for columns, pieces in SELECTORS:
        transformer = ColumnTransformer(
            [("some", StandardScaler(), columns)], remainder="passthrough"
        )
        pipeline = Pipeline([("columns", transformer), ("model", Ridge())])
        wrong = (pieces,) if pieces else ()
        yield Setting("columns", True, pipeline, "income score member", "number", wrong)
