"""What a model with preprocessing was asked for, and what of it cannot be."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from lethe.engine.errors import InvalidData
from lethe.engine.fit.objective import Kind
from lethe.engine.preprocess.input.by_name import given_columns
from lethe.engine.preprocess.input.columns import Columns, Name, TargetEncode, standardised
from lethe.engine.preprocess.input.table import Table, Vocabulary, read_table


@dataclass(frozen=True, slots=True)
class Settings:
    """What a model was asked for.

    Attributes
    ----------
    columns, kind, ridge, intercept, penalise_intercept
        As of the model.
    dropped
        Columns that its tables may have, and that it does not learn from.
    """

    columns: Columns
    kind: Kind
    ridge: float
    intercept: bool
    penalise_intercept: bool
    dropped: frozenset[Name] = frozenset()

    def __post_init__(self) -> None:
        """Refuse what the algebra has no place for.

        Raises
        ------
        InvalidData
            A feature is standardised, and no intercept takes up the mean.
        """
        named = [name for name, column in self.columns.items() if standardised(column)]
        if named and not self.intercept:
            raise InvalidData(
                f"column {named[0]!r} is standardised, and only an intercept takes up its mean; "
                "set fit_intercept=True, or standardise=False"
            )

    @property
    def names(self) -> tuple[str, ...] | None:
        """Names of the table's columns; None if some are found by place."""
        given = given_columns(self.columns)
        names = tuple(name for name in given if isinstance(name, str))
        return names if len(names) == len(given) else None

    @property
    def width(self) -> int:
        """How many columns a table has; of names, without those that it may have as well."""
        places = [name for name in self.dropped if isinstance(name, int)]
        return len({*given_columns(self.columns), *places})

    def read(self, X: Any, vocabularies: Sequence[Vocabulary] = ()) -> Table:
        """Read a table; new categories are added to ``vocabularies``. Raises as `read_table`."""
        return read_table(self.columns, X, vocabularies, dropped=self.dropped)

    @property
    def free_intercept(self) -> bool:
        """Whether there is an intercept that is not penalised: any centre is taken up for free."""
        return self.intercept and not self.penalise_intercept


def check_outputs(columns: Columns, m: int) -> None:
    """Refuse m targets, or classes, that no column can be encoded by.

    Raises
    ------
    InvalidData
        Several targets or classes with a column that is encoded by them.
    """
    if m == 1:
        return
    encoded = [name for name, column in columns.items() if isinstance(column, TargetEncode)]
    if encoded:
        raise InvalidData(f"column {encoded[0]!r} is encoded by the target, and there are {m}")
