"""Each feature of a fitted pipeline: what it is computed from, and which steps learn from it.

Pipelines, ColumnTransformers and FeatureUnions are walked through as scikit-learn would pass rows
through them; in place of the columns of rows, their tracks.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from sklearn.compose import ColumnTransformer
from sklearn.impute import MissingIndicator, SimpleImputer
from sklearn.pipeline import FeatureUnion, Pipeline
from sklearn.preprocessing import (
    FunctionTransformer,
    MaxAbsScaler,
    MinMaxScaler,
    RobustScaler,
    StandardScaler,
)

from lethe.engine.conversion.parameters import (
    PARAMETERS,
    WAYS_OUT,
    check_parameters,
    check_requests,
)
from lethe.engine.conversion.stateless import computing, indicators
from lethe.engine.conversion.steps import Step
from lethe.engine.errors import InvalidData
from lethe.engine.preprocess.input.derived import Expression, Name, Same, Scaled

SCALERS = (StandardScaler, MinMaxScaler, MaxAbsScaler, RobustScaler)
"""They learn from known values alone, and leave missing ones as they are."""


@dataclass(frozen=True, slots=True)
class Track:
    """A column on its way through a pipeline.

    Attributes
    ----------
    of
        What its values are computed from, before any step that learns.
    learning
        The steps that learn from it, in turn.
    place
        Its place among the columns of the first of these.
    """

    of: Expression
    learning: tuple[Step, ...] = ()
    place: int = 0

    @property
    def column(self) -> Name:
        """What a message calls it."""
        return self.of.name if isinstance(self.of, Same) else str(self.of)


def does_nothing(estimator: Any) -> bool:
    """Return whether a step does nothing; a fitted "passthrough" is a function that is None."""
    if estimator is None or (isinstance(estimator, str) and estimator == "passthrough"):
        return True
    return type(estimator) is FunctionTransformer and estimator.func is None


def learns_nothing(estimator: Any) -> bool:
    """Return whether a scaler has neither half: it makes NaN of None, and no more."""
    scaler = type(estimator) is StandardScaler
    return scaler and not (estimator.with_mean or estimator.with_std)


def flat(pipeline: Step) -> list[Step]:
    """Return the steps of a pipeline, with those of pipelines in it in their place."""
    check_parameters(pipeline.estimator, pipeline.where)
    if not pipeline.estimator.steps:
        raise pipeline.refusal("it has no step; give one that ends in Ridge, for example")
    steps: list[Step] = []
    for name, estimator in pipeline.estimator.steps:
        step = pipeline.below(name, estimator)
        steps += flat(step) if type(estimator) is Pipeline else [step]
    return steps


def followed(step: Step, tracks: Sequence[Track]) -> list[Track]:
    """Return the tracks after a step.

    Raises
    ------
    InvalidData
        It computes from what another step has learnt, or takes columns that are not known one by
        one.
    """
    estimator = step.estimator
    if isinstance(estimator, str) and estimator == "drop":
        return []
    if does_nothing(estimator) or learns_nothing(estimator):
        return list(tracks)
    if type(estimator) is not Pipeline:
        if type(estimator) in (ColumnTransformer, FeatureUnion):
            return _side_by_side(step, tracks)
        learns = computing(step) is None or _fills_scaled(step, tracks)
        return _learnt(step, tracks) if learns else _computed(step, tracks)
    for inner in flat(step):
        tracks = followed(inner, tracks)
    return list(tracks)


def _fills_scaled(step: Step, tracks: Sequence[Track]) -> bool:
    """Return whether a step fills in what is missing of columns that steps have learnt from."""
    return type(step.estimator) is SimpleImputer and all(track.learning for track in tracks)


def _learnt(step: Step, tracks: Sequence[Track]) -> list[Track]:
    """Return the tracks after a step that learns, or is not known; that is judged at the end."""
    found = [
        replace(
            track,
            learning=(*track.learning, step),
            place=track.place if track.learning else place,
        )
        for place, track in enumerate(tracks)
    ]
    if type(step.estimator) is SimpleImputer and step.estimator.add_indicator:
        step.check_fitted()
        found += [Track(one) for one in indicators(step, _unlearnt(step, tracks, SCALERS))]
    return found


def _computed(step: Step, tracks: Sequence[Track]) -> list[Track]:
    compute = computing(step)
    if compute is None or not tracks:
        return []
    step = replace(step, column=tracks[0].column)
    of = _unlearnt(step, tracks, SCALERS if type(step.estimator) is MissingIndicator else ())
    step.check_fitted()
    check_parameters(step.estimator, step.where)
    check_requests(step.estimator, step.where)
    _check_width(step, tracks)
    try:
        return [Track(one) for one in compute(step, of)]
    except InvalidData as error:
        raise step.refusal(f"{error}; {WAYS_OUT}") from None


def _unlearnt(step: Step, tracks: Sequence[Track], but: tuple[type, ...] = ()) -> list[Expression]:
    """Return what columns are computed from; refuse those that a step before has learnt from.

    ``but``: after steps of these classes, what is computed is the same as before them.
    """
    for track in tracks:
        learnt = [one for one in track.learning if type(one.estimator) not in but]
        if learnt:
            before = learnt[-1]
            raise replace(step, column=track.column).refusal(
                f"it comes after {before.name}, which learns from rows, and a model computes "
                f"columns before that; put it before {before.name}, or {WAYS_OUT}"
            )
    return [track.of for track in tracks]


def _side_by_side(step: Step, tracks: Sequence[Track]) -> list[Track]:
    """Return the tracks after several transformers, one beside the other."""
    whole = step.estimator
    check_parameters(whole, step.where)
    step.check_fitted()
    _check_width(step, tracks)
    found: list[Track] = []
    listed: list[tuple[str, Any, Sequence[int]]]
    if type(whole) is FeatureUnion:  # each takes all; what is not scikit-learn's may not say so
        listed = [(label, one, range(len(tracks))) for label, one in whole.transformer_list]
    else:
        listed = [(label, one, places(where, whole)) for label, one, where in whole.transformers_]
    for label, estimator, where in listed:
        mine = [tracks[place] for place in where]
        if not mine:
            continue
        made = followed(step.below(label, estimator), mine)
        weight = (whole.transformer_weights or {}).get(label)
        found += made if weight is None else [_weighted(step, one, weight) for one in made]
    return found


def _weighted(step: Step, track: Track, weight: Any) -> Track:
    """Return a track times a weight; a mean that is filled in is so, too."""
    kinds = {type(learning.estimator) for learning in track.learning}
    if weight == 1 or not kinds <= PARAMETERS.keys():  # what is not known is refused by name
        return track
    for learning in track.learning:
        if type(learning.estimator) is not SimpleImputer:
            raise replace(step, column=track.column).refusal(
                f"transformer_weights={step.estimator.transformer_weights!r} multiplies what "
                f"{learning.name} makes, which changes its penalty; {WAYS_OUT}"
            )
    return replace(track, of=Scaled(track.of, weight))


def _check_width(step: Step, tracks: Sequence[Track]) -> None:
    """Refuse a step whose columns are not the tracks: those of an encoder are more."""
    width = getattr(step.estimator, "n_features_in_", len(tracks))
    if width != len(tracks):
        before = next((track.learning[-1].name for track in tracks if track.learning), "others")
        raise replace(step, column=tracks[0].column if tracks else None).refusal(
            f"it takes {width} columns that {before} made; put it before, or {WAYS_OUT}"
        )


def places(where: Any, transformer: Any) -> list[int]:
    """Return the places of a transformer's columns, however they are named."""
    p = int(transformer.n_features_in_)
    known = [str(name) for name in getattr(transformer, "feature_names_in_", ())]

    def place(one: Any) -> int:
        return known.index(one) if isinstance(one, str) else int(one) % p  # from the end below 0

    if isinstance(where, slice):
        ends = where.start, where.stop
        if not any(isinstance(end, str) for end in ends):
            return [*range(p)[where]]
        first, last = (None if end is None else place(end) for end in ends)
        return [*range(p)[first : None if last is None else last + 1 : where.step]]
    if isinstance(where, str | int | np.integer):
        return [place(where)]
    listed = list(where)
    if listed and all(isinstance(one, bool | np.bool_) for one in listed):
        return np.flatnonzero(listed).tolist()
    return [place(one) for one in listed]
