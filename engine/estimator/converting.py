"""The layer of conversions: a model of a fitted estimator of scikit-learn."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Self

from numpy.typing import ArrayLike

from lethe.engine.estimator.changing import ChangingModel
from lethe.engine.preprocess.input.table import TableLike


class ConvertibleModel(ChangingModel):
    """A model that estimators of scikit-learn become."""

    @classmethod
    def from_sklearn(
        cls,
        estimator: Any,
        X: TableLike,
        y: ArrayLike,
        ids: Sequence[str] | None = None,
        sample_weight: ArrayLike | None = None,
        *,
        refit: bool = False,
    ) -> Self:
        """Return the model of a fitted estimator of scikit-learn, refitted on its training rows.

        Parameters
        ----------
        estimator
            Of a `LinearModel`, a fitted ``Ridge``, or ``RidgeClassifier``: that is a ridge
            regression of -1 and 1, with a column a class if there are more than two, and so are the
            model's targets. Of a `LogisticModel`, a fitted ``LogisticRegression`` of two classes
            with an l2 penalty; ridge is 1 / C. With more classes, one in a ``OneVsRestClassifier``.
            Of a `SoftmaxModel`, a ``LogisticRegression`` of more than two. Of a `PoissonModel`, a
            ``PoissonRegressor``: its penalty grows with the weight of the rows, so ridge is alpha
            times the sum of theirs, and stays that when rows are deleted.
            Or a ``Pipeline`` that ends in one of these, whose transformers `engine.preprocess`
            knows: they become part of the model. Of a `LinearModel`, also a
            ``TransformedTargetRegressor`` around a ``Ridge`` or such a Pipeline, or at the end of
            one, by functions of `engine.estimator.targets`.
        X, y, sample_weight
            What it was fitted on.
        ids
            One distinct id a row; by default "0", "1", ...
        refit
            If some step of a Pipeline can be no part of the model, have all of its transformers
            fitted anew at every change (`engine.preprocess.refitted`), instead of refusing it.

        Returns
        -------
        model
            Its `converted_from_` says how far the estimator was from its own optimum.

        Raises
        ------
        InvalidData
            The estimator minimises another objective or is not fitted, or the data are not its.
        """
        from lethe.engine.conversion import from_sklearn  # noqa: PLC0415 (imports scikit-learn)

        return from_sklearn(cls, estimator, X, y, ids, sample_weight, refit=refit)
