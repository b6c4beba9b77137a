"""Every case, model by model."""

from __future__ import annotations

from tests.proof.model.case import Case
from tests.proof.model.cases.around import (
    halts_cases,
    lost_cases,
    owners_cases,
    parameters_cases,
    retention_cases,
    watermark_cases,
)
from tests.proof.model.cases.commit import commit_cases
from tests.proof.model.cases.epochs import epochs_cases
from tests.proof.model.cases.registration import lifecycle_cases, opening_cases


def all_cases() -> list[Case]:
    """Return what `python -m tests.proof.model` runs, in order."""
    return [
        *commit_cases(),
        *epochs_cases(),
        *opening_cases(),
        *lifecycle_cases(),
        *halts_cases(),
        *retention_cases(),
        *lost_cases(),
        *parameters_cases(),
        *watermark_cases(),
        *owners_cases(),
    ]
