"""An estimator where it stands in what was given, and refusals that name it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from sklearn.exceptions import NotFittedError
from sklearn.utils.validation import check_is_fitted

from lethe.engine.errors import InvalidData
from lethe.engine.estimator.unfitted import NotFitted
from lethe.engine.preprocess.input.columns import Name


@dataclass(frozen=True, slots=True)
class Step:
    """An estimator, or what stands in a pipeline in place of one.

    Attributes
    ----------
    estimator
        It.
    path
        Names of the steps that lead to it; none of what was given itself.
    column
        The column of the table that it is read for; None for all of them.
    """

    estimator: Any
    path: tuple[str, ...] = ()
    column: Name | None = None

    def below(self, name: str, estimator: Any) -> Step:
        """Return an estimator that is a part of this one."""
        return Step(estimator, (*self.path, name), self.column)

    @property
    def name(self) -> str:
        """Its class."""
        return type(self.estimator).__name__

    @property
    def where(self) -> str:
        """What a refusal begins with: the step and the column."""
        step = f"step {' > '.join(map(repr, self.path))}, " if self.path else ""
        return step if self.column is None else f"{step}column {self.column!r}, "

    def refusal(self, why: str) -> InvalidData:
        """Return the refusal of this estimator."""
        return InvalidData(f"{self.where}{self.name}: {why}")

    def check_fitted(self) -> None:
        """Refuse an estimator that is not fitted.

        Raises
        ------
        NotFitted
            It is not.
        """
        try:
            check_is_fitted(self.estimator)
        except NotFittedError as error:
            raise NotFitted(
                f"{self.where}this {self.name} is not fitted; fit it first, on the rows given"
            ) from error
