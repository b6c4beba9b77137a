"""Whether an error is over its budget."""

from __future__ import annotations


def over_budget(relative: float | None, budget: float) -> bool:
    """Return whether an error counts as over its budget: the one place where they are compared.

    Neither None nor NaN is within any budget.
    """
    return relative is None or not relative <= budget
