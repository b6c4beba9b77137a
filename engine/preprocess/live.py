"""A model's live pipeline as a value: what a service keeps of it beside generation and stream.

The layout is fixed: a category keeps its place when its last row goes, and one that has no place is
refused. So theta has the same coordinates from registration on.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from lethe.engine.deletion.change import RowMoves, change as change_rows
from lethe.engine.deletion.generation import Generation, Stream
from lethe.engine.error.estimate import PublishedError
from lethe.engine.errors import StatisticsMoved
from lethe.engine.fit.factor import Factor
from lethe.engine.fit.objective import Array, Rows
from lethe.engine.preprocess.answer import (
    LiveAnswer,
    contribution,
    published_by,
    resumed_answer,
    settled_answer,
)
from lethe.engine.preprocess.error import proved_error
from lethe.engine.preprocess.input.table import Table, Vocabulary
from lethe.engine.preprocess.published import PipelineUnits, published_parameters
from lethe.engine.preprocess.transformation.base import BaseTransformation
from lethe.engine.preprocess.transformation.layout import Places
from lethe.engine.preprocess.transformation.sums import RowsSummed, Sums


@dataclass(frozen=True, slots=True)
class LivePipeline:
    """The preprocessing of a model, with a free or no intercept.

    Attributes
    ----------
    base
        The transformation that the generation's rows are in the units of.
    vocabularies
        The categories of each column of them.
    answer
        Sums over the live rows, and what follows from them at the stream's theta_exact.
    intercept
        Whether theta's last row is one.
    """

    base: BaseTransformation
    vocabularies: tuple[Vocabulary, ...]
    answer: LiveAnswer
    intercept: bool

    @classmethod
    def resumed(
        cls,
        base: BaseTransformation,
        vocabularies: tuple[Vocabulary, ...],
        generation: Generation,
        stream: Stream,
        sums: Sums,
        *,
        intercept: bool,
    ) -> LivePipeline:
        """Return the pipeline of a stream, from the sums over its rows. Cost O(q (d + q)).

        Raises
        ------
        StatisticsMoved
            The statistics are too far from the base.
        """
        answer = resumed_answer(base, generation, stream, sums, vocabularies)
        return cls(base, vocabularies, answer, intercept)

    def at(self, generation: Generation, stream: Stream, sums: Sums) -> LivePipeline:
        """Return the pipeline of another stream of the generation: see `resumed`."""
        base, known = self.base, self.vocabularies
        return self.resumed(base, known, generation, stream, sums, intercept=self.intercept)

    @property
    def units(self) -> PipelineUnits:
        """The map from base units to those of the pipeline's last step."""
        return PipelineUnits.of(self.answer.live, intercept=self.intercept)

    def features(self, table: Table) -> Array:
        """Return a table's rows in base units, k x d. Cost O(k p)."""
        return self.base.rows(table, intercept=self.intercept)[0]

    def rows(self, table: Table, y: Array, weight: Array) -> tuple[Rows, Places]:
        """Return a table's rows in base units, and their places. Cost O(k p)."""
        X, entries = self.base.rows(table, intercept=self.intercept)
        return Rows(X, y, weight), entries

    def sums_after(self, generation: Generation, change: RowMoves) -> Sums:
        """Return the sums over the live rows after a change, and note it. Cost O(k (p + g d))."""
        sums = self.answer.sums
        for rows, sign in ((change.arriving, 1), (change.leaving, -1)):
            if rows is None:
                continue
            if rows.entries is None:
                raise AssertionError("rows of a model with preprocessing have places")
            # The reach of rows that leave stays in the sum: it is a bound.
            dual = (rows.W, rows.dual_error) if sign == 1 else ()
            moved = contribution(generation, self.base, rows.rows, rows.entries, *dual)
            sums = sums.changed(self.base.layout, moved, sign)
            sums = replace(sums, since=(*sums.since, RowsSummed(moved, sign)))
        return sums

    def with_sums(self, sums: Sums) -> LivePipeline:
        """Return the pipeline with other sums, from which nothing else has followed yet."""
        return replace(self, answer=replace(self.answer, sums=sums))

    def after(
        self,
        generation: Generation,
        stream: Stream,
        factor: Factor,
        change: RowMoves,
        method: str,
    ) -> tuple[Stream, LivePipeline]:
        """Return stream and pipeline once the statistics have followed a change of rows.

        ``stream`` has followed it already (`engine.deletion.change`).

        Raises
        ------
        StatisticsMoved
            The statistics are too far from the base: a rebuild makes them the base. Or one class is
            left, and the intercept is penalised for now: rows of another would free it.

        Notes
        -----
        Cost O(d^2 + K d + q d) a correction.
        """
        if self.intercept and generation.objective.penalty[-1] > 0:
            raise StatisticsMoved("one class is left, so that every change is a rebuild")
        stream, answer = settled_answer(
            self.base,
            generation,
            stream,
            factor,
            self.sums_after(generation, change),
            self.vocabularies,
            self.answer.gradient,
        )
        return published_by(stream, method), replace(self, answer=answer)

    def published(self, stream: Stream) -> Array:
        """Return the parameters of the pipeline's last step as published, d x m."""
        return published_parameters(self.base, self.answer, self.units, stream)

    def error(self, generation: Generation, stream: Stream) -> PublishedError:
        """Return the error of what is published against the pipeline refitted on the live rows.

        Raises
        ------
        IllConditioned
            It is not a finite number.
        """
        return proved_error(self.base, generation, stream, self.answer, self.units)


def change_model(
    generation: Generation,
    stream: Stream,
    pipeline: LivePipeline | None,
    moved: RowMoves,
    method: str,
    factor: Factor | None,
) -> tuple[Stream, LivePipeline | None]:
    """Return stream and pipeline after a change of rows.

    Parameters
    ----------
    generation, stream, pipeline
        The model before; ``pipeline`` is None without preprocessing, or with exact sums.
    moved, method
        As `engine.deletion.change.change`.
    factor
        Needed for what is published with preprocessing; without it only the sums follow.

    Raises
    ------
    IllConditioned
        A guard refuses; the model before stands.
    """
    stream = change_rows(generation, stream, moved, method)
    if pipeline is None:
        return stream, None
    if factor is None:
        return stream, pipeline.with_sums(pipeline.sums_after(generation, moved))
    return pipeline.after(generation, stream, factor, moved, method)
