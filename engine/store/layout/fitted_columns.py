"""The columns of a model with preprocessing, as its live rows have fitted them."""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray
from pydantic_core import to_json

from lethe.engine.errors import InvalidData
from lethe.engine.exact.running import Solution
from lethe.engine.fit.objective import Array
from lethe.engine.preprocess.input.columns import standardised
from lethe.engine.preprocess.live import LivePipeline
from lethe.engine.preprocess.rounded.raw import untransformed
from lethe.engine.preprocess.transformation.base import BaseTransformation
from lethe.engine.preprocess.transformation.categories import OneHotPart
from lethe.engine.preprocess.transformation.layout import (
    CodedPart,
    Layout,
)
from lethe.engine.preprocess.transformation.statistics import Statistics
from lethe.engine.store.layout.columns import (
    NUMERIC,
    ColumnRecord,
    FittedColumn,
    FixedColumns,
    PublishedColumns,
    numbers_of_column,
    numbers_of_rare,
)

_CODED = ("ordinal", "target-encode")


_Fitted: TypeAlias = tuple[bytes, bytes]
"""A column as JSON, and its `numbers_of_column`."""


class Learnt(NamedTuple):
    """What a pipeline has learnt from its live rows.

    Attributes
    ----------
    base, live
        A transformation, and the live rows' own in its units.
    counts
        Live rows of each entry.
    """

    base: BaseTransformation
    live: Statistics
    counts: NDArray[np.int64]

    @classmethod
    def of_pipeline(cls, pipeline: LivePipeline) -> Learnt:
        """Return what a pipeline with settled statistics has learnt."""
        sums = pipeline.answer.sums
        return cls(pipeline.base, pipeline.answer.live, sums.counts)

    @classmethod
    def of_sums(cls, solution: Solution) -> Learnt:
        """Return what a pipeline with exact sums has learnt, each number rounded once."""
        from lethe.engine.preprocess.rounded.solution import (  # noqa: PLC0415 (flint)
            PipelineSolution,
        )

        if not isinstance(solution, PipelineSolution):
            raise TypeError("the sums are those of a model without preprocessing")
        live = solution.live
        base = untransformed(solution.raw.layout)
        return cls(base, solution.statistics(), live.counts)


def fitted_columns(columns: FixedColumns, pipeline: Learnt) -> PublishedColumns:
    """Return the columns as the live rows have fitted them. Cost O(p + q).

    Raises
    ------
    InvalidData
        One of their numbers is not finite.
    """
    layout, given = pipeline.base.layout, _Given.of(pipeline)
    numeric, coded = _numeric(columns, given, layout), iter(layout.coded)
    one_hot = iter(layout.one_hot)
    packed: list[bytes] = []
    numbers: list[bytes] = []
    for record, start in zip(columns.records, columns.starts, strict=True):
        if record.step in NUMERIC:
            text, of_column = next(numeric)
        elif record.step == "one-hot":
            text, of_column = _one_hot(record, start, pipeline, given, next(one_hot))
        else:
            text, of_column = _coded(record, start, pipeline, given, next(coded))
        packed.append(text)
        numbers.append(of_column)
    changing = b"".join(numbers)
    if not np.isfinite(np.frombuffer(changing, "<f8")).all():
        raise InvalidData(
            "a statistic of a column is not finite; scale its numbers down, and register the model "
            "again with --replace"
        )
    return PublishedColumns(b"[" + b",".join(packed) + b"]", columns.parts, changing)


class _Given(NamedTuple):
    """Statistics of each feature as it is given, p numbers each."""

    mean: Array
    deviation: Array
    imputed: Array

    @classmethod
    def of(cls, pipeline: Learnt) -> _Given:
        base, live = pipeline.base, pipeline.live
        return cls(  # with 0.0 in place of -0.0, which readers do not get to see
            base.centre + base.scale * live.mean + 0.0,
            base.scale * live.deviation,
            base.centre + base.scale * live.imputed + 0.0,
        )


def _numeric(columns: FixedColumns, given: _Given, layout: Layout) -> Iterator[_Fitted]:
    """Return the numeric columns: they are many, so nothing is computed one by one."""
    if not layout.numeric:
        return iter(())
    j, imputes = layout.numeric_features, np.array(columns.imputes, dtype=np.bool_)
    mean, deviation = given.mean[j], given.deviation[j]
    imputed = np.where(imputes, given.imputed[j], 0.0)
    numbers = np.zeros((len(j), len(numbers_of_column(None, 0.0, 1.0, (), (), None))))
    numbers[:, :4] = np.column_stack([imputes, imputed, mean, deviation])
    packed, size = numbers.tobytes(), numbers.strides[0]
    members = zip(
        columns.numeric_starts,
        _members(b',"impute":', imputed, imputes),
        _members(b',"mean":', mean, mean != 0.0),
        _members(b',"deviation":', deviation, deviation != 1.0),
        strict=True,
    )
    places = range(0, len(packed), size)
    return (
        (b"%b%b%b%b}" % parts, packed[at : at + size])
        for parts, at in zip(members, places, strict=True)
    )


def _members(name: bytes, values: Array, given: NDArray[np.bool_]) -> list[bytes]:
    """Return a member of each object as JSON; nothing where it is not ``given``."""
    texts = to_json(values.tolist())[1:-1].split(b",")
    return [name + text if one else b"" for text, one in zip(texts, given.tolist(), strict=True)]


def _one_hot(
    record: ColumnRecord, start: bytes, pipeline: Learnt, given: _Given, part: OneHotPart
) -> _Fitted:
    own, values = part.features, ()
    if standardised(part.column):
        values = (*given.mean[own].tolist(), *given.deviation[own].tolist())
    there = pipeline.live.present[part.categories]
    vanished = () if record.ordered else _without_rows(there)
    rare = np.flatnonzero(pipeline.live.rare[part.categories] & (there > 0)).tolist()
    members: dict[str, Any] = {}
    impute = otherwise = None
    if part.column.impute is not None:  # the place of what stands in for a missing category
        members["impute"] = impute = float(np.argmax(pipeline.base.mode[part.features]))
    members |= _given_only(
        categories=record.categories, values=values, vanished=vanished, rare=rare
    )
    if rare and record.unknown == "infrequent_if_exist":
        members["otherwise"] = otherwise = float(len(record.categories))
    members |= {"shares": True} if record.shares else {}
    members |= {"ignores_unknown": True} if record.unknown != "error" else {}
    changing = numbers_of_column(impute, 0.0, 1.0, values, vanished, otherwise)
    changing += numbers_of_rare(rare) if record.shares else ()
    return _object(start, members), struct.pack(f"<{len(changing)}d", *changing)


def _coded(
    record: ColumnRecord, start: bytes, pipeline: Learnt, given: _Given, part: CodedPart
) -> _Fitted:
    base, live, j = pipeline.base, pipeline.live, part.feature
    own, counts = part.entries, pipeline.counts[part.entries]
    places = base.centre[j] + base.scale[j] * (base.value[own] + live.shift[own])
    vanished: tuple[int, ...] = ()
    otherwise = None if record.otherwise is None else float(record.otherwise)
    if record.step == "target-encode":
        otherwise = live.target_mean
        places = np.where(counts > 0, places, otherwise)
    elif record.ordered:
        places = np.arange(len(counts), dtype=np.float64)
    else:
        vanished = _without_rows(counts)
    mean, deviation = float(given.mean[j]), float(given.deviation[j])
    values = tuple(places.tolist())
    members: dict[str, Any] = _scaling(mean, deviation)
    members |= _given_only(categories=record.categories, values=values, vanished=vanished)
    if otherwise is not None:
        members["otherwise"] = otherwise
    changing = numbers_of_column(None, mean, deviation, values, vanished, otherwise)
    return _object(start, members), struct.pack(f"<{len(changing)}d", *changing)


def _object(start: bytes, members: dict[str, Any]) -> bytes:
    """Return an object as JSON, from its start and its further members."""
    return start + (b"," if members else b"") + to_json(members)[1:]


def _scaling(mean: float, deviation: float) -> dict[str, float]:
    """Return the members of the scaling that are not at their defaults."""
    members = {"mean": mean} if mean else {}
    return members if deviation == 1.0 else members | {"deviation": deviation}


def _given_only(**lists: Sequence[Any]) -> dict[str, Sequence[Any]]:
    """Return the lists that are not empty."""
    return {name: values for name, values in lists.items() if values}


def _without_rows(counts: NDArray[np.int64]) -> tuple[int, ...]:
    return tuple(np.flatnonzero(counts == 0).tolist())


def empty_columns(records: Sequence[ColumnRecord]) -> PublishedColumns:
    """Return the columns of a model without rows: every row has the features 0 or is refused."""
    return PublishedColumns.of(
        [
            FittedColumn(
                name=record.name,
                step=record.step,
                impute=0.0 if record.impute and record.step in NUMERIC else None,
                categories=record.categories,
                values=_no_values(record),
                otherwise=0.0 if record.step in _CODED else None,
                shares=record.shares,
                ignores_unknown=record.step == "one-hot",
                of=record.of,
            )
            for record in records
        ]
    )


def _no_values(record: ColumnRecord) -> tuple[float, ...]:
    k = len(record.categories)
    if record.step in _CODED:
        return (0.0,) * k
    k += int(record.shares)
    return (0.0,) * k + (1.0,) * k if record.step == "one-hot" and record.standardise else ()
