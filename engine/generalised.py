"""`PoissonModel` and `SoftmaxModel`: counts, and classes that share one softmax.

The service keeps them, too.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import softmax

from lethe.engine.errors import IllConditioned, InvalidData
from lethe.engine.estimator.classifying import ClassifyingModel
from lethe.engine.estimator.converting import ConvertibleModel
from lethe.engine.fit.counts import out_of_reach
from lethe.engine.fit.losses import PoissonLoss
from lethe.engine.fit.multinomial import check_classes
from lethe.engine.fit.objective import Array, Kind, Rows, check_finite
from lethe.engine.fitted import Fitted
from lethe.engine.fitted_softmax import FittedSoftmax
from lethe.engine.preprocess.input.settings import Settings
from lethe.engine.preprocess.input.table import TableLike
from lethe.engine.preprocess.library import PreparedModel
from lethe.engine.preprocess.library.softmax import PreparedSoftmax
from lethe.engine.preprocess.library.state import GivenRows
from lethe.engine.refresh.policy import Choice
from lethe.engine.result import ChangeResult

if TYPE_CHECKING:
    from sklearn.linear_model import LogisticRegression, PoissonRegressor
    from sklearn.pipeline import Pipeline


class PoissonModel(ConvertibleModel):
    """Ridge-regularised Poisson regression with log link that can forget.

    Minimises sum_i weight_i (e^(x_i.theta) - y_i x_i.theta) + ridge / 2 |theta|^2 over the
    remaining rows, within the error that every result carries. Targets are 0 or more; a count
    divided by its exposure, with the exposure as weight, is a rate.

    Equivalent to ``sklearn.linear_model.PoissonRegressor(alpha=ridge / sum(weight))``, whose
    objective is the mean half deviance plus alpha / 2 |theta|^2: alpha = ridge / n without weights.
    A deletion changes n, and so the alpha that belongs to a fixed ridge.

    `predict` gives means e^u, (n,), and `score` the share of the deviance that is explained (D^2),
    as scikit-learn's. If all counts are 0, a free intercept would be infinite, and it is penalised
    (`intercept_penalised`).
    """

    kind = Kind.POISSON
    estimator_type = "regressor"

    def _change(
        self, names: tuple[str, ...], rows: Rows, old: tuple[str, ...], method: str
    ) -> ChangeResult:
        state = self._fitted
        far = out_of_reach(rows, state.generation.theta_b, state.stream.theta_r)
        if far is not None:
            raise InvalidData(
                f"the model predicts for row {names[far[0]]!r} {far[1]}; rescale its features; "
                "nothing was changed"
            )
        return super()._change(names, rows, old, method)

    def _polish(self, state: Fitted, choice: Choice, target: float, *, needed: bool) -> Choice:
        try:
            return super()._polish(state, choice, target, needed=needed)
        except IllConditioned as error:  # theta_exact has overflowed: nothing to start from
            return self._rebuild(state, (), f"a polish cannot be had: {error}")

    def predict(self, X: TableLike) -> Array:
        """Return the mean of each row's count, (n,).

        Raises
        ------
        InvalidData
            X does not have the columns that the model was fitted on, a number in it is not
            finite, or a mean would not be.
        """
        means = PoissonLoss().mean(self._margin(X)[:, 0])
        check_finite("prediction", means, "rescale its features")
        return means

    def score(self, X: TableLike, y: ArrayLike, sample_weight: ArrayLike | None = None) -> float:
        """Return D^2, the share of the deviance that is explained."""
        from sklearn.metrics import d2_tweedie_score  # noqa: PLC0415 (not imported with the library)

        return float(d2_tweedie_score(y, self.predict(X), sample_weight=sample_weight, power=1))

    @property
    def coef_(self) -> Array:
        """Published parameters as scikit-learn has them, (p,)."""
        return self.theta

    @property
    def intercept_(self) -> float:
        """Published intercept; 0.0 without one."""
        return float(self.intercept)

    @property
    def live_weight(self) -> float:
        """Sum of the weights of the rows that remain. Cost O(n)."""
        members = self._fitted.members
        return float(members.rows.weight[members.live].sum())

    def to_sklearn(self) -> PoissonRegressor | Pipeline:
        """Return a plain fitted ``PoissonRegressor`` that predicts the same, or a Pipeline of one.

        Its alpha is the ridge strength divided by the weight of the remaining rows: a refit of it
        on these is this model. After a deletion that is another alpha than before it. If the
        intercept is penalised, a refit is another model: scikit-learn's does not penalise it.
        """
        from lethe.engine.conversion import poisson_of  # noqa: PLC0415 (imports scikit-learn)

        with self._lock:  # no change between what is read
            return poisson_of(self)


class SoftmaxModel(ClassifyingModel, ConvertibleModel):
    """Ridge-regularised softmax (multinomial logistic) regression that can forget.

    Equivalent to ``sklearn.linear_model.LogisticRegression(C=1/ridge)`` with more than two classes,
    refitted on the remaining rows, within the error that every result carries: intercepts, too, add
    up to 0 over the classes. `LogisticModel` fits each class against the rest instead.

    ``theta`` is (p, C), `predict` gives labels and `predict_proba` probabilities, (n, C). Every
    error is certified by a pass over the live rows, or unknown; none is estimated. A deletion of k
    rows costs O(k C (p C)^2 + n p C), and no dual rows are kept. p C is limited
    (`engine.fit.multinomial.LARGEST_HESSIAN`). With preprocessing inside, a change is a fit of the
    pipeline to the live rows, begun at the last answer (`engine.preprocess.library.softmax`).
    """

    kind = Kind.SOFTMAX

    def _fitted_to(
        self,
        penalty: Array,
        names: tuple[str, ...],
        rows: Rows,
        classes: tuple[str, ...],
        columns: tuple[str, ...] | None,
    ) -> Fitted:
        check_classes(rows.y.shape[1])
        return FittedSoftmax.of_rows(
            penalty,
            names,
            rows,
            classes,
            intercept=self.fit_intercept,
            ridge=float(self.ridge),
            columns=columns,
        )

    def _prepared_to(self, settings: Settings, given: GivenRows) -> PreparedModel:
        check_classes(given.y.shape[1])
        return PreparedSoftmax.of_table(settings, given, self.seed)

    def _probabilities(self, margin: Array) -> Array:
        return np.asarray(softmax(margin, axis=1))

    def to_sklearn(self) -> LogisticRegression | Pipeline:
        """Return a plain ``LogisticRegression`` that predicts the same, or a Pipeline of one.

        Its parameters are the published ones. If the intercept is penalised, a refit of it is
        another model: scikit-learn's does not penalise it.
        """
        from lethe.engine.conversion import softmax_of  # noqa: PLC0415 (imports scikit-learn)

        with self._lock:  # no change between what is read
            return softmax_of(self)
