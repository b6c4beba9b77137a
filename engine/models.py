"""The library alone, no servers: fit a model, delete rows, keep the error known.

model = LinearModel(ridge=1.0, fit_intercept=True).fit(X, y, ids=ids)
model.delete(["u17", "u42"], method="pru")
model.theta, model.intercept, model.error

Both models are scikit-learn estimators: they have its methods, can be cloned, cross-validated and
put into a Pipeline. `engine.estimator` has the layers that they are made of, and
`engine.conversion` goes from scikit-learn's estimators to them and back.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike

from lethe.engine.errors import InvalidData
from lethe.engine.estimator.classifying import ClassifyingModel
from lethe.engine.estimator.converting import ConvertibleModel
from lethe.engine.estimator.diagnosing import DiagnosableModel
from lethe.engine.estimator.targets import check_function, taken_back
from lethe.engine.exact.rounding import ROUNDED_FEATURES
from lethe.engine.fit.class_weights import ClassWeight
from lethe.engine.fit.classes import probabilities
from lethe.engine.fit.objective import Array, Kind, Objective, Rows, check_finite
from lethe.engine.fitted import Fitted
from lethe.engine.fitted_balanced import BalancedLinear
from lethe.engine.fitted_linear import FittedLinear
from lethe.engine.inference import Summary, summarise
from lethe.engine.preprocess.input.columns import GivenColumns, keeps_order
from lethe.engine.preprocess.input.frozen import FrozenTransformer
from lethe.engine.preprocess.input.settings import Settings
from lethe.engine.preprocess.input.table import TableLike
from lethe.engine.preprocess.library import PreparedModel
from lethe.engine.preprocess.library.rounded import RoundedPipeline
from lethe.engine.preprocess.library.state import GivenRows
from lethe.engine.preprocess.refitted import Refitted
from lethe.engine.preprocess.rounded.raw import RAW_COLUMN, RawColumns
from lethe.engine.preprocess.transformation.layout import lay_out
from lethe.engine.refresh.policy import Limits

if TYPE_CHECKING:
    from sklearn.compose import TransformedTargetRegressor
    from sklearn.linear_model import LogisticRegression, Ridge
    from sklearn.multiclass import OneVsRestClassifier
    from sklearn.pipeline import Pipeline


class LinearModel(ConvertibleModel, DiagnosableModel):
    """Ridge regression that can forget.

    Equivalent to ``sklearn.linear_model.Ridge(alpha=ridge, fit_intercept=...)`` refitted on the
    remaining rows after every deletion. Deletion by ``exact`` is exact; by ``pru`` and
    ``influence`` the distance to exact is known.

    Parameters
    ----------
    ridge
        Strength of the penalty, ridge / 2 |theta|^2; above 0.
    fit_intercept
        Whether to append a constant column.
    penalise_intercept
        Whether the penalty covers it.
    error_budget
        Relative error above which `refresh` has something to do.
    limits
        Of the refreshes (`engine.refresh.policy.Limits`).
    seed
        Draws the sample of rows that errors are estimated from.
    preprocess
        What is done to each column of a table, by name (`engine.preprocess.input.columns`): its
        statistics forget rows, too, and the model is that of a ``Pipeline`` refitted on the
        remaining rows. Or a fitted transformer, which stays as it is (`preprocess_frozen`), or
        ``Refitted(transformer)``, which is fitted anew at every change.
    class_weight
        A weight for each label, 1 for those that are not named, or ``balanced``: n / (C n_c), which
        follow the live rows. It multiplies the weights of rows. Labels of a linear model are its
        targets -1 and 1, or with several targets the places of those that are 1. With balanced
        weights every change is a refit, within the change, whatever its ``method``.
    rounded_features
        Number of coefficients, the intercept among them, up to which every version is correctly
        rounded (docs/exact.md); with ``preprocess``, half as many columns: numbers, categories, and
        one for the missing numbers of a column. With more, rounding adds up, and the error's bound
        counts it.
    target
        The function of the target that is learnt, by NumPy's name (`engine.estimator.targets`):
        with ``"log1p"`` the model is a ``TransformedTargetRegressor`` of it. Targets are given, and
        predictions returned, in their own units; `theta`, its errors, `summary` and Cook's
        distances are of the function.
    """

    kind = Kind.LINEAR
    estimator_type = "regressor"

    def __init__(
        self,
        ridge: float = 1.0,
        *,
        fit_intercept: bool = True,
        penalise_intercept: bool = False,
        error_budget: float = 0.01,
        limits: Limits | None = None,
        seed: int = 0,
        preprocess: GivenColumns | FrozenTransformer | Refitted | None = None,
        class_weight: ClassWeight | None = None,
        rounded_features: int = ROUNDED_FEATURES,
        target: str | None = None,
    ) -> None:
        super().__init__(
            ridge,
            fit_intercept=fit_intercept,
            penalise_intercept=penalise_intercept,
            error_budget=error_budget,
            limits=limits,
            seed=seed,
            preprocess=preprocess,
            class_weight=class_weight,
        )
        self.rounded_features = rounded_features
        self.target = target

    def _check_parameters(self) -> None:
        super()._check_parameters()
        check_function(self.target)
        if self.target is not None and self.class_weight is not None:
            raise InvalidData(
                "class_weight is of targets -1 and 1, and target of numbers; leave out one of them"
            )

    def _fitted_to(
        self,
        penalty: Array,
        names: tuple[str, ...],
        rows: Rows,
        classes: tuple[str, ...],
        columns: tuple[str, ...] | None,
    ) -> Fitted:
        if len(penalty) > self.rounded_features:
            return super()._fitted_to(penalty, names, rows, classes, columns)
        state = BalancedLinear if self.class_weight == "balanced" else FittedLinear
        return state.of_rows(
            Objective(Kind.LINEAR, penalty),
            names,
            rows,
            intercept=self.fit_intercept,
            ridge=float(self.ridge),
            columns=columns,
        )

    def _prepared_to(self, settings: Settings, given: GivenRows) -> PreparedModel:
        layout = lay_out(settings.columns, given.table)
        raw = RawColumns(settings, layout, given.table.vocabularies)
        ordered = any(map(keeps_order, settings.columns.values()))  # no function of sums
        if ordered or RAW_COLUMN * raw.width > self.rounded_features:
            return super()._prepared_to(settings, given)
        return RoundedPipeline.of_table(settings, given, raw)

    def predict(self, X: TableLike) -> Array:
        """Return the predictions of new rows, (n,) or (n, m).

        Parameters
        ----------
        X
            n x p: an array, a sparse matrix (which stays sparse), or a data frame with the columns
            that the model was fitted on.

        Raises
        ------
        InvalidData
            X does not have the columns that the model was fitted on, a number in it is not
            finite, or a prediction would not be.
        """
        predictions = self._margin(X)
        if self._target is not None:
            predictions = taken_back(self._target, predictions)
            advice = f"no target has the {self._target} that is predicted; correct the row"
            check_finite("prediction", predictions, advice)
        return self._shaped(predictions)

    def score(self, X: TableLike, y: ArrayLike, sample_weight: ArrayLike | None = None) -> float:
        """Return the coefficient of determination R^2, of several targets the mean."""
        from sklearn.metrics import r2_score  # noqa: PLC0415 (not to import it with the library)

        return float(r2_score(y, self.predict(X), sample_weight=sample_weight))

    def summary(
        self, *, level: float = 0.95, covariance: str = "sampling"
    ) -> Summary | tuple[Summary, ...]:
        """Return standard errors, tests, intervals and R^2 of the exact parameters.

        Parameters
        ----------
        level
            Of the confidence intervals.
        covariance
            ``sampling``, that of the ridge estimator given its penalty, or ``bayesian``
            (`engine.inference`).

        Returns
        -------
        Summary
            One for each target, if there are several.

        Raises
        ------
        InvalidData
            A parameter cannot be used, no degree of freedom is left, or preprocessing is part of
            the model: statistics that move with the rows are not fixed features.

        Notes
        -----
        Cost O(d^3), and O(n d^2) above `rounded_features`: what was deleted does not matter.
        """
        state = self._fitted
        if self.prepared is not None or self.refitted is not None:
            raise InvalidData(
                "a summary is of models without preprocessing inside: its statistics move with the "
                "rows, and standard errors of fixed features would be too small"
            )
        columns = state.columns or tuple(f"x{j}" for j in range(self.n_features_in_))
        found = summarise(
            state.sums(),
            state.generation.objective.penalty,
            state.stream.theta_exact,
            (*columns, *(("intercept",) if state.intercept else ())),
            rows=state.members.weighted,
            intercept=state.intercept,
            level=level,
            covariance=covariance,
        )
        return found[0] if self._flat else found

    @property
    def coef_(self) -> Array:
        """Published parameters as scikit-learn has them, (p,) or (m, p)."""
        return self.theta.T

    @property
    def intercept_(self) -> Any:
        """Published intercept: a float, or (m,) for several targets; 0.0 without one."""
        return self.intercept

    def to_sklearn(self) -> Ridge | Pipeline | TransformedTargetRegressor:
        """Return a plain fitted ``Ridge`` that predicts the same; with preprocessing, a Pipeline.

        With ``target``, a ``TransformedTargetRegressor`` around it.
        Its parameters are the published ones. If the intercept is penalised, a refit of it is
        another model: scikit-learn's does not penalise it.
        """
        from lethe.engine.conversion import ridge_of  # noqa: PLC0415 (imports scikit-learn)

        with self._lock:  # no change between what is read
            return ridge_of(self)


class LogisticModel(ClassifyingModel, ConvertibleModel, DiagnosableModel):
    """Ridge-regularised logistic regression that can forget.

    Equivalent to ``sklearn.linear_model.LogisticRegression(C=1/ridge)`` refitted on the remaining
    rows, within the error that every result carries; with more than two classes, in a
    ``sklearn.multiclass.OneVsRestClassifier``.

    Parameters are those of `LinearModel`.
    """

    kind = Kind.LOGISTIC

    def _probabilities(self, margin: Array) -> Array:
        if margin.shape[1] == 1:
            return np.hstack([probabilities(-margin), probabilities(margin)])
        return probabilities(margin)

    def to_sklearn(self) -> LogisticRegression | OneVsRestClassifier | Pipeline:
        """Return a plain fitted ``LogisticRegression`` that predicts the same.

        With more than two classes it is a ``OneVsRestClassifier`` of them. Its parameters are the
        published ones. If the intercept is penalised, a refit of it is another model:
        scikit-learn's does not penalise it.
        """
        from lethe.engine.conversion import logistic_of  # noqa: PLC0415 (imports scikit-learn)

        with self._lock:  # no change between what is read
            return logistic_of(self)
