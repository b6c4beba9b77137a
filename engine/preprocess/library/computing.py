"""scikit-learn's own transformers for columns that are computed. Imports scikit-learn."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from sklearn.compose import ColumnTransformer
from sklearn.decomposition import SparseCoder
from sklearn.impute import MissingIndicator, SimpleImputer
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import (
    Binarizer,
    FunctionTransformer,
    Normalizer,
    PolynomialFeatures,
    SplineTransformer,
    StandardScaler,
)

from lethe.engine.preprocess.input.derived import (
    FUNCTIONS,
    Above,
    Applied,
    Expression,
    Filled,
    Missing,
    Name,
    Normalised,
    Product,
    Same,
    Scaled,
    Spline,
    Sum,
)
from lethe.engine.preprocess.input.sources import sources


def computing(of: Expression) -> Any:
    """Return a transformer of an expression's columns, in the order of `sources`, to its values.

    It is not fitted. Its first step makes numbers of objects, with NaN in place of None.
    """
    return make_pipeline(StandardScaler(with_mean=False, with_std=False), _made(of, sources(of)))


def _made(of: Expression, columns: Sequence[Name]) -> Any:
    """Return a transformer of these columns to one of the values of an expression."""
    made: Any
    match of:
        case Same(name):
            made = _only(columns.index(name))
        case Product(factors):
            powers = [power for _, power in factors]
            made = _product([one for one, _ in factors], powers, columns)
        case Normalised(to, norm, place):
            made = make_pipeline(_beside(to, columns), Normalizer(norm), _only(place))
        case Sum(to, plus):
            terms = [*to, Product({columns[0]: 0})] if plus else [*to]
            made = make_pipeline(_beside(terms, columns), _adding(len(to), plus))
        case Scaled(to, by):
            everything = [*range(len(columns))]
            made = ColumnTransformer(
                [("scaled", _made(to, columns), everything)], transformer_weights={"scaled": by}
            )
        case _:
            made = make_pipeline(_made(of.to, columns), _step(of))
    return made


def _step(of: Applied | Filled | Missing | Above | Spline) -> Any:
    match of:
        case Applied():
            return FunctionTransformer(FUNCTIONS[of.function])
        case Filled():
            return SimpleImputer(strategy="constant", fill_value=of.value, keep_empty_features=True)
        case Missing():
            return MissingIndicator(features="all")
        case Above():
            return Binarizer(threshold=of.threshold)
        case Spline(_, knots, degree, place, extrapolation):
            basis = SplineTransformer(
                degree=degree, knots=np.array(knots)[:, None], extrapolation=extrapolation
            )
            return make_pipeline(basis, _only(place))


def _adding(summands: int, plus: float) -> SparseCoder:
    """Return what adds up columns, the last of which is 1 for ``plus``.

    Soft thresholds of 0 leave the products with the dictionary as they are: of scikit-learn's
    transformers, this one multiplies by a matrix that is given and not learnt.
    """
    weights = [1.0] * summands + ([plus] if plus else [])
    return SparseCoder(np.array([weights]), transform_algorithm="threshold", transform_alpha=0.0)


def _product(factors: Sequence[Expression], powers: Sequence[int], columns: Sequence[Name]) -> Any:
    degree = sum(powers)
    polynomial = PolynomialFeatures((degree, degree), include_bias=degree == 0)
    made = polynomial.fit(np.ones((1, len(factors)))).powers_
    place = int(np.flatnonzero((made == powers).all(axis=1))[0])
    return make_pipeline(_beside(factors, columns), polynomial, _only(place))


def _beside(parts: Sequence[Expression], columns: Sequence[Name]) -> Any:
    """Return a transformer of these columns to the values of several expressions."""
    if list(parts) == [Same(name) for name in columns]:
        return "passthrough"
    everything = [*range(len(columns))]
    return ColumnTransformer(
        [(f"part{i}", _made(one, columns), everything) for i, one in enumerate(parts)]
    )


def _only(place: int) -> ColumnTransformer:
    """Return what keeps one column."""
    return ColumnTransformer([("only", "passthrough", [place])])
