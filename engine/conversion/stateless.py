"""Transformers that learn nothing from rows, as what they compute from the columns they are given.

Each is a function from a fitted step and the expressions of its columns to those of its features.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType

import numpy as np
from sklearn.impute import MissingIndicator, SimpleImputer
from sklearn.kernel_approximation import RBFSampler
from sklearn.preprocessing import (
    Binarizer,
    FunctionTransformer,
    Normalizer,
    PolynomialFeatures,
    SplineTransformer,
)

from lethe.engine.conversion.parameters import WAYS_OUT, function_name
from lethe.engine.conversion.steps import Step
from lethe.engine.preprocess.input.derived import (
    Above,
    Applied,
    Expression,
    Filled,
    Missing,
    Normalised,
    Product,
    Scaled,
    Spline,
    Sum,
    splines,
)

Computing = Callable[[Step, Sequence[Expression]], Sequence[Expression]]


def _products(step: Step, of: Sequence[Expression]) -> Sequence[Expression]:
    features: list[Expression] = []
    for powers in step.estimator.powers_.tolist():
        factors = [(one, power) for one, power in zip(of, powers, strict=True) if power]
        alone = len(factors) == 1 and factors[0][1] == 1
        features.append(factors[0][0] if alone else Product(factors or [(of[0], 0)]))
    return features


def _applied(step: Step, of: Sequence[Expression]) -> Sequence[Expression]:
    name = function_name(step.estimator.func)
    if name is None:
        raise step.refusal(f"func has no name that a model knows; {WAYS_OUT}")
    return [Applied(one, name) for one in of]


def _filled(step: Step, of: Sequence[Expression]) -> Sequence[Expression]:
    values = np.asarray(step.estimator.statistics_, dtype=object).tolist()
    features: list[Expression] = [Filled(one, value) for one, value in zip(of, values, strict=True)]
    return [*features, *indicators(step, of)]


def indicators(step: Step, of: Sequence[Expression]) -> Sequence[Expression]:
    """Return what ``add_indicator=True`` adds: 0 and 1 for each column that had gaps."""
    found = step.estimator.indicator_
    return [] if found is None else [Missing(of[place]) for place in found.features_]


def _fourier(step: Step, of: Sequence[Expression]) -> Sequence[Expression]:
    """Return cosines of random sums; the draw is the estimator's, and no row has a part in it."""
    sampler = step.estimator
    by = float((2.0 / sampler.n_components) ** 0.5)
    return [
        Scaled(Applied(Sum(tuple(map(Scaled, of, weights)), plus), "cos"), by)
        for weights, plus in zip(
            sampler.random_weights_.T.tolist(), sampler.random_offset_.tolist(), strict=True
        )
    ]


def _splines(step: Step, of: Sequence[Expression]) -> Sequence[Expression]:
    basis, degree = step.estimator, int(step.estimator.degree)
    if basis.extrapolation == "linear" and degree == 1 and len(of) > 1:
        raise step.refusal(
            "with degree=1, scikit-learn takes extrapolation='linear' from wrong knots in the "
            f"columns after the first; fit it with 'continue', which is meant, or {WAYS_OUT}"
        )
    knots = np.asarray(basis.knots, dtype=np.float64)
    width = splines(len(knots), degree, basis.extrapolation) - (not basis.include_bias)
    return [
        Spline(one, tuple(of_one), degree, place, basis.extrapolation)
        for one, of_one in zip(of, knots.T.tolist(), strict=True)
        for place in range(width)
    ]


STATELESS: Mapping[type, Computing] = MappingProxyType(
    {
        Binarizer: lambda step, of: [Above(one, step.estimator.threshold) for one in of],
        FunctionTransformer: _applied,
        MissingIndicator: lambda step, of: [Missing(of[i]) for i in step.estimator.features_],
        Normalizer: lambda step, of: [
            Normalised(tuple(of), step.estimator.norm, i) for i in range(len(of))
        ],
        PolynomialFeatures: _products,
        RBFSampler: _fourier,
        SplineTransformer: _splines,
    }
)
"""By class, what computes features and learns nothing."""

_GIVEN: Mapping[type, str] = MappingProxyType({RBFSampler: "gamma", SplineTransformer: "knots"})
"""What text such as "scale" or "uniform" takes from rows; as numbers, it is given."""


def computing(step: Step) -> Computing | None:
    """Return what a step computes, or None if it learns, or is not known."""
    kind = type(step.estimator)
    if kind is SimpleImputer and step.estimator.strategy == "constant":
        return _filled
    named = _GIVEN.get(kind)
    if named is not None and isinstance(getattr(step.estimator, named), str):
        return None
    return STATELESS.get(kind)
