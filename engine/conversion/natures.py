"""What becomes of each step of a Pipeline when it becomes a model: nothing is decided silently."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from sklearn.compose import ColumnTransformer
from sklearn.pipeline import FeatureUnion, Pipeline

from lethe.engine.conversion.flow import does_nothing, learns_nothing, places
from lethe.engine.conversion.pipelines import check_step
from lethe.engine.conversion.stateless import computing
from lethe.engine.conversion.steps import Step
from lethe.engine.errors import InvalidData


class Nature(StrEnum):
    """What becomes of a step, by what it has learnt of rows."""

    INSIDE = "inside"
    """Its statistics become part of the model, and forget rows."""
    STATELESS = "stateless"
    """It has learnt nothing of rows."""
    FROZEN = "frozen"
    """It stays as it is: what it has learnt of rows is not deleted."""
    REFUSED = "refused"


_MEANS = {
    Nature.INSIDE: "its statistics forget rows",
    Nature.STATELESS: "it has learnt nothing of rows",
    Nature.FROZEN: "what it has learnt of rows is not deleted",
}

_SHOWN = 5  # columns of a step in a line


@dataclass(frozen=True, slots=True)
class StepNature:
    """What becomes of a step.

    Attributes
    ----------
    path, estimator
        Names of the steps that lead to it, and its class.
    columns
        The columns that it is given; none where it has all of them.
    nature, why
        What becomes of it, and of a refused one why and what to do.
    """

    path: str
    estimator: str
    columns: tuple[str, ...]
    nature: Nature
    why: str

    def __str__(self) -> str:
        more = f" and {len(self.columns) - _SHOWN} more" if len(self.columns) > _SHOWN else ""
        on = f" on {', '.join(self.columns[:_SHOWN])}{more}" if self.columns else ""
        return f"{self.path}: {self.estimator}{on}: {self.nature}; {self.why}"


def natures(estimator: Any, *, freeze: bool = False) -> tuple[StepNature, ...]:
    """Return what becomes of each step of a fitted Pipeline before its last one.

    ``freeze``: those that have learnt of rows stay as they are.
    """
    if type(estimator) is not Pipeline:
        return ()
    return tuple(
        _nature(step, columns, freeze=freeze)
        for name, each in estimator.steps[:-1]
        for step, columns in _leaves(Step(each, (name,)), ())
    )


def _leaves(step: Step, columns: tuple[str, ...]) -> Iterator[tuple[Step, tuple[str, ...]]]:
    """Yield the steps that are made of no others, with the columns that they are given."""
    one = step.estimator
    if type(one) is Pipeline:
        for name, each in one.steps:
            yield from _leaves(step.below(name, each), columns)
    elif type(one) is FeatureUnion:
        for name, each in one.transformer_list:
            yield from _leaves(step.below(name, each), columns)
    elif type(one) is ColumnTransformer and hasattr(one, "transformers_"):
        names = getattr(one, "feature_names_in_", range(one.n_features_in_))
        for name, each, where in one.transformers_:
            given = tuple(str(names[place]) for place in places(where, one))
            if given:
                yield from _leaves(step.below(name, each), given)
    else:
        yield step, columns


def _needs_no_fit(estimator: Any) -> bool:
    """Return whether scikit-learn says of a class of its own that nothing is learnt in a fit."""
    own = type(estimator).__module__.startswith("sklearn.")
    return own and not estimator.__sklearn_tags__().requires_fit


def _nature(step: Step, columns: tuple[str, ...], *, freeze: bool) -> StepNature:
    shown = step.estimator if isinstance(step.estimator, str) else step.name
    nature, why = Nature.STATELESS, ""
    nothing = step.estimator == "drop" or does_nothing(step.estimator)
    if not (nothing or learns_nothing(step.estimator)):
        if computing(step) is None and not (freeze and _needs_no_fit(step.estimator)):
            nature = Nature.FROZEN if freeze else Nature.INSIDE
        try:
            if not freeze:
                check_step(step)
        except InvalidData as error:
            nature, why = Nature.REFUSED, str(error).removeprefix(f"{step.where}{step.name}: ")
    return StepNature(" > ".join(step.path), shown, columns, nature, why or _MEANS[nature])
