"""The lowest layer of a library model: its parameters, fitting, and reading what was fitted."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from numbers import Real
from threading import RLock
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from lethe.engine.error.estimate import PublishedError
from lethe.engine.errors import InvalidData
from lethe.engine.estimator.columns import (
    MadeFeatures,
    check_columns,
    column_names,
    dense_features,
    features_to_predict,
)
from lethe.engine.estimator.protocol import Estimator
from lethe.engine.estimator.targets import learnt
from lethe.engine.fit.class_weights import ClassWeight, ClassWeights, class_names
from lethe.engine.fit.classes import one_sided
from lethe.engine.fit.objective import Array, Kind, Objective, Rows, check_finite, ridge_penalty
from lethe.engine.fitted import Fitted
from lethe.engine.preprocess.input.by_name import checked_columns, dropped_columns
from lethe.engine.preprocess.input.columns import GivenColumns
from lethe.engine.preprocess.input.frozen import FrozenTransformer, kept_copy, transformed
from lethe.engine.preprocess.input.settings import Settings
from lethe.engine.preprocess.input.table import TableLike
from lethe.engine.preprocess.library import PreparedModel
from lethe.engine.preprocess.library.fitted import PreparedFit
from lethe.engine.preprocess.library.state import GivenRows
from lethe.engine.preprocess.refitted import Refitted, RefittedRows, begun
from lethe.engine.refresh.blockwise import precompute_blocks
from lethe.engine.refresh.policy import Limits
from lethe.engine.result import Conversion
from lethe.engine.rows import checked_rows

WEIGHTED_TWICE = (
    "class_weight='balanced' goes without sample_weight: give the weights of the classes as "
    "numbers, or weights of the rows alone"
)
"""scikit-learn's classifiers balance rows in one release, and their weights in another."""

overflow_allowed = np.errstate(over="ignore", invalid="ignore")
"""Overflow is detected in the results: no warning."""


class BaseModel(Estimator):
    """Parameters, `fit`, and what is read of a fitted model."""

    __slots__ = ("_lock",)  # apart from the attributes, all of which are copied

    _lock: AbstractContextManager[bool]

    kind: ClassVar[Kind]
    converted_from_: Conversion | None = None
    """For a model from `from_sklearn`, the given estimator's distance to its own optimum."""

    _state: Fitted | None = None
    _frozen: FrozenTransformer | None = None
    """A copy of a transformer that was given fitted: its owner may fit it anew."""

    target: str | None = None
    """The function of the target that is learnt, which `LinearModel` takes as a parameter."""
    _target: str | None = None
    """The one that was learnt at the last fit."""

    _flat: bool = True
    """Whether results have no dimension for outputs: there is one, also of targets (n, 1)."""

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
    ) -> None:
        self.ridge = ridge
        self.fit_intercept = fit_intercept
        self.penalise_intercept = penalise_intercept
        self.error_budget = error_budget
        self.limits = limits
        self.seed = seed
        self.preprocess = preprocess
        self.class_weight = class_weight
        self._lock = RLock()

    def __getstate__(self) -> dict[str, Any]:
        """Return what `copy` and `pickle` take of a model: all but its lock."""
        with self._lock:
            return self.__dict__.copy()

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Take over what was copied, with a lock of its own."""
        self.__dict__.update(state)
        self._lock = RLock()

    # -- fitting ------------------------------------------------------------------------------

    @overflow_allowed
    def fit(
        self,
        X: TableLike,
        y: ArrayLike,
        ids: Sequence[str] | None = None,
        sample_weight: ArrayLike | None = None,
    ) -> Self:
        """Fit and precompute.

        Parameters
        ----------
        X
            n x p features, finite: an array, a data frame, whose column names are kept and
            checked, or a sparse matrix, which is made dense (the dual rows are, and as large). With
            ``preprocess``, a table of its columns (`engine.preprocess.input.table`), or what its
            transformer takes.
        y
            (n,) or, for a linear model, (n, m) targets. For a logistic model, 0 and 1, or labels:
            whole numbers or text. Of two other labels, the second in order counts as 1; more than
            two give one model of each class against the rest (`classes`), and theta is (p, C).
            If all rows are of one class, an intercept is penalised: it would be infinite.
        ids
            One distinct id a row (`engine.ids`); by default "0", "1", ...
        sample_weight
            (n,) weights, not below 0. A row of weight 0 is a row, and changes nothing.

        Raises
        ------
        InvalidData
            A parameter, shapes, ids or numbers cannot be used, or are past the limits of
            `engine.fit.magnitude`.
        IllConditioned, NotConverged
            As `engine.fit.fit.fit`.

        Notes
        -----
        Cost O(n d^2); keeps copies of X and the dual rows, 2 n d numbers. With C classes, C times
        the work and (1 + C) n d numbers.
        """
        self._check_parameters()
        if y is None:
            raise InvalidData(
                f"{type(self).__name__} requires y to be passed, but the target y is None"
            )
        y = learnt(self.target, y)
        if isinstance(self.preprocess, Mapping):
            settings = Settings(
                checked_columns(self.preprocess),
                self.kind,
                float(self.ridge),
                self.fit_intercept,
                self.penalise_intercept,
                dropped_columns(self.preprocess),
            )
            given = GivenRows.read(settings, X, y, ids, sample_weight)
            weights = self._class_weights(given.classes, given.y.shape[1], sample_weight)
            if weights is not None:
                given = replace(given, weight=given.weight * weights.of_rows(given.y))
            return self._adopt_fit(self._prepared_to(settings, given), weights, None, y)
        columns, kept, refitted = column_names(X), None, None
        features: ArrayLike
        if isinstance(self.preprocess, Refitted):
            as_now = type(self)(**self.get_params(deep=False))  # set_params is for the next fit
            refitted, features = begun(self.preprocess, X, y, as_now._fitted_rows)
        else:
            kept = None if self.preprocess is None else kept_copy(self.preprocess)
            features = dense_features(X if kept is None else transformed(kept, X))
        names, rows, classes = checked_rows(
            self.kind, features, y, ids, sample_weight, intercept=self.fit_intercept
        )
        weights = self._class_weights(classes, rows.outputs, sample_weight)
        if weights is not None:
            rows = weights.weighed(rows)
        state = self._fitted_rows(names, rows, classes, columns)
        state.refitted = None if refitted is None else replace(refitted, ids=names)
        return self._adopt_fit(state, weights, kept, y)

    def _fitted_rows(
        self,
        names: tuple[str, ...],
        rows: Rows,
        classes: tuple[str, ...],
        columns: tuple[str, ...] | None,
    ) -> Fitted:
        """Return the state of a fit of rows in the engine's form, whose weights are final."""
        penalty = ridge_penalty(
            self.ridge,
            rows.X.shape[1],
            intercept=self.fit_intercept,
            penalise_intercept=self.penalise_intercept or one_sided(self.kind, rows),
        )
        return self._fitted_to(penalty, names, rows, classes, columns)

    def _class_weights(
        self, classes: tuple[str, ...], m: int, sample_weight: ArrayLike | None
    ) -> ClassWeights | None:
        """Return the weights of these classes, if any are asked for."""
        if self.class_weight is None:
            return None
        names = class_names(self.kind, classes, m)
        weights = ClassWeights.of(self.kind, self.class_weight, names)
        if weights.balanced and sample_weight is not None:
            raise InvalidData(WEIGHTED_TWICE)
        return weights

    def _fitted_to(
        self,
        penalty: Array,
        names: tuple[str, ...],
        rows: Rows,
        classes: tuple[str, ...],
        columns: tuple[str, ...] | None,
    ) -> Fitted:
        """Return the state of a fit of these rows."""
        objective = Objective(self.kind, penalty)
        return Fitted.of(
            objective,
            names,
            rows,
            precompute_blocks(objective, rows),
            classes,
            self.seed,
            intercept=self.fit_intercept,
            ridge=float(self.ridge),
            columns=columns,
        )

    def _prepared_to(self, settings: Settings, given: GivenRows) -> PreparedModel:
        """Return the state of a fit of a table."""
        return PreparedFit.of_table(settings, given, self.seed)

    def _adopt_fit(
        self,
        state: Fitted,
        weights: ClassWeights | None,
        kept: FrozenTransformer | None,
        y: ArrayLike,
    ) -> Self:
        """Make a fit the model's state."""
        state.members.class_weights = weights
        with self._lock:
            self._state, self._frozen, self.converted_from_ = state, kept, None
            self._target = self.target
            self._flat = state.published.shape[1] == 1
            self._remember_targets(np.asarray(y))
        return self

    def _remember_targets(self, y: NDArray[Any]) -> None:
        """Keep what results need of the targets; for numbers, nothing."""

    def _check_parameters(self) -> None:
        for name, what in (("ridge", "a finite number"), ("error_budget", "a number")):
            value: Any = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, Real) or not float(value) > 0:
                raise InvalidData(f"{name} must be {what} above 0, not {value!r}")
        for name in ("fit_intercept", "penalise_intercept"):
            if not isinstance(getattr(self, name), bool | np.bool_):
                raise InvalidData(f"{name} must be True or False, not {getattr(self, name)!r}")
        if not isinstance(self.seed, int | np.integer) or self.seed < 0:
            raise InvalidData(f"seed must be a whole number of at least 0, not {self.seed!r}")
        if not isinstance(self.limits, Limits | None):
            raise InvalidData(f"limits must be Limits or None, not {self.limits!r}")

    # -- reading ------------------------------------------------------------------------------

    @property
    def _fitted(self) -> Fitted:
        if self._state is None:
            from lethe.engine.estimator.unfitted import (  # noqa: PLC0415 (imports scikit-learn)
                NotFitted,
            )

            raise NotFitted(f"this {type(self).__name__} is not fitted; call fit first")
        return self._state

    def __sklearn_is_fitted__(self) -> bool:
        """Return whether `fit` was called, for `sklearn.utils.validation.check_is_fitted`."""
        return self._state is not None

    def _shaped(self, theta: Array) -> Array:
        return theta[:, 0].copy() if self._flat else theta.copy()

    @property
    def theta(self) -> Array:
        """Published parameters, (p,), (p, m) or (p, C), a copy without the intercept."""
        published = self._fitted.published
        return self._shaped(published[:-1] if self._fitted.intercept else published)

    @property
    def intercept(self) -> Any:
        """Published intercept: a float, or (m,) for several outputs; 0.0 without one."""
        published = self._fitted.published
        if not self._fitted.intercept:
            return 0.0 if self._flat else np.zeros(published.shape[1])
        return float(published[-1, 0]) if self._flat else published[-1].copy()

    @property
    def intercept_penalised(self) -> bool:
        """Whether the intercept is penalised: by request, or because a class lost its last row."""
        state = self._fitted
        return state.intercept and bool(state.generation.objective.penalty[-1] > 0)

    @property
    def published(self) -> Array:
        """Published parameters with the intercept, d x m: not a copy, and not to be written to."""
        return self._fitted.published

    @property
    def has_intercept(self) -> bool:
        """Whether the model was fitted with an intercept."""
        return self._fitted.intercept

    @property
    def fitted_ridge(self) -> float:
        """The ridge strength that the model was fitted with."""
        return self._fitted.ridge

    @property
    def fitted_target(self) -> str | None:
        """The function of the target that the model was fitted with, if any."""
        return self._target

    @property
    def class_weights(self) -> ClassWeights | None:
        """The weights of classes that the model was fitted with, if any."""
        return self._fitted.members.class_weights

    @property
    @overflow_allowed
    def error(self) -> PublishedError:
        """Error of the published parameters against retraining on the live rows."""
        return self._fitted.error

    @property
    def live_ids(self) -> tuple[str, ...]:
        """Ids of the rows that remain."""
        return self._fitted.members.live_ids()

    @property
    def transformer(self) -> FrozenTransformer | None:
        """The whole transformer that makes features, if there is one: frozen, or fitted anew."""
        return self._transformer_of(self._fitted)

    def _transformer_of(self, state: Fitted) -> FrozenTransformer | None:
        return self._frozen if state.refitted is None else state.refitted.transformer

    def _transformed(self, X: TableLike, state: Fitted) -> Any:
        """Return what the transformer of a state makes of X; X as it is where there is none."""
        transformer = self._transformer_of(state)
        return X if transformer is None else transformed(transformer, X)

    @property
    def prepared(self) -> PreparedModel | None:
        """The fitted state of a model with preprocessing; None of another."""
        state = self._fitted
        return state if isinstance(state, PreparedModel) else None

    @property
    def preprocess_frozen(self) -> bool:
        """Whether features are made by a transformer that does not forget rows."""
        return self._frozen is not None

    @property
    def refitted(self) -> RefittedRows | None:
        """The rows as they were given, if their transformers are fitted anew at every change."""
        return self._fitted.refitted

    @property
    def n_features_in_(self) -> int:
        """Number of features p that the model was fitted on."""
        if self.prepared is not None:
            return self.prepared.settings.width
        if self.refitted is not None:
            return self.refitted.width
        return int(self._fitted.published.shape[0]) - int(self._fitted.intercept)

    @property
    def feature_names_in_(self) -> NDArray[np.object_]:
        """Names of the columns, (p,), if the model was fitted on a data frame.

        Raises
        ------
        AttributeError
            It was not.
        """
        if self._fitted.columns is None:
            raise AttributeError("the model was not fitted on a data frame with names of columns")
        return np.array(self._fitted.columns, dtype=object)

    def _margin(self, X: TableLike | MadeFeatures) -> Array:
        """Return x . theta + intercept, n x m, of new rows.

        Raises
        ------
        InvalidData
            X does not have the columns that the model was fitted on, a number in it is not
            finite, or a margin would not be.
        """
        state, name = self._fitted, type(self).__name__
        p = len(state.published) - int(state.intercept)
        if isinstance(X, MadeFeatures):
            features = X.values
        elif isinstance(state, PreparedModel):
            features = state.features(X)
        else:
            check_columns(X, state.columns, name)
            features = features_to_predict(self._transformed(X, state))
        if features.shape[1] != p:
            raise InvalidData(
                f"X has {features.shape[1]} features, but {name} is expecting {p} features as input"
            )
        published = state.published
        with np.errstate(over="ignore", invalid="ignore"):
            margin: Array = features @ published[:p]
            if state.intercept:
                margin = margin + published[-1]
        check_finite("prediction", margin, "rescale its features")
        return margin
