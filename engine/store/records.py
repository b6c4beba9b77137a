"""Small records that heads and events share, and their types."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

from lethe.engine.error.budget import over_budget

SECRET_BYTES = 32
"""Length of the secret that salts commitments."""

Status = Literal["ACTIVE", "EMPTY", "INTERCEPT_PENALISED", "UNREGISTERED"]
Finite = Annotated[float, Field(allow_inf_nan=False)]


class Stored(BaseModel):
    """An immutable record; unknown fields are ignored."""

    model_config = ConfigDict(frozen=True, extra="ignore")


class ErrorRecord(Stored):
    """The ``error`` object of versions and receipts (contract 2.2).

    If the kind is ``unknown``, value, bound and relative are None.
    """

    value: Finite | None
    kind: Literal["exact", "estimate", "certificate", "unknown"]
    bound: Finite | None
    certified_version: int | None
    budget: Finite
    relative: Finite | None

    @property
    def over(self) -> bool:
        """Whether it counts as over its budget; an unknown error does."""
        return over_budget(self.relative, self.budget)


class CertificateRecord(Stored):
    """The ``certificate`` object of versions and receipts: what was promised, and what is spent."""

    epsilon: Finite
    delta: Finite
    sigma: Finite
    spent: Finite
    budget: Finite


def outputs(target_names: Sequence[str], class_names: Sequence[str]) -> int:
    """Return the number of columns of theta: two classes need only one."""
    return len(class_names) if len(class_names) > 2 else len(target_names)
