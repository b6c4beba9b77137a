"""What a registration will take, worked out before a row is read: ``lethe register --dry-run``.

Sizes follow from the layout of what is stored and held; times from rates that were measured once,
on one core of a shared machine with tables of 1e5 and 1e6 rows of 20 and 100 features: they say
whether it is seconds or hours.
"""

from __future__ import annotations

from dataclasses import dataclass

from lethe.engine.fit.objective import Kind
from lethe.engine.store.layout import codec
from lethe.engine.store.layout.config import ModelConfig

_PROCESS_BYTES = 250_000_000
"""The process itself, and a block of the table."""

_PAGE_BYTES = 1_500_000
"""Of each column of a Parquet file, while it is read: a page, as it is packed and unpacked."""

_ID_BYTES = 140
"""Of a row's id in memory: text, its places in a tuple and in a set."""

_STORED_BYTES = 78
"""Of a row in the store beyond its record, of ids of 12 characters: the id twice, and the hash."""

_IN_BLOCKS_BYTES = 400_000_000
"""Of rows that are sorted into files: blocks, piles and buckets, whatever the number of rows."""

_SUMS_BYTES = 16
"""Of exact sums, for each pair of columns: five to eight digits of each half."""

_START_SECONDS = 1.0
_PARQUET_SECONDS, _CSV_SECONDS, _ROW_SECONDS = 45e-9, 160e-9, 1e-6
"""To read a number of a Parquet or a CSV file, and a row's id."""

_FIT_SECONDS = {
    Kind.LINEAR: (90e-9, 0.5e-9),
    Kind.LOGISTIC: (150e-9, 0.5e-9),
    Kind.POISSON: (150e-9, 0.5e-9),
    Kind.SOFTMAX: (150e-9, 0.5e-9),
}
"""To fit, for each number of the features, and times the number of features."""

_EXACT_SECONDS = (50e-9, 0.5e-9)
"""The same of exact sums, which need no dual rows."""

_STORED_ROW_SECONDS, _STORED_BYTE_SECONDS = 6e-6, 3.8e-9
"""To write a row, and a byte of its record, here and in the server."""


@dataclass(frozen=True, slots=True)
class Plan:
    """What a registration will take; all but the counts are estimates.

    Attributes
    ----------
    rows, features
        Of the table. Of CSV files rows are lines; features are columns that hold numbers, or with
        preprocessing columns, of which each makes one feature or more.
    table_bytes, files
        What is read.
    memory_bytes
        The most that the command will hold.
    store_bytes
        What the model will take of the store.
    reading, fitting, storing
        Processor seconds, those of the store's server included.
    """

    rows: int
    features: int
    files: int
    table_bytes: int
    memory_bytes: int
    store_bytes: int
    reading: float
    fitting: float
    storing: float

    @property
    def seconds(self) -> float:
        """Return the processor seconds in all."""
        return _START_SECONDS + self.reading + self.fitting + self.storing


def plan(config: ModelConfig, *, rows: int, files: int, table_bytes: int, is_csv: bool) -> Plan:
    """Return what it takes to register a model from a table of so many rows.

    ``config``: of the model, with its features; of a logistic model without class names two classes
    are assumed.
    """
    (d, m, dual), (hessians, size) = (config.d, config.m, config.blocks), config.hessian
    blocks = max(1, dual)
    record = codec.row_size(d, m, dual)
    numbers = rows * d
    pages = 0 if is_csv else d * _PAGE_BYTES
    # Of several blocks, the fit holds as much again while it joins their dual rows.
    held = 8 * numbers * (1 + dual * (1 if blocks == 1 else 2)) + rows * (_ID_BYTES + 16 * m)
    stored = rows * (record + _STORED_BYTES)
    if config.rows_url is not None:
        held, stored = min(held, _IN_BLOCKS_BYTES), _SUMS_BYTES * d * d
    each, squared = _EXACT_SECONDS if config.exact_sums else _FIT_SECONDS[config.kind]
    return Plan(
        rows=rows,
        features=len(config.feature_names),
        files=files,
        table_bytes=table_bytes,
        memory_bytes=_PROCESS_BYTES + pages + held,
        store_bytes=stored + 16 * hessians * size**2,
        reading=numbers * (_CSV_SECONDS if is_csv else _PARQUET_SECONDS) + rows * _ROW_SECONDS,
        fitting=numbers * (hessians * size // d) * (each + squared * size),
        storing=rows * (_STORED_ROW_SECONDS + _STORED_BYTE_SECONDS * record),
    )
