"""What a fitted scikit-learn Pipeline does to its columns, as preprocessing inside a model."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, TypeAlias

import numpy as np
from sklearn.compose import ColumnTransformer
from sklearn.impute import SimpleImputer
from sklearn.pipeline import Pipeline
from sklearn.preprocessing import (
    FunctionTransformer,
    OneHotEncoder,
    OrdinalEncoder,
    StandardScaler,
    TargetEncoder,
)

from lethe.engine.conversion.parameters import PARAMETERS, check_parameters, check_requests
from lethe.engine.errors import InvalidData
from lethe.engine.preprocess.input.columns import Column, Name, Numeric, OneHot, Ordinal

Steps: TypeAlias = Sequence[tuple[str, Any]]

_KNOWN = (
    "known are SimpleImputer() and StandardScaler(), each alone or both; OneHotEncoder(); and "
    "OrdinalEncoder(), alone or with StandardScaler(). Give another transformer frozen"
)
_TRANSFORMERS = (
    FunctionTransformer,
    OneHotEncoder,
    OrdinalEncoder,
    SimpleImputer,
    StandardScaler,
)


def read_pipeline(pipeline: Pipeline) -> tuple[dict[Name, Column], Any]:
    """Return what a fitted pipeline does to its columns, and its final step.

    The columns are those of a ``ColumnTransformer``, or all of X go through the same transformers;
    they come in the order of the final step's features.

    Raises
    ------
    InvalidData
        A transformer is not known, has other settings, or drops columns.
    """
    check_parameters(pipeline)
    *steps, (_, final) = pipeline.steps
    found = [(name, step) for name, step in steps if not _is_idle(step)]
    if len(found) == 1 and type(found[0][1]) is ColumnTransformer:
        return dict(_of_transformer(*found[0])), final
    first = found[0][1] if found else final  # that of the Pipeline fails where it passes X through
    names = getattr(first, "feature_names_in_", None)
    places: Sequence[Name] = range(first.n_features_in_) if names is None else names.tolist()
    return {name: _column(found, name, i) for i, name in enumerate(places)}, final


def _of_transformer(name: str, transformer: ColumnTransformer) -> Iterator[tuple[Name, Column]]:
    where = f"step {name!r}, "
    check_parameters(transformer, where)
    seen: set[Name] = set()
    for label, step, chosen in transformer.transformers_:
        names = _names(transformer, label, chosen)
        if isinstance(step, str) and step == "drop" and names:
            raise InvalidData(
                f"{where}ColumnTransformer: it drops column {names[0]!r}; leave that out of the "
                "table, and fit the Pipeline without it"
            )
        for i, column in enumerate(names):
            if column in seen:
                raise InvalidData(
                    f"{where}ColumnTransformer: column {column!r} is transformed twice; only once "
                    "is known. Give it a copy under another name"
                )
            seen.add(column)
            inner: Steps = [(label, step)]
            if type(step) is Pipeline:
                check_parameters(step, f"step {label!r}, ")
                inner = [(f"{label}, {of}", one) for of, one in step.steps]
            yield column, _column([one for one in inner if not _is_idle(one[1])], column, i)


def _names(transformer: ColumnTransformer, label: str, chosen: Any) -> list[Name]:
    listed: list[Any] = [chosen] if isinstance(chosen, (str, int, slice)) else list(chosen)
    if any(isinstance(one, (slice, bool, np.bool_)) for one in listed):
        raise InvalidData(
            f"step {label!r}, ColumnTransformer: its columns are a slice or a mask; list their "
            "names"
        )
    known = getattr(transformer, "feature_names_in_", None)
    return [
        one if isinstance(one, str) else int(one) if known is None else str(known[int(one)])
        for one in listed
    ]


def _column(steps: Steps, column: Name, place: int) -> Column:
    """Return the column that transformers in turn make of one; ``place`` among their columns."""
    for name, step in steps:
        _check(step, f"step {name!r}, column {column!r}, ")
    found = [step for _, step in steps if type(step) is not FunctionTransformer]
    kinds = [type(step) for step in found]
    scaled = kinds[-1:] == [StandardScaler]
    before = kinds[:-1] if scaled else kinds
    if before == []:
        return Numeric(impute=None, standardise=scaled)
    if before == [SimpleImputer]:
        return Numeric(standardise=scaled)
    if before == [OneHotEncoder] and not scaled:
        return OneHot("error" if found[0].handle_unknown == "error" else "ignore")
    if before == [OrdinalEncoder]:
        given = found[0].categories
        named = None if isinstance(given, str) else tuple(given[place])
        return Ordinal(named, standardise=scaled)
    raise InvalidData(
        f"column {column!r}: {' and '.join(kind.__name__ for kind in kinds)} one after another; "
        f"{_KNOWN}"
    )


def _is_idle(step: Any) -> bool:
    """Return whether a step passes everything through, without a look at its parameters."""
    return step is None or (isinstance(step, str) and step == "passthrough")


def _check(step: Any, where: str) -> None:
    name = type(step).__name__
    if type(step) is TargetEncoder:
        raise InvalidData(
            f"{where}TargetEncoder: a Pipeline encodes its training rows by cross-fitting, which "
            "is another estimator; preprocess={...: TargetEncode()} encodes them as transform does"
        )
    if type(step) not in PARAMETERS or type(step) not in _TRANSFORMERS:
        raise InvalidData(f"{where}{name}: {_KNOWN}")
    check_parameters(step, where)
    check_requests(step, where)
