"""Whether an error is over its budget, and what happens to a version whose error is.

The rule is applied where a version is made from a deletion
(`consumers.versions.draft.Draft.number_version`, which completes it), where its requests are
computed (`consumers.deletions.compute`, which defers or rejects them under ``hold``), and where the
result of a refresh is swapped in for such requests (`consumers.refresh.swap`).
"""

from __future__ import annotations

from enum import StrEnum


class OverBudget(StrEnum):
    """What happens when a deletion's version would be over its model's error budget.

    A projection is what ``pru`` or ``influence`` publishes; theta_exact, the exact answer of the
    quadratic model, is always known beside it.

    Attributes
    ----------
    COMPLETE
        theta_exact is published in place of the projection. What is left of the error (the second
        order of a logistic model, rounding) may still be over the budget; the version says so.
    PUBLISH
        The projection is published, and the version says that it is over the budget.
    HOLD
        As `COMPLETE`; where that is over the budget, too, the requests wait for a rebuild without
        their rows, and the last version stands.
    """

    COMPLETE = "complete"
    PUBLISH = "publish"
    HOLD = "hold"


def over_budget(relative: float | None, budget: float) -> bool:
    """Return whether an error counts as over its budget: the one place where they are compared.

    Neither None nor NaN is within any budget.
    """
    return relative is None or not relative <= budget
