"""A verified version of a model, ready to predict with: what `ModelSubscriber.follow` yields."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import numpy as np
from scipy.special import softmax

from lethe.consumers.contract.events import Version
from lethe.consumers.subscriber.features import features_of
from lethe.engine.errors import InvalidData
from lethe.engine.fit.classes import probabilities
from lethe.engine.fit.losses import PoissonLoss
from lethe.engine.fit.objective import Array
from lethe.engine.store.layout.columns import FittedColumn
from lethe.engine.store.layout.records import ErrorRecord


@dataclass(frozen=True, slots=True, eq=False)
class ModelVersion:
    """Parameters whose digest and whole history were checked.

    Attributes
    ----------
    event
        The version as it was published: status, counts of rows, requests, source.
    feature_names, target_names
        Names of the columns, in the order of theta.
    theta
        (p,) with one output, else (p, m); float64, read-only, without the intercept.
    intercept
        A float with one output, else (m,); 0.0 for a model without one.
    classes
        Names of the classes that a logistic model tells apart; empty if they are 0 and 1. With two,
        predictions are for the second; with more, each has its column of theta.
    columns
        With preprocessing inside the model, the columns of a table, fitted: what makes the features
        that theta belongs to of a row. Else empty.
    """

    event: Version
    feature_names: tuple[str, ...]
    target_names: tuple[str, ...]
    theta: Array
    intercept: float | Array
    classes: tuple[str, ...] = ()
    columns: tuple[FittedColumn, ...] = ()

    @classmethod
    def of(
        cls,
        event: Version,
        feature_names: tuple[str, ...],
        target_names: tuple[str, ...],
        parameters: Array,
        classes: tuple[str, ...] = (),
        columns: tuple[FittedColumn, ...] = (),
    ) -> ModelVersion:
        """Return the version with checked parameters, d x m with any intercept as last row."""
        p, m = len(feature_names), parameters.shape[1]
        flat = m == 1
        last = parameters[p] if len(parameters) > p else np.zeros(m)
        theta = parameters[:p, 0].copy() if flat else parameters[:p].copy()
        theta.setflags(write=False)
        intercept = float(last[0]) if flat else last
        return cls(event, feature_names, target_names, theta, intercept, classes, columns)

    @property
    def model_id(self) -> str:
        """The model."""
        return self.event.model_id

    @property
    def version(self) -> int:
        """Number of the version: dense from 0, never reused."""
        return self.event.version

    @property
    def generation(self) -> int:
        """Number of the precomputation that it derives from."""
        return self.event.generation

    @property
    def digest(self) -> str:
        """Identifies this version; keep it with the number to detect a rollback."""
        return self.event.digest

    @property
    def known(self) -> tuple[int, str]:
        """The anchor to pass as ``known`` next time."""
        return self.event.version, self.event.digest

    @property
    def kind(self) -> str:
        """``linear``, ``logistic``, ``poisson`` or ``softmax``."""
        return self.event.kind

    @property
    def status(self) -> str:
        """``ACTIVE``, ``EMPTY`` (no row is left) or ``INTERCEPT_PENALISED``."""
        return self.event.status

    @property
    def error(self) -> ErrorRecord:
        """Distance of theta from retraining on the live rows: value, kind, bound, budget."""
        return self.event.error

    @property
    def created_at(self) -> datetime:
        """When it was committed."""
        return self.event.created_at

    def predict(self, X: Any) -> Array:
        """Return predictions: X theta + intercept, or what that stands for.

        Of a classifier these are probabilities, of a Poisson model means e^(X theta +
        intercept).

        Of a logistic model with more than two classes, each class's probability against the rest,
        divided by their sum (as scikit-learn's OneVsRestClassifier has it): a row's sum is 1. Of a
        softmax model the softmax of the scores.

        Parameters
        ----------
        X
            n x p in the order of ``feature_names``, or one row (p,); or named columns (a mapping,
            a data frame, an Arrow table), which are selected by name, others ignored. With
            preprocessing inside the model: rows before any transformation, of the ``columns``.

        Returns
        -------
        (n,) with one output, else (n, m); for a single row without its first dimension.

        Raises
        ------
        InvalidData
            A column is missing, the shape is wrong, or a number in ``X`` or in the predictions is
            not finite; a value is not of its column's kind, or a category that no live row has.
        """
        matrix = features_of(self.columns, X) if self.columns else self._matrix(X)
        with np.errstate(over="ignore", invalid="ignore"):
            scores: Array = np.asarray(matrix @ self.theta + self.intercept)
        if self.kind == "poisson":
            scores = PoissonLoss().mean(scores)
        if not np.isfinite(scores).all():
            raise InvalidData(
                f"a prediction of model {self.model_id!r} overflows float64; rescale the rows"
            )
        if self.kind == "softmax":
            return np.asarray(softmax(scores, axis=-1))
        if self.kind != "logistic":
            return scores
        flat = self.theta.ndim == 1
        return probabilities(scores[..., None])[..., 0] if flat else probabilities(scores)

    def _matrix(self, X: Any) -> Array:
        named = isinstance(X, Mapping) or hasattr(X, "columns") or hasattr(X, "column_names")
        p = len(self.feature_names)
        try:
            if named:
                columns = [np.asarray(X[name], dtype=np.float64) for name in self.feature_names]
                matrix = np.stack(np.broadcast_arrays(*columns), axis=-1)
            else:
                matrix = np.asarray(X, dtype=np.float64)
        except KeyError as error:
            raise InvalidData(
                f"model {self.model_id!r} needs the columns {', '.join(self.feature_names)}; "
                f"{error.args[0] if error.args else error!r} is missing"
            ) from None
        except (ValueError, TypeError, OverflowError) as error:
            raise InvalidData(f"the rows for model {self.model_id!r}: {error}") from None
        if matrix.ndim not in (1, 2) or matrix.shape[-1] != p:
            raise InvalidData(
                f"the rows for model {self.model_id!r} are of shape {matrix.shape}; they must be "
                f"(n, {p}), in the order {', '.join(self.feature_names)}"
            )
        if not np.isfinite(matrix).all():
            raise InvalidData(f"the rows for model {self.model_id!r} hold a non-finite number")
        return matrix
