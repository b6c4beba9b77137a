"""The layer of classes: labels and probabilities, as scikit-learn's classifiers have them."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from lethe.engine.estimator.changing import ChangingModel
from lethe.engine.fit.objective import Array
from lethe.engine.preprocess.input.table import TableLike


class ClassifyingModel(ChangingModel):
    """A model of classes."""

    estimator_type = "classifier"
    _labels: NDArray[Any]

    def _remember_targets(self, y: NDArray[Any]) -> None:
        labels = np.unique(y)
        self._labels = labels if self.classes else np.array([0, 1]).astype(labels.dtype)

    def decision_function(self, X: TableLike) -> Array:
        """Return margins x . theta + intercept: (n,) of the second class, or (n, C).

        Raises
        ------
        InvalidData
            As `predict`.
        """
        margin = self._margin(X)
        return margin[:, 0] if margin.shape[1] == 1 else margin

    def predict_proba(self, X: TableLike) -> Array:
        """Return the probability of each class of `classes_`, (n, 2) or (n, C).

        With more than two classes of a `LogisticModel`, each class's own against the rest, divided
        by their sum, as in scikit-learn's OneVsRestClassifier.

        Raises
        ------
        InvalidData
            As `predict`.
        """
        return self._probabilities(self._margin(X))

    @abstractmethod
    def _probabilities(self, margin: Array) -> Array:
        """Return the probabilities of all classes from margins, n x m."""

    def predict(self, X: TableLike) -> NDArray[Any]:
        """Return the most probable label of each row, (n,).

        Parameters
        ----------
        X
            n x p: an array, a sparse matrix (which stays sparse), or a data frame with the columns
            that the model was fitted on.

        Raises
        ------
        InvalidData
            X does not have the columns that the model was fitted on, a number in it is not
            finite, or a margin would not be.
        """
        margin = self._margin(X)
        second = margin[:, 0] > 0 if margin.shape[1] == 1 else None
        chosen = second.astype(np.intp) if second is not None else np.argmax(margin, axis=1)
        return np.asarray(self.classes_[chosen])

    def score(self, X: TableLike, y: ArrayLike, sample_weight: ArrayLike | None = None) -> float:
        """Return the accuracy: the share of rows whose label is predicted."""
        from sklearn.metrics import accuracy_score  # noqa: PLC0415 (not imported with the library)

        return float(accuracy_score(y, self.predict(X), sample_weight=sample_weight))

    @property
    def classes(self) -> tuple[str, ...]:
        """Names of the classes, in the order of theta's columns; empty for labels 0 and 1."""
        return self._fitted.classes

    @property
    def classes_(self) -> NDArray[Any]:
        """Labels as the model was fitted on them, (2,) or (C,), in the order of `classes`."""
        _ = self._fitted
        return self._labels

    @property
    def coef_(self) -> Array:
        """Published parameters as scikit-learn has them, (1, p) or (C, p)."""
        return self.theta.reshape(len(self.theta), -1).T

    @property
    def intercept_(self) -> Array:
        """Published intercept, (1,) or (C,); 0.0 without one."""
        return np.reshape(self.intercept, -1)
