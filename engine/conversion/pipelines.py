"""scikit-learn's fitted pipelines as preprocessing inside a model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, replace
from itertools import count
from types import MappingProxyType
from typing import Any, cast

import numpy as np
from sklearn.impute import SimpleImputer
from sklearn.pipeline import Pipeline
from sklearn.preprocessing import (
    MaxAbsScaler,
    MinMaxScaler,
    OneHotEncoder,
    OrdinalEncoder,
    RobustScaler,
)

from lethe.engine.conversion.comparing import check_same
from lethe.engine.conversion.flow import SCALERS, Track, does_nothing, flat, followed
from lethe.engine.conversion.parameters import (
    PARAMETERS,
    WAYS_OUT,
    check_parameters,
    check_requests,
)
from lethe.engine.conversion.steps import Step
from lethe.engine.errors import InvalidData
from lethe.engine.fit.objective import Array
from lethe.engine.preprocess.input.by_name import given_columns
from lethe.engine.preprocess.input.columns import (
    Column,
    Drop,
    Dropped,
    Impute,
    Name,
    Numeric,
    OneHot,
    Ordinal,
    Standardise,
    Unknown,
    by_order,
)
from lethe.engine.preprocess.input.derived import Same
from lethe.engine.preprocess.input.frozen import transformed
from lethe.engine.preprocess.input.values import is_missing
from lethe.engine.preprocess.library import PreparedModel
from lethe.engine.preprocess.refitted import Refitted, RefittedRows

_KNOWN = (
    "a model has SimpleImputer() and a scaler (StandardScaler, MinMaxScaler, MaxAbsScaler, "
    "RobustScaler), alone or together; OneHotEncoder() and OrdinalEncoder(), "
    "alone or before StandardScaler(); SimpleImputer(strategy='most_frequent') before "
    "OneHotEncoder(); and before these what learns nothing, such as PolynomialFeatures. Fit one "
    f"of these, {WAYS_OUT}"
)

_NOT_COMPUTED = (
    "it learns nothing, but a model does not compute what it does; as a step that is kept it holds "
    f"nothing of deleted rows: {WAYS_OUT}"
)
_WORDS = (
    "it learns its words from rows; fit HashingVectorizer, which learns none and can be kept, or "
    f"{WAYS_OUT}"
)
_GIVEN_ROWS = "it keeps rows that it was fitted to, as they are, which no deletion would reach"

REFUSED: Mapping[str, str] = MappingProxyType(
    {
        "AdditiveChi2Sampler": _NOT_COMPUTED,
        "CountVectorizer": _WORDS,
        "FeatureHasher": _NOT_COMPUTED,
        "HashingVectorizer": _NOT_COMPUTED,
        "TfidfVectorizer": _WORDS,
        "KBinsDiscretizer": "it learns its edges from rows; fit a Binarizer for each edge that is "
        f"given, or {WAYS_OUT}",
        "KNNImputer": f"{_GIVEN_ROWS}; fit SimpleImputer",
        "Nystroem": f"{_GIVEN_ROWS}; fit RBFSampler",
        "TargetEncoder": "a Pipeline encodes its training rows by cross-fitting, which is another "
        "estimator; preprocess={...: TargetEncode()} encodes them as transform does; or "
        f"{WAYS_OUT}",
    }
)
"""Why transformers are refused, where there is more to say than that a model has no such."""

_CENTRES: Mapping[Standardise, Impute] = MappingProxyType(
    {True: "mean", "centre": "mean", "robust": "median"}
)
"""What a scaler makes 0."""

_LONGEST_KEY = 80
"""Characters of the name of a column that is computed, before a number that makes it unique."""


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
        Columns of the table that it drops.
    steps
        The other steps in turn, without those that do nothing.
    refitted
        The other steps, if they are to be fitted anew at every change.
    """

    final: Step
    columns: dict[Name, Column] | None = None
    dropped: tuple[Name, ...] = ()
    steps: tuple[Step, ...] = ()
    refitted: Refitted | None = None

    @property
    def preprocess(self) -> dict[Name, Column | Dropped] | Refitted | None:
        """The same as a library model takes it, whose tables may have what is dropped."""
        if self.columns is None:
            return self.refitted
        return {**self.columns, **dict.fromkeys(self.dropped, Dropped())}

    def check_features(self, prepared: PreparedModel, X: Any) -> tuple[Any, Array]:
        """Compare the features that the pipeline makes of its rows with the model's; return both.

        They differ if a transformer has learnt from other rows, or from weighted ones: what it was
        given beside its parameters does not show otherwise. Cost O(n p).

        Raises
        ------
        InvalidData
            They differ.
        """
        theirs = self._features(X)
        kept = ~prepared.left_out
        made = prepared.features(X)
        names = np.array(prepared.feature_names)[kept].tolist()
        check_same(theirs, made[:, kept], names, prepared.offsets[kept])
        return theirs, made

    def check_refitted(self, rows: RefittedRows, X: Any) -> None:
        """Compare the features that the steps make of their rows with those of a fit to these.

        Raises
        ------
        InvalidData
            They differ: the steps were fitted to other rows, or with weights.
        """
        ours = np.asarray(transformed(rows.transformer, deepcopy(X)))
        check_same(self._features(X), ours, rows.names(ours.shape[1]), np.zeros(ours.shape[1]))

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


def read_to_refit(whole: Step) -> PipelineRead:
    """Return a fitted pipeline's final step, and its others as steps to be fitted anew.

    Raises
    ------
    InvalidData
        It ends in no estimator, or is not fitted.
    """
    *before, final = flat(whole)
    for step in before:
        if not does_nothing(step.estimator):
            step.check_fitted()
    steps = tuple(step for step in before if not does_nothing(step.estimator))
    named = [("-".join(step.path), step.estimator) for step in before]
    return PipelineRead(final, steps=steps, refitted=Refitted(Pipeline(named)))


def read_pipeline(whole: Step) -> PipelineRead:
    """Return what a fitted pipeline does to its columns, and its final step.

    Each feature is followed from the table's columns on: through what computes it row by row
    (`engine.conversion.stateless`), and then through what learns from it.

    Raises
    ------
    InvalidData
        A transformer is not one that a model has, or has settings that a model has not.
    """
    *before, final = flat(whole)
    if does_nothing(final.estimator):
        raise whole.refusal("it ends in no estimator; give one that ends in Ridge, for example")
    steps = [step for step in before if not does_nothing(step.estimator)]
    if not steps:
        return PipelineRead(final)
    for step in steps:
        step.check_fitted()
    names = _all_names([*before, final])
    tracks = [Track(Same(name)) for name in names]
    for step in steps:
        tracks = followed(step, tracks)
    columns = dict(zip(_keys(tracks), map(_column_of, tracks), strict=True))
    for key, track in zip(columns, tracks, strict=True):
        if track.of != Same(key):
            columns[key] = replace(columns[key], of=track.of)
    read = given_columns(columns)
    dropped = tuple(name for name in names if name not in read)
    return PipelineRead(final, columns, dropped, tuple(steps))


def _all_names(steps: Sequence[Step]) -> Sequence[Name]:
    """Return the names of the columns that the first step was fitted on, or their places."""
    for step in steps:
        names = getattr(step.estimator, "feature_names_in_", None)
        if names is not None:
            return [str(name) for name in names]
    sizes = (getattr(step.estimator, "n_features_in_", None) for step in steps)
    return range(next(size for size in sizes if size is not None))


def _keys(tracks: Sequence[Track]) -> list[Name]:
    """Return a name for each column of a model, each once: the table's own, or what is computed."""
    taken: set[Name] = set()
    keys: dict[int, Name] = {}
    for i, track in enumerate(tracks):
        if isinstance(track.of, Same) and track.of.name not in taken:
            keys[i] = track.of.name
            taken.add(track.of.name)
    for i, track in enumerate(tracks):
        if i not in keys:
            text = str(track.of)
            text = text if len(text) <= _LONGEST_KEY else f"{text[:_LONGEST_KEY]}..."
            known = {str(name) for name in taken}
            numbers = (text if n == 1 else f"{text} ({n})" for n in count(1))
            keys[i] = next(key for key in numbers if key not in known)
            taken.add(keys[i])
    return [keys[i] for i in range(len(tracks))]


def _column_of(track: Track) -> Column:
    return _column(track.learning, track.place, track.column)


def _column(steps: Sequence[Step], place: int, name: Name) -> Column:
    """Return the column that transformers in turn make of one; ``place`` among their columns."""
    found = [replace(step, column=name) for step in steps]
    for step in found:
        check_step(step)
    kinds = [type(step.estimator) for step in found]
    scaled = bool(kinds) and kinds[-1] in SCALERS
    before = kinds[:-1] if scaled else kinds
    standardise = scaled and _standardise(found[-1].estimator)
    if before == []:
        return Numeric(impute=None, standardise=standardise)
    if before == [SimpleImputer]:
        return Numeric(found[0].estimator.strategy, standardise)
    if len(kinds) > 1 and kinds[0] in SCALERS and kinds[1:] == [SimpleImputer]:
        return _scaler_first(*found)
    if before == [OneHotEncoder] and not by_order(standardise):
        return _one_hot(found[0], place, standardise=standardise)
    if before == [SimpleImputer, OneHotEncoder] and not by_order(standardise):
        return _imputed(found[0], found[1], place, standardise=standardise)
    if before == [OrdinalEncoder] and not by_order(standardise):
        return _ordinal(found[0], place, standardise=standardise)
    raise found[-1].refusal(f"after {' and '.join(kind.__name__ for kind in kinds[:-1])}; {_KNOWN}")


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


def _one_hot(step: Step, place: int, *, standardise: Standardise) -> OneHot:
    gaps = sum(is_missing(category) for category in step.estimator.categories_[place])
    if gaps > 1:
        raise step.refusal(
            "the column has missing values of two kinds, None and NaN, which are two categories "
            f"here and one in a model; write the same in place of both, or {WAYS_OUT}"
        )
    encoder = step.estimator
    least, most = encoder.min_frequency, encoder.max_categories
    unknown: Unknown = encoder.handle_unknown
    if least is None and most is None and unknown == "infrequent_if_exist":
        unknown = "ignore"
    try:
        return OneHot(
            unknown,
            _drop(step, place),
            standardise,
            None if least is None else np.asarray(least).item(),
            None if most is None else int(most),
            None if isinstance(encoder.categories, str) else _named(encoder, place),
        )
    except InvalidData as error:
        raise step.refusal(f"{error}, or {WAYS_OUT}") from None


def _imputed(step: Step, encoding: Step, place: int, *, standardise: Standardise) -> OneHot:
    """Return a column of categories whose missing values are filled in before it is encoded."""
    if step.estimator.strategy != "most_frequent":
        raise step.refusal(
            f"strategy={step.estimator.strategy!r} is of numbers, which OneHotEncoder takes for "
            f"categories; {WAYS_OUT}"
        )
    if any(map(is_missing, encoding.estimator.categories_[place])):
        raise step.refusal(
            "it leaves None as it is, which is a category then and missing in a model; write NaN "
            f"in its place, or {WAYS_OUT}"
        )
    try:
        return replace(_one_hot(encoding, place, standardise=standardise), impute="most_frequent")
    except InvalidData as error:
        raise step.refusal(f"{error}; or {WAYS_OUT}") from None


def _scaler_first(scaling: Step, step: Step) -> Numeric:
    """Return a column of numbers that is scaled, and whose missing values are then filled in."""
    standardise, imputer = _standardise(scaling.estimator), step.estimator
    strategy = imputer.strategy
    if strategy == "constant":
        number = float(imputer.statistics_[0])
        if number != 0 or standardise not in _CENTRES:
            raise step.refusal(
                f"fill_value={number:g} after {scaling.name}: of scaled numbers, a model has the "
                "0 of StandardScaler() and RobustScaler() alone; fill in a number before it is "
                f"scaled, or {WAYS_OUT}"
            )
        strategy = _CENTRES[standardise]
    return Numeric(strategy, standardise, scaler_first=True)


def _drop(step: Step, place: int) -> Drop:
    """Return what an encoder leaves out of a column."""
    encoder = step.estimator
    if encoder.drop is None or isinstance(encoder.drop, str):
        return cast("Drop", encoder.drop)
    dropped = np.asarray(encoder.drop, dtype=object)[place]
    if is_missing(dropped):
        raise step.refusal(
            "drop names missing values, which a model cannot leave out; name another category, or "
            f"{WAYS_OUT}"
        )
    return (next(one for one in encoder.categories_[place].tolist() if one == dropped),)


def _standardise(scaler: Any) -> Standardise:
    """Return what a scaler brings to 0 and 1, or to other numbers."""
    if isinstance(scaler, MinMaxScaler):
        low, high = scaler.feature_range
        return float(low), float(high)
    if isinstance(scaler, MaxAbsScaler | RobustScaler):
        return "max-abs" if isinstance(scaler, MaxAbsScaler) else "robust"
    if scaler.with_mean and scaler.with_std:
        return True
    return "centre" if scaler.with_mean else "scale" if scaler.with_std else False


def _ordinal(step: Step, place: int, *, standardise: Standardise) -> Ordinal:
    encoder = step.estimator
    if any(is_missing(category) for category in encoder.categories_[place]):
        raise step.refusal(
            f"encoded_missing_value={encoder.encoded_missing_value!r} is a number for missing "
            f"values, and a model has none; write a category in their place, or {WAYS_OUT}"
        )
    named = None if isinstance(encoder.categories, str) else _named(encoder, place)
    unknown = encoder.unknown_value if encoder.handle_unknown == "use_encoded_value" else None
    try:
        return Ordinal(named, standardise, unknown)
    except InvalidData as error:
        raise step.refusal(f"{error}; {WAYS_OUT}") from None


def _named(encoder: OneHotEncoder | OrdinalEncoder, place: int) -> tuple[Any, ...]:
    return tuple(None if is_missing(one) else one for one in encoder.categories_[place].tolist())
