"""The sums over the live rows of a model with preprocessing, as the store keeps them.

They are written whole at a rebuild; a commit writes the rows that came and went since then.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from lethe.engine.errors import CorruptState
from lethe.engine.fit.objective import Array, Kind
from lethe.engine.preprocess.transformation.base import BaseTransformation
from lethe.engine.preprocess.transformation.layout import Layout
from lethe.engine.preprocess.transformation.order import Interval, Window
from lethe.engine.preprocess.transformation.sums import (
    Contribution,
    MatrixTotal,
    RowsSummed,
    Sums,
    Total,
    cancelled_in_errors,
)
from lethe.engine.store.layout import codec

_TOTALS = ("first", "second", "target", "all_target", "responses", "weighted", "errors")
_SCALARS = ("rows", "square_size", "response_size", "error_size", "longest", "reach", "balanced")
_ALL = "all"
"""Field of the sums that are not by entry; those of an entry are named by its number."""

_WINDOW = "window:"
"""Before the number of a window: fields of the values about a quantile."""

SINCE = "since:"
"""Before a number from 0 on: fields of the rows that came and went since then."""

_SINCE = SINCE.encode()

FIRST_SINCE = f"{SINCE}0"
"""A field that is there if anything came or went."""


def packed_sums(sums: Sums) -> dict[str, bytes]:
    """Return sums as the fields of a hash, whole: nothing has come or gone since."""
    head = np.array([getattr(sums, name) for name in _SCALARS], dtype=np.float64)
    parts = [head, sums.counts.astype(np.float64), sums.present.astype(np.float64)]
    for name in _TOTALS:
        parts += [total.ravel() for total in getattr(sums, name)]
    fields = {_ALL: codec.pack(np.concatenate(parts))}
    totals = (*sums.crossed.copy(joined=True), *sums.paired.copy(joined=True))
    for entry in range(len(sums.counts)):
        fields[str(entry)] = codec.pack(np.concatenate([total[entry] for total in totals]))
    for number, window in enumerate(sums.windows):
        outside = [window.below, window.above]
        packed = codec.pack(np.concatenate([outside, window.counts, window.values]))
        fields[f"{_WINDOW}{number}"] = packed
    return fields


def _unpack_window(stored: bytes | None, interval: Interval, what: str) -> Window:
    size = max(2, len(stored or b"") // 8)
    numbers = codec.unpack(stored, (size,), what)
    below, above = numbers[:2]
    counts, values = numbers[2 : 2 + size // 2 - 1], numbers[2 + size // 2 - 1 :]
    if (
        size % 2
        or min(below, above, counts.min(initial=1) - 1) < 0
        or (numbers[: 2 + len(counts)] % 1).any()
        or (np.diff(values) <= 0).any()
        or not interval.low <= values.min(initial=interval.high)
        or not values.max(initial=interval.low) <= interval.high
    ):
        raise CorruptState(f"{what}: are those of no rows; run `lethe check`")
    return Window(interval, values, counts.astype(np.int64), int(below), int(above))


def packed_since(sums: Sums, before: Sums | None = None) -> dict[str, bytes]:
    """Return the fields of what came and went since ``before``, or since the sums were written.

    A commit writes these and no sums: 8 d bytes a row, where the sums of the entries that ten rows
    have take megabytes. V gets a row for each of them, too.
    """
    first = 0 if before is None else len(before.since)
    return {
        f"{SINCE}{number}": codec.pack(_as_numbers(part))
        for number, part in enumerate(sums.since[first:], first)
    }


def _as_numbers(part: RowsSummed) -> Array:
    """Return sign, and then of each row curvatures, target, reach, entries, x, response, error."""
    rows = part.rows
    scalars = np.column_stack([rows.curvature, rows.target, rows.reach, rows.entries])
    return np.append(np.float64(part.sign), np.hstack([scalars, rows.X, rows.response, rows.error]))


def _unpack_since(
    stored: bytes, layout: Layout, d: int, m: int, what: str, *, kind: Kind
) -> RowsSummed:
    """Return what `_as_numbers` was given."""
    e, h = (0, 1) if kind is Kind.LINEAR else (m, m)
    width = h + 2 + layout.places + d + m + e
    rows = max(1, len(stored) // (8 * width))
    numbers = codec.unpack(stored, (1 + rows * width,), what)
    sign, parts = numbers[0], numbers[1:].reshape(rows, width)
    scalars, entries, X, response, error = np.split(
        parts, np.cumsum([h + 2, layout.places, d, m]), axis=1
    )
    most = np.repeat([layout.entries, layout.features], [layout.moving, len(layout.counted)])
    known = (entries >= -1) & (entries < most) & (entries == np.floor(entries))
    if abs(sign) != 1 or not known.all():
        raise CorruptState(f"{what}: a row is none of the model's; run `lethe check`")
    curvature, (target, reach) = scalars[:, :h].copy(), scalars[:, h:].T.copy()
    cancelled = cancelled_in_errors(kind, curvature, error)
    places = entries.astype(np.intp)
    return RowsSummed(
        Contribution(X, places, curvature, response, target, error, reach, cancelled), int(sign)
    )


def unpack_sums(
    stored: Mapping[bytes, bytes],
    base: BaseTransformation,
    d: int,
    m: int,
    what: str,
    *,
    kind: Kind,
) -> Sums:
    """Return stored sums of a model with d coefficients and m targets.

    Raises
    ------
    CorruptState
        They are not those of this layout.
    """
    layout = base.layout
    p, q, h = layout.features, layout.entries, 1 if kind is Kind.LINEAR else m
    shapes = {"first": (p,), "second": (p,), "target": (2, q), "all_target": (2,)}
    shapes |= {"responses": (q, m), "weighted": (h * d,)}
    shapes["errors"] = (d, 0 if kind is Kind.LINEAR else m)
    sizes = [
        len(_SCALARS),
        q,
        p,
        *(int(np.prod(shapes[name])) for name in _TOTALS for _ in range(2)),
    ]
    what = f"{what}, its sums"
    numbers = codec.unpack(stored.get(_ALL.encode()), (sum(sizes),), what)
    head, counts, present, *flat = np.split(numbers, np.cumsum(sizes)[:-1])
    fields: dict[str, Any] = {
        name: Total(flat[2 * i].reshape(shapes[name]), flat[2 * i + 1].reshape(shapes[name]))
        for i, name in enumerate(_TOTALS)
    }
    fields |= zip(_SCALARS[1:], map(float, head[1:]), strict=True)
    rows = [stored.get(b"%d" % entry) for entry in range(q)]
    width = 2 * h * (d + q)
    by_entry = [codec.unpack(row, (width,), what) for row in rows]
    entries = np.array(by_entry).reshape(q, width)
    cuts = np.cumsum([h * d, h * d, h * q])
    high, low, paired_high, paired_low = np.split(entries, cuts, axis=1)
    unbounded = kind is not Kind.LINEAR and not fields["balanced"] > 0
    least = min(head.min(), counts.min(initial=0), present.min(initial=0))
    if not head[0] >= 1 or least < 0 or unbounded:
        raise CorruptState(f"{what}: are those of no rows; run `lethe check`")
    written = Sums(
        rows=int(head[0]),
        counts=counts.astype(np.int64),
        present=present.astype(np.int64),
        crossed=MatrixTotal(high.copy(), low.copy()),
        paired=MatrixTotal(paired_high.copy(), paired_low.copy()),
        windows=tuple(
            _unpack_window(stored.get(f"{_WINDOW}{number}".encode()), interval, what)
            for number, interval in enumerate(base.intervals)
        ),
        **fields,
    )
    return _with_rows_since(written, stored, layout, d, m, what, kind=kind)


def _with_rows_since(
    written: Sums,
    stored: Mapping[bytes, bytes],
    layout: Layout,
    d: int,
    m: int,
    what: str,
    *,
    kind: Kind,
) -> Sums:
    """Return sums with what came and went since they were written."""
    count = sum(field.startswith(_SINCE) for field in stored)
    parts = [stored.get(f"{SINCE}{number}".encode()) for number in range(count)]
    since = [_unpack_since(part or b"", layout, d, m, what, kind=kind) for part in parts]
    sums = written
    for sign in (1, -1):
        moved = [part.rows for part in since if part.sign == sign]
        if moved:
            sums = sums.changed(layout, Contribution.joined(moved), sign)
    least = [sums.rows - 1, sums.counts.min(initial=0), sums.present.min(initial=0)]
    least += [min(w.below, w.above, w.counts.min(initial=0)) for w in sums.windows]
    if min(least) < 0:
        raise CorruptState(f"{what}: are those of no rows; run `lethe check`")
    return replace(sums, since=tuple(since))
