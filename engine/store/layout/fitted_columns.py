"""The columns of a model with preprocessing, as its live rows have fitted them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from lethe.engine.preprocess.live import LivePipeline
from lethe.engine.preprocess.transformation.layout import CodedPart
from lethe.engine.store.layout.columns import ColumnRecord, FittedColumn, columns_of

_CODED = ("ordinal", "target-encode")


def fitted_columns(
    records: Sequence[ColumnRecord], pipeline: LivePipeline
) -> tuple[FittedColumn, ...]:
    """Return the columns as the live rows have fitted them. Cost O(p + q)."""
    layout, statistics = pipeline.base.layout, _Given.of(pipeline)
    numeric, coded = iter(layout.numeric), iter(layout.coded)
    one_hot = iter(layout.one_hot)
    fitted: list[dict[str, Any]] = []
    for record in records:
        if record.step in ("numeric", "date"):
            fitted.append(_numeric(record, statistics, next(numeric).feature))
        elif record.step == "one-hot":
            there = pipeline.answer.sums.present[next(one_hot).features]
            fitted.append(
                {
                    "name": record.name,
                    "step": record.step,
                    "categories": record.categories,
                    "vanished": _without_rows(there),
                    "ignores_unknown": record.unknown == "ignore",
                }
            )
        else:
            fitted.append(_coded(record, pipeline, statistics, next(coded)))
    return columns_of(fitted)


class _Given(NamedTuple):
    """Statistics of each feature as it is given, p numbers each."""

    mean: list[float]
    deviation: list[float]
    imputed: list[float]

    @classmethod
    def of(cls, pipeline: LivePipeline) -> _Given:
        base, live = pipeline.base, pipeline.answer.live
        return cls(
            (base.centre + base.scale * live.mean).tolist(),
            (base.scale * live.deviation).tolist(),
            (base.centre + base.scale * live.imputed).tolist(),
        )


def _numeric(record: ColumnRecord, given: _Given, j: int) -> dict[str, Any]:
    return {
        "name": record.name,
        "step": record.step,
        "impute": given.imputed[j] if record.impute else None,
        "mean": given.mean[j],
        "deviation": given.deviation[j],
    }


def _coded(
    record: ColumnRecord, pipeline: LivePipeline, given: _Given, part: CodedPart
) -> dict[str, Any]:
    base, live, j = pipeline.base, pipeline.answer.live, part.feature
    own, counts = part.entries, pipeline.answer.sums.counts[part.entries]
    values = base.centre[j] + base.scale[j] * (base.value[own] + live.shift[own])
    vanished: tuple[int, ...] = ()
    otherwise = None
    if record.step == "target-encode":
        otherwise = live.target_mean
        values = np.where(counts > 0, values, otherwise)
    elif record.ordered:
        values = np.arange(len(counts), dtype=np.float64)
    else:
        vanished = _without_rows(counts)
    return {
        "name": record.name,
        "step": record.step,
        "categories": record.categories,
        "values": tuple(values.tolist()),
        "vanished": vanished,
        "otherwise": otherwise,
        "mean": given.mean[j],
        "deviation": given.deviation[j],
    }


def _without_rows(counts: NDArray[np.int64]) -> tuple[int, ...]:
    return tuple(np.flatnonzero(counts == 0).tolist())


def empty_columns(records: Sequence[ColumnRecord]) -> tuple[FittedColumn, ...]:
    """Return the columns of a model without rows: every row has the features 0 or is refused."""
    return tuple(
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
    )
