"""A fitted estimator or Pipeline of scikit-learn, as a service registers it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.pipeline import Pipeline

from lethe.consumers.registration.table.file import TableFile
from lethe.consumers.registration.table.frozen import FrozenFile, frozen_file, given_to
from lethe.consumers.registration.training_data import TrainingData
from lethe.engine.conversion import (
    EstimatorTerms,
    StepNature,
    final_of,
    natures,
    read_terms,
)
from lethe.engine.errors import InvalidData
from lethe.engine.estimator.converting import ConvertibleModel
from lethe.engine.fit.class_weights import ClassWeight
from lethe.engine.fit.classes import encoded
from lethe.engine.fit.objective import Kind
from lethe.engine.generalised import PoissonModel, SoftmaxModel
from lethe.engine.models import LinearModel, LogisticModel
from lethe.engine.preprocess.input.by_name import given_columns, named_by
from lethe.engine.preprocess.input.columns import Column
from lethe.engine.preprocess.input.frozen import transformed
from lethe.engine.result import Conversion
from lethe.engine.store.layout.config import ConversionRecord, ModelConfig

_MODELS: Mapping[Kind, type[ConvertibleModel]] = {
    Kind.LINEAR: LinearModel,
    Kind.LOGISTIC: LogisticModel,
    Kind.POISSON: PoissonModel,
    Kind.SOFTMAX: SoftmaxModel,
}


@dataclass(frozen=True, slots=True)
class FittedEstimator:
    """A fitted estimator, in a service's terms.

    Attributes
    ----------
    estimator, digest
        It, and the SHA-256 of the file that it was read from, if from one.
    kind, ridge, fit_intercept, class_weight
        Of the model that it becomes; the ridge is for each row if ``of_mean``.
    columns
        Those of a table that it takes, in order.
    preprocess
        What is done to them, a transformer that stays as it is, or nothing.
    steps
        What becomes of each step of a Pipeline.
    classes
        (C,) labels of a classifier, if targets are not labels.
    """

    estimator: Any
    digest: str | None
    kind: Kind
    ridge: float
    fit_intercept: bool
    columns: tuple[str, ...]
    preprocess: dict[str, Column] | FrozenFile | None
    steps: tuple[StepNature, ...]
    classes: NDArray[Any] | None = None
    class_weight: ClassWeight | None = None
    given: FrozenFile | None = None
    """How a table is given to it."""
    of_mean: bool = False

    @classmethod
    def of(
        cls,
        estimator: Any,
        path: Path,
        digest: str | None,
        *,
        names: Sequence[str] | None = None,
        freeze: bool = False,
    ) -> FittedEstimator:
        """Read an estimator.

        Parameters
        ----------
        estimator
            It, fitted.
        path, digest
            What messages call it, and of its file.
        names
            Of the columns, in order, if it was fitted to an array, which does not name them.
        freeze
            Whether steps of a Pipeline that have learnt of rows may stay as they are.

        Raises
        ------
        InvalidData
            It minimises another objective or is not fitted, or a step cannot be part of a model.
        """
        frozen = freeze and type(estimator) is Pipeline and len(estimator.steps) > 1
        terms = read_terms(estimator[-1] if frozen else estimator)
        _check_served(final_of(estimator), terms)
        given = _given_to(estimator, names, path, digest or "")
        columns = given.columns
        preprocess: dict[str, Column] | FrozenFile | None = None
        if frozen:
            preprocess = frozen_file(estimator[:-1], path, digest or "")
        elif terms.columns is not None:
            preprocess = named_by(terms.columns, columns)
            columns = tuple(str(name) for name in given_columns(preprocess))
        classes = None  # of a RidgeClassifier, they are the targets themselves
        if terms.kind is not Kind.LINEAR:
            classes = getattr(final_of(estimator), "classes_", None)
        return cls(
            estimator, digest, terms.kind, terms.ridge, terms.fit_intercept, columns, preprocess,
            natures(estimator, freeze=frozen), classes, terms.class_weight, given, terms.of_mean,
        )  # fmt: skip

    def conversion(self, file: TableFile, data: TrainingData) -> Conversion:
        """Fit the model to a table, and measure how far the estimator was from it.

        Parameters
        ----------
        file
            The whole table, in which ids are text.
        data
            Its rows, as registration has read them.

        Raises
        ------
        InvalidData
            The table is not what the estimator was fitted on.

        Notes
        -----
        Cost O(n d^2), that of a fit.
        """
        assert self.given is not None, "of an estimator that `of` read"  # noqa: S101
        X = self.given.frame(file)
        if getattr(self.estimator, "feature_names_in_", None) is None:
            X = X.to_numpy()
        estimator = self.estimator
        if isinstance(self.preprocess, FrozenFile):
            X, estimator = transformed(estimator[:-1], X), final_of(estimator)
        model = _MODELS[self.kind].from_sklearn(estimator, X, self._labels(data))
        assert model.converted_from_ is not None, "it was made from one"  # noqa: S101
        return model.converted_from_

    def configured(self, config: ModelConfig, moved: Conversion, rows: int) -> ModelConfig:
        """Return the configuration of the model that is fitted to so many rows."""
        ridge = self.ridge * rows if self.of_mean else self.ridge
        return config.model_copy(update={"converted_from": self.record(moved), "ridge": ridge})

    def record(self, moved: Conversion) -> ConversionRecord:
        """Return what the model's configuration keeps of the comparison."""
        return ConversionRecord(
            estimator=moved.estimator,
            digest=self.digest,
            distance=moved.distance,
            relative=moved.relative,
            largest=moved.largest,
            mean=moved.mean,
        )

    def _labels(self, data: TrainingData) -> NDArray[Any]:
        """Return the targets of rows as the estimator has them.

        Raises
        ------
        InvalidData
            They have other classes.
        """
        if self.classes is None:
            return data.y[:, 0] if data.y.shape[1] == 1 else data.y
        names, own = encoded(self.classes)
        if names != data.class_names:
            there = ", ".join(data.class_names or ("0", "1"))
            raise InvalidData(
                f"column {data.target_names[0]!r} has the classes {there}, and the estimator was "
                f"fitted on {', '.join(map(str, self.classes.tolist()))}; give the rows that it "
                "was fitted on"
            )
        order = own.argmax(axis=0) if own.shape[1] > 1 else np.argsort(own[:, 0])
        place = data.y.argmax(axis=1) if own.shape[1] > 1 else data.y[:, 0].astype(np.intp)
        return np.asarray(self.classes[order][place])


def _check_served(final: Any, terms: EstimatorTerms) -> None:
    """Refuse an estimator that only the library has.

    Raises
    ------
    InvalidData
        It learns a function of its target, its intercept is penalised, or it makes numbers of
        labels.
    """
    name = type(final).__name__
    if terms.target is not None:
        raise InvalidData(
            f"{name}: func=numpy.{terms.target} is learnt of the target, and the service learns "
            f"targets as rows have them; compute a column with numpy.{terms.target} of the target, "
            "and fit its regressor to that, or use LinearModel.from_sklearn"
        )
    if terms.penalise_intercept:
        raise InvalidData(
            f"{name}: solver='liblinear' penalises the intercept, which models of the service "
            "leave free; fit it with solver='lbfgs', or use LogisticModel.from_sklearn"
        )
    labels = getattr(final, "classes_", None)
    if terms.kind is Kind.LINEAR and labels is not None and list(labels) != [-1, 1]:
        shown = ", ".join(map(str, labels.tolist()))
        raise InvalidData(
            f"{name}: is a ridge regression of -1 and 1, which rows have as their targets, and it "
            f"was fitted to {shown}; fit it to a column of -1 and 1, or fit LogisticRegression"
        )


def _given_to(estimator: Any, names: Sequence[str] | None, path: Path, digest: str) -> FrozenFile:
    """Return how a table is given to an estimator, of whose columns an array has no names.

    Raises
    ------
    InvalidData
        Names are missing, or there are too many or too few.
    """
    if getattr(estimator, "feature_names_in_", None) is not None:
        if names is not None:
            raise InvalidData("the estimator names its columns itself; leave out --features")
        return given_to(estimator, path, digest)
    p = int(estimator.n_features_in_)
    if names is None or len(names) != p:
        has = "none were given" if names is None else f"{len(names)} were given"
        raise InvalidData(
            f"the estimator was fitted on an array of {p} columns, whose names it does not know, "
            f"and {has}; name them in order with --features"
        )
    return FrozenFile(path, estimator, tuple(names), digest)
