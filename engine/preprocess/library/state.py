"""The state of a fitted library model whose preprocessing is part of it, and what it says.

The engine's rows are rows in base units (`engine.preprocess.transformation.base`), and its stream
is that of a bare model on them, with one difference: theta_exact is the answer for the live
statistics, which every change settles anew (`engine.preprocess.movement`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from lethe.engine.deletion.generation import Stream
from lethe.engine.error.estimate import ErrorKind, PublishedError
from lethe.engine.error.sentinels import Sentinels
from lethe.engine.errors import InvalidData
from lethe.engine.fit.objective import Array, Kind, Rows
from lethe.engine.fitted import Fitted
from lethe.engine.preprocess.answer import LiveAnswer
from lethe.engine.preprocess.error import Sample, pipeline_error, sampled_estimate
from lethe.engine.preprocess.input.settings import Settings, check_outputs
from lethe.engine.preprocess.input.table import Table, numeric_names
from lethe.engine.preprocess.published import PipelineUnits, published_parameters
from lethe.engine.preprocess.transformation.base import BaseTransformation
from lethe.engine.preprocess.transformation.layout import Layout, Places, check_dropped
from lethe.engine.preprocess.transformation.predicting import pipeline_features
from lethe.engine.rows import checked_rows


@dataclass(frozen=True, slots=True)
class PreparedRows(Rows):
    """Rows in base units, with the table that they were made from.

    Rows that the base does not know (a new category, a first missing number) have 0 there.
    """

    table: Table


@dataclass(frozen=True, slots=True)
class GivenRows:
    """The rows of a fit as they were given: names, table, targets (n x m), weights and classes."""

    names: tuple[str, ...]
    table: Table
    y: Array
    weight: Array
    classes: tuple[str, ...]

    @classmethod
    def read(
        cls,
        settings: Settings,
        X: Any,
        y: ArrayLike,
        ids: Sequence[str] | None,
        sample_weight: ArrayLike | None,
    ) -> GivenRows:
        """Read what `fit` is given.

        Raises
        ------
        InvalidData
            As `engine.models`.
        """
        table = settings.read(X)
        check_dropped(settings.columns, table)
        nothing = np.zeros((len(table), 1))  # features are not numbers yet
        names, rows, classes = checked_rows(
            settings.kind, nothing, y, ids, sample_weight, intercept=False
        )
        check_outputs(settings.columns, rows.y.shape[1])
        for name, column in zip(numeric_names(settings.columns), table.numbers.T, strict=True):
            if np.isnan(column).all():
                raise InvalidData(f"column {name!r} has no value in any row; leave it out")
        return cls(names, table, rows.y, rows.weight, classes)


@dataclass(slots=True, kw_only=True)
class PreparedState(Fitted):
    """Everything that `fit` produces for a model with preprocessing, and what is read from it.

    Attributes
    ----------
    settings
        What was asked for.
    table, entries
        The rows before any transformation, and their entries (n x g), by place; 0 where deleted.
    base
        The transformation to base units.
    answer
        The live answer.
    """

    settings: Settings
    table: Table
    entries: Places
    base: BaseTransformation
    answer: LiveAnswer

    @property
    def units(self) -> PipelineUnits:
        """The map from base units to the pipeline's."""
        return self._units_of(self.answer)

    @property
    def layout(self) -> Layout:
        """Where everything is."""
        return self.base.layout

    @property
    def present(self) -> NDArray[np.int64]:
        """(p,) rows that are not 0 in a feature: of one-hot features, those of the category."""
        return self.answer.live.present

    @property
    def left_out(self) -> NDArray[np.bool_]:
        """(p,) whether a feature is that of a category that is left out."""
        return self.base.left_out

    @property
    def offsets(self) -> Array:
        """(p,) the size of what is subtracted from each feature, in its own units."""
        offsets: Array = np.abs(self.base.centre) / self.base.scale
        return offsets

    @property
    def feature_names(self) -> tuple[str, ...]:
        """Names of the features that theta belongs to, of one-hot ones with their category."""
        return self.base.layout.names

    @property
    def published(self) -> Array:
        """The final step's published parameters, d x m, the intercept last."""
        return published_parameters(self.base, self.answer, self.units, self.stream)

    @property
    def error(self) -> PublishedError:
        """Error of what is published against the pipeline refitted on the live rows."""
        if self.members.weighted == 0:
            return PublishedError(0.0, ErrorKind.EXACT, 0.0, 0.0)
        return self._error_of(
            self.stream, self.answer, self.sentinels, len(self.members), self.certified
        )

    def _error_of(
        self,
        stream: Stream,
        answer: LiveAnswer,
        sentinels: Sentinels,
        rows_live: int,
        certified: float | None,
    ) -> PublishedError:
        """Return the error of a state whose other parts are this one's.

        Raises
        ------
        IllConditioned
            It is not a finite number.
        """
        return pipeline_error(
            self.base,
            self.generation,
            self.factor,
            stream,
            answer,
            self._units_of(answer),
            self._sample(sentinels, rows_live),
            fresh=certified is not None,
        )

    def estimate(self) -> float | None:
        """Return the sentinels' estimate in the pipeline's units; 0 where there is a bound."""
        if self.settings.kind is Kind.LINEAR or self.certified is not None:
            return 0.0
        return sampled_estimate(
            self.base,
            self.generation,
            self.factor,
            self.stream,
            self.answer,
            self.units,
            self._sample(self.sentinels, len(self.members)),
        )

    def _sample(self, sentinels: Sentinels, rows_live: int) -> Sample:
        """Return the sample with its entries; a linear model's error needs no sample."""
        linear = self.settings.kind is Kind.LINEAR
        places = self.members.places(() if linear else sentinels.ids)
        return Sample(sentinels, self.entries[places], rows_live)

    def _units_of(self, answer: LiveAnswer) -> PipelineUnits:
        return PipelineUnits.of(answer.live, intercept=self.settings.intercept)

    def features(self, X: Any) -> Array:
        """Return what the live pipeline makes of a table, n x p.

        Raises
        ------
        InvalidData
            As `Settings.read` and `pipeline_features`.
        """
        sums = self.answer.sums
        return pipeline_features(
            self.base,
            self.answer.live,
            sums.counts,
            self.settings.read(X, self.table.vocabularies),
        )

    def read(self, X: Any) -> tuple[Table, Array]:
        """Return new rows as a table, and their features in base units (0 where unknown).

        Raises
        ------
        InvalidData
            As `Settings.read`.
        """
        table = self.settings.read(X, self.table.vocabularies)
        features, _ = self.base.rows(table)
        return table, np.nan_to_num(features, nan=0.0)

    def needs_refit(self, ids: tuple[str, ...]) -> bool:
        """Return whether there is no step: of `Fitted`, or the intercept is penalised for now."""
        return self._intercept_held or super(PreparedState, self).needs_refit(ids)

    @property
    def _intercept_held(self) -> bool:
        """Whether the intercept is penalised because a class has no row: its rows would free it."""
        penalised = bool(self.generation.objective.penalty[-1] > 0)
        return penalised and self.settings.free_intercept

    def needs_refit_for(self, new: Rows, old: tuple[str, ...]) -> bool:
        """Return whether a change cannot be a step; a new category, or a first gap, is none."""
        known = isinstance(new, PreparedRows) and self.base.knows(new.table)
        return (
            self._intercept_held
            or not known
            or super(PreparedState, self).needs_refit_for(new, old)
        )
