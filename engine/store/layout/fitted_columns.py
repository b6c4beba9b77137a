"""The columns of a model with preprocessing, as its live rows have fitted them."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from pydantic_core import to_json

from lethe.engine.errors import InvalidData
from lethe.engine.preprocess.live import LivePipeline
from lethe.engine.preprocess.transformation.layout import CodedPart, OneHotPart
from lethe.engine.store.layout.columns import (
    ColumnRecord,
    FittedColumn,
    PublishedColumns,
    fixed_part,
    numbers_of_column,
)

_CODED = ("ordinal", "target-encode")
_NUMBERS = struct.Struct("<8d")  # of a numeric column: `numbers_of_column`


def fitted_columns(records: Sequence[ColumnRecord], pipeline: LivePipeline) -> PublishedColumns:
    """Return the columns as the live rows have fitted them. Cost O(p + q).

    Raises
    ------
    InvalidData
        One of their numbers is not finite.
    """
    layout, given = pipeline.base.layout, _Given.of(pipeline)
    numeric, coded = iter(layout.numeric), iter(layout.coded)
    one_hot = iter(layout.one_hot)
    members: list[dict[str, Any]] = []
    numbers: list[bytes] = []
    for record in records:
        if record.step in ("numeric", "date"):
            fitted = _numeric(record, given, next(numeric).feature, numbers)
        elif record.step == "one-hot":
            fitted = _one_hot(record, pipeline, next(one_hot), numbers)
        else:
            fitted = _coded(record, pipeline, given, next(coded), numbers)
        members.append(fitted)
    changing = b"".join(numbers)
    if not np.isfinite(np.frombuffer(changing, "<f8")).all():
        raise InvalidData(
            "a statistic of a column is not finite; scale its numbers down, and register the model "
            "again with --replace"
        )
    return PublishedColumns(to_json(members), tuple(map(fixed_part, records)), changing)


class _Given(NamedTuple):
    """Statistics of each feature as it is given, p numbers each."""

    mean: list[float]
    deviation: list[float]
    imputed: list[float]

    @classmethod
    def of(cls, pipeline: LivePipeline) -> _Given:
        base, live = pipeline.base, pipeline.answer.live
        return cls(  # with 0.0 in place of -0.0, which readers do not get to see
            (base.centre + base.scale * live.mean + 0.0).tolist(),
            (base.scale * live.deviation).tolist(),
            (base.centre + base.scale * live.imputed + 0.0).tolist(),
        )


def _numeric(record: ColumnRecord, given: _Given, j: int, numbers: list[bytes]) -> dict[str, Any]:
    """Return a column's members, and add its numbers to those before."""
    mean, deviation = given.mean[j], given.deviation[j]
    members: dict[str, Any] = {"name": record.name, "step": record.step}
    imputed = 0.0
    if record.impute:
        members["impute"] = imputed = given.imputed[j]
    numbers.append(_NUMBERS.pack(record.impute, imputed, mean, deviation, 0, 0, 0, 0))
    return members | _scaling(mean, deviation)


def _one_hot(
    record: ColumnRecord, pipeline: LivePipeline, part: OneHotPart, numbers: list[bytes]
) -> dict[str, Any]:
    vanished = _without_rows(pipeline.answer.sums.present[part.features])
    numbers.append(_packed(None, 0.0, 1.0, (), vanished, None))
    members: dict[str, Any] = {"name": record.name, "step": record.step}
    members |= _given_only(categories=record.categories, vanished=vanished)
    if record.unknown == "ignore":
        members["ignores_unknown"] = True
    return members


def _coded(
    record: ColumnRecord,
    pipeline: LivePipeline,
    given: _Given,
    part: CodedPart,
    numbers: list[bytes],
) -> dict[str, Any]:
    base, live, j = pipeline.base, pipeline.answer.live, part.feature
    own, counts = part.entries, pipeline.answer.sums.counts[part.entries]
    places = base.centre[j] + base.scale[j] * (base.value[own] + live.shift[own])
    vanished: tuple[int, ...] = ()
    otherwise = None
    if record.step == "target-encode":
        otherwise = live.target_mean
        places = np.where(counts > 0, places, otherwise)
    elif record.ordered:
        places = np.arange(len(counts), dtype=np.float64)
    else:
        vanished = _without_rows(counts)
    values, mean, deviation = tuple(places.tolist()), given.mean[j], given.deviation[j]
    numbers.append(_packed(None, mean, deviation, values, vanished, otherwise))
    members: dict[str, Any] = {"name": record.name, "step": record.step}
    members |= _scaling(mean, deviation)
    members |= _given_only(categories=record.categories, values=values, vanished=vanished)
    if otherwise is not None:
        members["otherwise"] = otherwise
    return members


def _scaling(mean: float, deviation: float) -> dict[str, float]:
    """Return the members of the scaling that are not at their defaults."""
    members = {"mean": mean} if mean else {}
    return members if deviation == 1.0 else members | {"deviation": deviation}


def _given_only(**lists: tuple[Any, ...]) -> dict[str, tuple[Any, ...]]:
    """Return the lists that are not empty."""
    return {name: values for name, values in lists.items() if values}


def _packed(*changing: Any) -> bytes:
    numbers = numbers_of_column(*changing)
    return struct.pack(f"<{len(numbers)}d", *numbers)


def _without_rows(counts: NDArray[np.int64]) -> tuple[int, ...]:
    return tuple(np.flatnonzero(counts == 0).tolist())


def empty_columns(records: Sequence[ColumnRecord]) -> PublishedColumns:
    """Return the columns of a model without rows: every row has the features 0 or is refused."""
    return PublishedColumns.of(
        [
            FittedColumn(
                name=record.name,
                step=record.step,
                impute=0.0 if record.impute else None,
                categories=record.categories,
                values=(0.0,) * len(record.categories) if record.step in _CODED else (),
                otherwise=0.0 if record.step in _CODED else None,
                ignores_unknown=record.step == "one-hot",
            )
            for record in records
        ]
    )
