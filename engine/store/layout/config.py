"""The configuration of a model, which registration fixes."""

from __future__ import annotations

import operator
from functools import cached_property
from typing import Annotated, Literal, Self

import numpy as np
from pydantic import Field, model_validator

from lethe.engine.error.budget import OverBudget
from lethe.engine.error.terms import OutputNoise, Terms
from lethe.engine.errors import CorruptState
from lethe.engine.fit.class_weights import ClassWeights, class_names
from lethe.engine.fit.objective import Array, Kind
from lethe.engine.refresh.policy import Limits
from lethe.engine.store.layout.columns import ColumnRecord, FixedColumns
from lethe.engine.store.layout.reading import Texts, parse_model
from lethe.engine.store.layout.records import Finite, Stored, outputs


class LimitsRecord(Stored):
    """`engine.refresh.policy.Limits` as it is stored; None means the default."""

    far_under: float | None = None
    fraction_of_d: float | None = None
    floor_rows: int | None = None
    completions: int | None = None
    condition: float | None = None
    age_seconds: float | None = None

    def limits(self) -> Limits:
        """Return the limits, defaults filled in."""
        return Limits(**self.model_dump(exclude_none=True))


class ConversionRecord(Stored):
    """`engine.result.Conversion` as it is stored, and the SHA-256 of the file that it came in."""

    estimator: str
    digest: str | None
    distance: Finite
    relative: Finite
    largest: Finite
    mean: Finite


class ModelConfig(Stored):
    """The configuration that registration fixes."""

    model_id: str
    kind: Kind
    method: str
    ridge: Finite
    fit_intercept: bool
    feature_names: Texts
    target_names: Texts
    class_names: Texts = ()
    error_budget: Finite
    refresh_every_seconds: float | None = None
    limits: LimitsRecord = LimitsRecord()
    certify: Terms | None = None
    over_budget: OverBudget = OverBudget.COMPLETE
    subject_namespace: str | None = Field(default=None, exclude_if=lambda name: name is None)
    """Namespace of the rows' subjects; None if the model was registered without subjects."""
    preprocess: Annotated[tuple[ColumnRecord, ...], Field(fail_fast=True)] = Field(
        default=(), exclude_if=operator.not_
    )
    """The columns of the table, if preprocessing is part of the model."""
    frozen_transformer: str | None = Field(default=None, exclude_if=lambda digest: digest is None)
    """SHA-256 of the transformer that made the features, and keeps what it learnt from rows."""

    converted_from: ConversionRecord | None = Field(
        default=None, exclude_if=lambda one: one is None
    )
    """The fitted estimator that the model was made from, and how far it was from version 0."""

    disclosure: bool = Field(default=False, exclude_if=operator.not_)
    """Whether the store keeps what versions disclose of each row (docs/disclosure.md)."""

    take_out_of_range: bool = Field(default=False, exclude_if=operator.not_)
    """Whether rows with which no version can be within the error budget are inserted all the same
    (docs/error.md)."""

    exact_sums: bool = Field(default=False, exclude_if=operator.not_)
    """Whether the state of a linear model has exact sums, and every theta_exact is correctly
    rounded (docs/exact.md)."""

    class_weights: tuple[Finite, ...] = Field(default=(), exclude_if=operator.not_)
    """A weight for each class, which multiplies those of its rows; empty if each counts as 1
    (`engine.fit.class_weights`)."""

    rows_url: str | None = Field(default=None, exclude_if=lambda url: url is None)
    """Where the files of rows lie (`engine.rowstore`); None if the store keeps the rows."""

    @model_validator(mode="after")
    def _one_weight_a_class(self) -> Self:
        names = self.target_names if self.kind is Kind.LINEAR else self.class_names
        classes = len(class_names(self.kind, names, self.m)) if self.class_weights else 0
        if len(self.class_weights) != classes or not all(w > 0 for w in self.class_weights):
            raise ValueError("class weights are a number above 0 for each class")
        return self

    def has_subjects_of(self, namespace: str | None) -> bool:
        """Return whether its subjects, if any, have a namespace; None stands for each."""
        return namespace is None or namespace == (self.subject_namespace or "")

    @property
    def weights_of_classes(self) -> ClassWeights | None:
        """The weights of its classes, if it has any."""
        return ClassWeights(self.kind, self.class_weights) if self.class_weights else None

    def weights_of(self, y: Array) -> Array:
        """Return the weights of rows by their classes, (k,), of targets k x m."""
        weights = self.weights_of_classes
        return np.ones(len(y)) if weights is None else weights.of_rows(y)

    @property
    def kind_name(self) -> Literal["linear", "logistic", "poisson", "softmax"]:
        """The kind, as versions and parameters name it."""
        match self.kind:
            case Kind.LINEAR:
                return "linear"
            case Kind.LOGISTIC:
                return "logistic"
            case Kind.POISSON:
                return "poisson"
            case Kind.SOFTMAX:
                return "softmax"

    @property
    def completes(self) -> bool:
        """Whether the exact answer is published where a projection is over the error budget."""
        return self.over_budget is not OverBudget.PUBLISH and self.output_noise is None

    @property
    def output_noise(self) -> OutputNoise | None:
        """The terms of a model whose every version is published with noise of its own."""
        return self.certify if isinstance(self.certify, OutputNoise) else None

    @cached_property
    def fixed_columns(self) -> FixedColumns:
        """What of the columns does not change with rows."""
        return FixedColumns.of(self.preprocess)

    @property
    def coefficient_names(self) -> tuple[str, ...]:
        """Names of the coordinates of theta."""
        return (*self.feature_names, *(("intercept",) if self.fit_intercept else ()))

    @property
    def d(self) -> int:
        """Length of theta, the intercept included."""
        return len(self.feature_names) + int(self.fit_intercept)

    @property
    def hard_rows(self) -> int:
        """The most rows that may change between two rebuilds."""
        return self.limits.limits().hard_rows(self.hessian[1]) // self.rank

    @property
    def row_width(self) -> int:
        """Numbers that a record keeps of a row: its features, or its columns as given."""
        return len(self.preprocess) or self.d

    @property
    def m(self) -> int:
        """Number of outputs: one a target, or one a class if there are more than two."""
        return outputs(self.target_names, self.class_names)

    @property
    def blocks(self) -> int:
        """Number of blocks that a dual row has: outputs that share one Hessian.

        0 of a model without dual rows: with exact sums, or of coupled classes.
        """
        return 0 if self.kind is Kind.SOFTMAX else self.stacked

    @property
    def stacked(self) -> int:
        """Times d coordinates of a row of V (`engine.fit.blocks`); 0 with exact sums: no V."""
        if self.exact_sums:
            return 0
        return 1 if self.kind is Kind.LINEAR else self.m

    @property
    def rank(self) -> int:
        """Rows of V that a row of the model makes (`engine.deletion.coupled`)."""
        return max(self.m - 1, 1) if self.kind is Kind.SOFTMAX else 1

    @property
    def hessian(self) -> tuple[int, int]:
        """Number of Hessians of a generation, stacked in its factor, and their size."""
        if self.kind is Kind.SOFTMAX:
            return 1, self.d * self.m
        return max(self.blocks, 1), self.d


def parse_config(data: bytes | None, model_id: str) -> ModelConfig:
    """Return a stored configuration.

    Raises
    ------
    CorruptState
        It does not parse, or is another model's.
    """
    what = f"model {model_id!r}, its stored configuration"
    config = parse_model(ModelConfig, data, what)
    if config.model_id != model_id:
        raise CorruptState(f"{what}: is that of model {config.model_id!r}; run `lethe check`")
    return config
