"""scikit-learn's fitted pipelines as preprocessing inside a model."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any, cast

import numpy as np
from sklearn.compose import ColumnTransformer
from sklearn.impute import SimpleImputer
from sklearn.pipeline import Pipeline
from sklearn.preprocessing import (
    FunctionTransformer,
    OneHotEncoder,
    OrdinalEncoder,
    StandardScaler,
)

from lethe.engine.conversion.parameters import (
    FROZEN,
    PARAMETERS,
    check_parameters,
    check_requests,
)
from lethe.engine.conversion.steps import Step
from lethe.engine.errors import InvalidData
from lethe.engine.estimator.columns import column_names
from lethe.engine.preprocess.input.columns import (
    Column,
    Drop,
    Name,
    Numeric,
    OneHot,
    Ordinal,
    Standardise,
)
from lethe.engine.preprocess.input.values import is_missing
from lethe.engine.preprocess.library import PreparedModel

_KNOWN = (
    "a model has SimpleImputer() and StandardScaler(), each alone or in this order; "
    "OneHotEncoder(); and OrdinalEncoder(), alone or before StandardScaler(). Fit one of these, or "
    f"{FROZEN}"
)

REFUSED: Mapping[str, str] = MappingProxyType(
    {
        "ColumnTransformer": "only the first step may be one, and none of that step's own steps "
        f"may; give each column its transformers there, or {FROZEN}",
        "TargetEncoder": "a Pipeline encodes its training rows by cross-fitting, which is another "
        "estimator; preprocess={...: TargetEncode()} encodes them as transform does; or "
        f"{FROZEN}",
    }
)
"""Why transformers are refused, where there is more to say than that a model has no such."""

_DROPPED = "drops it, and a model learns from every column of its table; leave it out of X"
_DROPPED_OF_ARRAY = (
    "drops it, and a model learns from every column of an array; fit the Pipeline without it, or "
    "on a data frame, whose columns have names"
)

_LARGEST_GAP = {np.float64: 1.5e-8, np.float32: 3.5e-4}
"""Between a feature here and there, of its size: the root of the precision, which is far above what
rounding leaves and far below what other rows or weights change."""


@dataclass(frozen=True, slots=True)
class PipelineRead:
    """A fitted pipeline in a model's terms.

    Attributes
    ----------
    final
        Its last step.
    columns
        What its other steps do to each column, in the order of the last one's features; None if
        they do nothing.
    dropped
        Columns that it drops, and where.
    steps
        The other steps in turn, without those that do nothing.
    """

    final: Step
    columns: dict[Name, Column] | None = None
    dropped: dict[Name, InvalidData] = field(default_factory=dict)
    steps: tuple[Step, ...] = ()

    def check_dropped(self, X: Any) -> None:
        """Refuse a table with columns that the pipeline drops.

        Raises
        ------
        InvalidData
            There is one, or X is an array, where those after it would have other places.
        """
        names = list(X) if isinstance(X, Mapping) else column_names(X) or ()
        for name, refusal in self.dropped.items():
            if isinstance(name, int) or name in names:
                raise refusal

    def check_features(self, prepared: PreparedModel, X: Any) -> None:
        """Compare the features that the pipeline makes of its rows with the model's.

        They differ if a transformer has learnt from other rows, or from weighted ones: what it was
        given beside its parameters does not show otherwise. Cost O(n p).

        Raises
        ------
        InvalidData
            They differ.
        """
        theirs = self._features(X)
        kept = ~prepared.left_out
        ours = prepared.features(X)[:, kept]
        if theirs.shape != ours.shape:
            raise InvalidData(
                f"X has {ours.shape[1]} features once transformed, and the Pipeline makes "
                f"{theirs.shape[1]}; give the rows that it was fitted on"
            )
        size = np.abs(theirs).max(axis=0) + prepared.offsets[kept]
        gaps = np.abs(theirs - ours)
        precision = _LARGEST_GAP[np.float32 if theirs.dtype == np.float32 else np.float64]
        bad = np.argwhere(~(gaps <= precision * size))
        if len(bad):
            row, feature = bad[0]
            names = np.array(prepared.feature_names)[kept].tolist()
            raise InvalidData(
                f"feature {names[feature]!r}: the Pipeline makes "
                f"{theirs[row, feature]:.6g} of row {row}, and the model of these rows "
                f"{ours[row, feature]:.6g}; fit the Pipeline on the rows given, without weights "
                f"for its transformers, or {FROZEN}"
            )

    def _features(self, X: Any) -> Any:
        made = deepcopy(X)  # with copy=False, a transformer writes into it
        try:
            for step in self.steps:
                made = step.estimator.transform(made)
        except Exception as error:  # a transformer may raise anything
            why = " ".join(str(error).split())
            raise InvalidData(
                f"the Pipeline refuses X ({why}); give the rows that it was fitted on"
            ) from error
        made = np.asarray(made.toarray() if hasattr(made, "toarray") else made)
        return made if made.dtype == np.float32 else made.astype(np.float64)


def read_pipeline(whole: Step) -> PipelineRead:
    """Return what a fitted pipeline does to its columns, and its final step.

    The columns are those of a ``ColumnTransformer``, or all of X go through the same transformers.

    Raises
    ------
    InvalidData
        A transformer is not one that a model has, or has settings that a model has not.
    """
    *before, final = _flat(whole)
    if does_nothing(final.estimator):
        raise whole.refusal("it ends in no estimator; give one that ends in Ridge, for example")
    steps = [step for step in before if not does_nothing(step.estimator)]
    if not steps:
        return PipelineRead(final)
    for step in steps:
        step.check_fitted()
    first = steps[0]
    if type(first.estimator) is not ColumnTransformer:
        chains = {name: (steps, i) for i, name in enumerate(_all_names([*before, final]))}
        columns = {name: _column(*chain, name) for name, chain in chains.items()}
        return PipelineRead(final, columns, steps=tuple(steps))
    check_parameters(first.estimator, first.where)
    columns, dropped = {}, {}
    for name, chain, place in _by_column(first):
        if isinstance(chain, InvalidData):
            dropped[name] = chain
            continue
        if name in columns:
            raise replace(first, column=name).refusal(
                "the column is transformed twice, and a model transforms it once; leave one out, "
                f"or {FROZEN}"
            )
        columns[name] = _column([*chain, *steps[1:]], place, name)
    return PipelineRead(final, columns, dropped, tuple(steps))


def _flat(pipeline: Step) -> list[Step]:
    """Return the steps of a pipeline, with those of pipelines in it in their place."""
    check_parameters(pipeline.estimator, pipeline.where)
    if not pipeline.estimator.steps:
        raise pipeline.refusal("it has no step; give one that ends in Ridge, for example")
    steps: list[Step] = []
    for name, estimator in pipeline.estimator.steps:
        step = pipeline.below(name, estimator)
        steps += _flat(step) if type(estimator) is Pipeline else [step]
    return steps


def _all_names(steps: Sequence[Step]) -> Sequence[Name]:
    """Return the names of the columns that the first step was fitted on, or their places."""
    for step in steps:
        names = getattr(step.estimator, "feature_names_in_", None)
        if names is not None:
            return [str(name) for name in names]
    sizes = (getattr(step.estimator, "n_features_in_", None) for step in steps)
    return range(next(size for size in sizes if size is not None))


def _by_column(
    transformer: Step,
) -> Iterator[tuple[Name, Sequence[Step] | InvalidData, int]]:
    """Yield each column, the steps that transform it, and its place among theirs.

    In place of the steps, of a column that is dropped: the refusal of a table that has it.
    """
    for label, estimator, where in transformer.estimator.transformers_:
        step = transformer.below(label, estimator)
        steps = _flat(step) if type(estimator) is Pipeline else [step]
        for i, name in enumerate(_names(step, transformer.estimator, where)):
            if not isinstance(estimator, str) or estimator != "drop":
                yield name, steps, i
                continue
            why = _DROPPED if isinstance(name, str) else _DROPPED_OF_ARRAY
            yield name, replace(transformer, column=name).refusal(f"{label}='drop' {why}"), i


def _names(step: Step, transformer: ColumnTransformer, where: Any) -> list[Name]:
    listed: list[Any] = [where] if isinstance(where, (str, int, slice)) else list(where)
    if any(isinstance(one, (slice, bool, np.bool_)) for one in listed):
        raise step.refusal("its columns are a slice or a mask; fit it with a list of their names")
    known = getattr(transformer, "feature_names_in_", None)
    return [_name(one, known, transformer.n_features_in_) for one in listed]


def _name(one: Any, known: Any, p: int) -> Name:
    if isinstance(one, str):
        return one
    place = int(one) % p  # from the end if below 0
    return place if known is None else str(known[place])


def _column(steps: Sequence[Step], place: int, name: Name) -> Column:
    """Return the column that transformers in turn make of one; ``place`` among their columns."""
    found = [replace(step, column=name) for step in steps if not does_nothing(step.estimator)]
    for step in found:
        check_step(step)
    kinds = [type(step.estimator) for step in found]
    scaled = kinds[-1:] == [StandardScaler]
    before = kinds[:-1] if scaled else kinds
    standardise = scaled and _standardise(found[-1].estimator)
    if before == []:
        return Numeric(impute=None, standardise=standardise)
    if before == [SimpleImputer]:
        return Numeric(standardise=standardise)
    if before == [OneHotEncoder] and standardise is False:
        return _one_hot(found[0], place)
    if before == [OrdinalEncoder]:
        return _ordinal(found[0], place, standardise=standardise)
    raise found[-1].refusal(f"after {' and '.join(kind.__name__ for kind in kinds[:-1])}; {_KNOWN}")


def does_nothing(estimator: Any) -> bool:
    """Return whether a step does nothing; a fitted "passthrough" is a function that is None."""
    if estimator is None or (isinstance(estimator, str) and estimator == "passthrough"):
        return True
    return type(estimator) is FunctionTransformer and estimator.func is None


def check_step(step: Step) -> None:
    """Refuse a transformer that no column of a model is, as far as its parameters say.

    Raises
    ------
    InvalidData
        It is unknown, not fitted, or has settings that a model has not.
    """
    if step.name in REFUSED or type(step.estimator) not in PARAMETERS:
        raise step.refusal(REFUSED.get(step.name, _KNOWN))
    step.check_fitted()
    check_parameters(step.estimator, step.where)
    check_requests(step.estimator, step.where)


def _one_hot(step: Step, place: int) -> OneHot:
    gaps = sum(is_missing(category) for category in step.estimator.categories_[place])
    if gaps > 1:
        raise step.refusal(
            "the column has missing values of two kinds, None and NaN, which are two categories "
            f"here and one in a model; write the same in place of both, or {FROZEN}"
        )
    return OneHot(
        "error" if step.estimator.handle_unknown == "error" else "ignore", _drop(step, place)
    )


def _drop(step: Step, place: int) -> Drop:
    """Return what an encoder leaves out of a column."""
    encoder = step.estimator
    if encoder.drop is None or isinstance(encoder.drop, str):
        return cast("Drop", encoder.drop)
    left_out = encoder.drop_idx_[place]
    if left_out is None:
        return None
    dropped = encoder.categories_[place].tolist()[int(left_out)]
    if is_missing(dropped):
        raise step.refusal(
            "drop names missing values, which a model cannot leave out; name another category, or "
            f"{FROZEN}"
        )
    return (dropped,)


def _standardise(scaler: StandardScaler) -> Standardise:
    """Return what of the mean and the deviation a scaler brings to 0 and 1."""
    if scaler.with_mean and scaler.with_std:
        return True
    return "centre" if scaler.with_mean else "scale" if scaler.with_std else False


def _ordinal(step: Step, place: int, *, standardise: Standardise) -> Ordinal:
    encoder = step.estimator
    if any(is_missing(category) for category in encoder.categories_[place]):
        raise step.refusal(
            f"encoded_missing_value={encoder.encoded_missing_value!r} is a number for missing "
            f"values, and a model has none; write a category in their place, or {FROZEN}"
        )
    if isinstance(encoder.categories, str):
        return Ordinal(standardise=standardise)
    return Ordinal(tuple(encoder.categories_[place].tolist()), standardise=standardise)
