"""Training rows that are read in blocks, from files too large for memory.

Which columns are features is decided from the first block, and every later one has to have them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from lethe.consumers.registration.table.file import ParquetFile
from lethe.consumers.registration.table.reader import Columns, rows_of
from lethe.consumers.registration.training_data import TrainingData
from lethe.engine.errors import InvalidData
from lethe.engine.fit.objective import Kind


@dataclass(frozen=True, slots=True)
class TableStream:
    """The rows of a file, or of all files in a directory.

    Attributes
    ----------
    files
        In the order of their names; all have the same columns.
    columns
        Their roles, the features among them.
    left_out
        What each column that has no role holds.
    """

    files: tuple[ParquetFile, ...]
    columns: Columns
    left_out: Mapping[str, str]

    @classmethod
    def opened(cls, path: Path, columns: Columns, kind: Kind) -> TableStream:
        """Open a file or a directory. Cost: the footers, and one block.

        Raises
        ------
        InvalidData
            It cannot be used; the message says which file, and why.
        """
        paths = _tables_in(path) if path.is_dir() else [path]
        files = tuple(ParquetFile.opened(each) for each in paths)
        for other in files[1:]:
            if set(other.names) != set(files[0].names):
                odd = sorted(set(other.names) ^ set(files[0].names))[0]
                raise InvalidData(
                    f"{other.path}: its columns are not those of {files[0].path.name} ({odd!r} is "
                    "in one of them only); give all files the same columns"
                )
        filled = next((file for file in files if file.rows), None)
        if filled is None:
            raise InvalidData(f"{path}: has no rows; there is nothing to fit")
        first = rows_of(next(filled.blocks(filled.names)), columns, kind)
        features = replace(columns, features=first.data.feature_names)
        return cls(files, features, first.left_out)

    @property
    def rows(self) -> int:
        """How many rows the footers say there are."""
        return sum(file.rows for file in self.files)

    def blocks(self, kind: Kind) -> Iterator[TrainingData]:
        """Yield the rows in blocks; raises what `reader.read_table` raises."""
        columns = self.columns
        needed = [columns.id, *columns.targets, *(columns.features or ())]
        needed += [] if columns.subject is None else [columns.subject]
        for file in self.files:
            for block in file.blocks(needed):
                yield rows_of(block, columns, kind).data


def _tables_in(directory: Path) -> list[Path]:
    paths = sorted(
        path
        for path in directory.iterdir()
        if path.is_file() and not path.name.startswith((".", "_"))
    )
    other = next((path for path in paths if path.suffix.lower() != ".parquet"), None)
    if other is not None or not paths:
        what = "has no file" if other is None else f"holds {other.name}"
        raise InvalidData(f"{directory}: {what}; give a directory of Parquet files alone")
    return paths
