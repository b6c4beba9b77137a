"""Training rows that are read in blocks, from tables too large for memory."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import pyarrow as pa

from lethe.consumers.registration.coding import Coding
from lethe.consumers.registration.table.class_column import class_names
from lethe.consumers.registration.table.file import TableFile
from lethe.consumers.registration.table.foreseen import Columns, Foreseen, named_columns
from lethe.consumers.registration.table.frozen import FrozenFile
from lethe.consumers.registration.table.reader import rows_in
from lethe.consumers.registration.table.values import numeric_type
from lethe.consumers.registration.training_data import TrainingData
from lethe.engine.errors import InvalidData
from lethe.engine.fit.objective import Kind
from lethe.engine.preprocess.input.columns import Column
from lethe.engine.preprocess.input.settings import check_outputs


@dataclass(frozen=True, slots=True)
class TableInBlocks:
    """The rows of a table whose types are known.

    Attributes
    ----------
    foreseen
        The table.
    columns
        The roles of its columns, the features among them.
    left_out
        What the type of each column is that has no role.
    preprocess
        What is done to each of the features, if preprocessing is part of the model.
    frozen
        The transformer that makes the model's features of those, if one does.
    names
        What the model's features are called; with preprocessing, those of the table.
    """

    foreseen: Foreseen
    columns: Columns
    left_out: Mapping[str, str]
    preprocess: Mapping[str, Column] | None = None
    frozen: FrozenFile | None = None
    names: tuple[str, ...] = ()

    @classmethod
    def of(
        cls,
        foreseen: Foreseen,
        columns: Columns,
        kind: Kind = Kind.LINEAR,
        preprocess: Mapping[str, Column] | FrozenFile | None = None,
    ) -> TableInBlocks:
        """Return a table in blocks: without named ones, the features are what is numbers by type.

        For a logistic model, the column of classes is read.

        Raises
        ------
        InvalidData
            No column is numbers by its type, or CSV files have numbers and text in one column.
        """
        path = foreseen.opened.path
        others = {name: f"of type {foreseen.kinds.get(name)}" for name in foreseen.candidates}
        if isinstance(preprocess, FrozenFile):
            named = replace(columns, features=preprocess.columns)
            return cls(foreseen, named, {}, frozen=preprocess)._of_kind(kind)._looked_at()
        if preprocess is not None:
            given = tuple(named_columns(preprocess))
            left_out = {name: what for name, what in others.items() if name not in given}
            named = replace(columns, features=given)
            prepared = cls(foreseen, named, left_out, preprocess, names=tuple(preprocess))
            prepared = prepared._of_kind(kind)
            classes = prepared.columns.classes or ()
            check_outputs(preprocess, len(classes) if len(classes) > 2 else 1)
            return prepared
        if not foreseen.kinds:
            raise InvalidData(
                f"{path}: a column holds numbers and text; correct it, or use Parquet"
            )
        names = foreseen.numeric if columns.features is None else columns.features
        if not names:
            raise InvalidData(f"{path}: no numeric column is left to be a feature; see --features")
        left_out = {} if columns.features is not None else others
        left_out = {name: what for name, what in left_out.items() if name not in names}
        named = replace(columns, features=names)
        return cls(foreseen, named, left_out, names=names)._of_kind(kind)

    def _of_kind(self, kind: Kind) -> TableInBlocks:
        """Return the table with the classes of a classifier."""
        if not kind.has_classes:
            return self
        targets = self.columns.targets
        classes = class_names(self._files(targets), targets[0])
        return replace(self, columns=replace(self.columns, classes=classes))

    def _looked_at(self) -> TableInBlocks:
        """Return the table with what its transformer has to know of all its rows."""
        frozen, opened = self.frozen, self.foreseen.opened
        if frozen is None:
            return self
        kinds = {} if opened.source.is_csv else self.foreseen.kinds
        rest = [
            name
            for name in frozen.columns
            if name in frozen.categories or name not in kinds or not numeric_type(kinds[name])
        ]
        frozen = frozen.for_blocks(self._files(rest) if rest else (), rest)
        first = next(self._files(frozen.columns), None)
        if first is None:
            raise InvalidData(f"{opened.path}: the file has no rows; there is nothing to fit")
        return replace(self, frozen=frozen, names=frozen.features(first)[0])

    @property
    def rows(self) -> int:
        """How many rows there are: of CSV files one for each line."""
        return self.foreseen.rows

    def blocks(self) -> Iterator[TrainingData]:
        """Yield the rows in blocks; with preprocessing X is what one `Coding` makes of all.

        Raises
        ------
        InvalidData
            A file cannot be read, or a value cannot be used; the message says which and where.
        """
        columns = self.columns
        only = [columns.id, *columns.targets, *(columns.features or ())]
        only += [] if columns.subject is None else [columns.subject]
        coding = None
        if self.preprocess is not None:
            coding = Coding(self.preprocess, as_written=self.foreseen.opened.source.is_csv)
        for file in self._files(only):
            yield rows_in(file, columns, coding, self.frozen)

    def _files(self, only: Sequence[str]) -> Iterator[TableFile]:
        """Yield these columns in blocks."""
        opened, kinds = self.foreseen.opened, self.foreseen.kinds
        gaps = self.preprocess is not None or self.frozen is not None
        if gaps and opened.source.is_csv:  # where a number is missing, there is text
            kinds = dict.fromkeys(only, pa.string())
        counts, done = [0] * len(opened.source.files), 0
        try:
            for index, block in opened.blocks(kinds, only):
                counts[index] += len(block)
                yield TableFile(opened.source, block, tuple(counts), done)
                done += len(block)
        except pa.ArrowInvalid as error:
            what = str(error).partition("\n")[0]
            raise InvalidData(f"{opened.path}: {what}; correct it, or use Parquet") from None
