"""Rows of a file for which a model with preprocessing has no place, named before they are sent.

A category, or a first missing number, that no row had at registration would give the model another
coordinate: such a row is refused, and with it the request that it is in. A receipt, which many can
read, does not name it; the command that has the file does.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from lethe.consumers.contract.events import RowValue
from lethe.consumers.registration.table.reader import GivenRows
from lethe.engine.preprocess.input.by_name import given_columns
from lethe.engine.preprocess.input.columns import Name
from lethe.engine.preprocess.input.derived import Expression, Filled, Same
from lethe.engine.preprocess.input.evaluating import evaluated
from lethe.engine.store.layout.columns import NUMERIC, ColumnRecord
from lethe.engine.store.layout.config import ModelConfig
from lethe.engine.store.layout.preprocessing import columns_of

_SHOWN = 60  # characters of a value in a message


def unplaced(data: GivenRows, config: ModelConfig) -> dict[int, str]:
    """Return, by its place in the file, each row without a place, and the first value why."""
    if not config.preprocess:
        return {}  # its rows are numbers, each of which was read
    columns = columns_of(config.preprocess)
    given = dict(zip(given_columns(columns), zip(*data.values, strict=True), strict=True))
    found: dict[int, str] = {}
    for record in config.preprocess:
        of = columns[record.name].of or Same(record.name)
        for i, value in _without_place(of, given, record):
            found.setdefault(
                i,
                f"row {data.ids[i]!r}, column {record.name!r}: no row had {_shown(value)} when the "
                "model was registered; `lethe register --replace` makes room for it",
            )
    return dict(sorted(found.items()))


def _without_place(
    of: Expression, given: Mapping[Name, Sequence[RowValue]], record: ColumnRecord
) -> Iterator[tuple[int, RowValue]]:
    """Yield the rows that a column has no place for, by number, and the value."""
    if isinstance(of, Same):
        values = given[of.name]
    elif isinstance(of, Filled) and isinstance(of.to, Same) and record.step not in NUMERIC:
        values = [of.value if value is None else value for value in given[of.to.name]]
    else:
        made = evaluated(of, lambda name: np.array(given[name], dtype=np.float64))
        values = [None if np.isnan(value) else value for value in made.tolist()]
    if record.step in NUMERIC:
        if not record.gaps:
            yield from ((i, value) for i, value in enumerate(values) if value is None)
        return
    known = {(type(category), category) for category in record.categories}
    yield from ((i, value) for i, value in enumerate(values) if (type(value), value) not in known)


def _shown(value: RowValue) -> str:
    return "a missing value" if value is None else repr(value)[:_SHOWN]
