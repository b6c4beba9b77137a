"""Rows of a file for which a model with preprocessing has no place, named before they are sent.

A category, or a first missing number, that no row had at registration would give the model another
coordinate: such a row is refused, and with it the request that it is in. A receipt, which many can
read, does not name it; the command that has the file does.
"""

from __future__ import annotations

from collections.abc import Iterator

from lethe.consumers.contract.events import RowValue
from lethe.consumers.registration.table.reader import GivenRows
from lethe.engine.store.layout.columns import NUMERIC, ColumnRecord
from lethe.engine.store.layout.config import ModelConfig

_SHOWN = 60  # characters of a value in a message


def unplaced(data: GivenRows, config: ModelConfig) -> dict[int, str]:
    """Return, by its place in the file, each row without a place, and the first value why."""
    found: dict[int, str] = {}
    for j, record in enumerate(config.preprocess):
        for i, value in _without_place([row[j] for row in data.values], record):
            found.setdefault(
                i,
                f"row {data.ids[i]!r}, column {record.name!r}: no row had {_shown(value)} when the "
                "model was registered; `lethe register --replace` makes room for it",
            )
    return dict(sorted(found.items()))


def _without_place(values: list[RowValue], record: ColumnRecord) -> Iterator[tuple[int, RowValue]]:
    if record.step in NUMERIC:
        if not record.gaps:
            yield from ((i, value) for i, value in enumerate(values) if value is None)
        return
    known = {(type(category), category) for category in record.categories}
    yield from ((i, value) for i, value in enumerate(values) if (type(value), value) not in known)


def _shown(value: RowValue) -> str:
    return "a missing value" if value is None else repr(value)[:_SHOWN]
