"""5,000 insertions, corrections and deletions of a linear model, against fits of what is live."""

from __future__ import annotations

import numpy as np
import pytest

from tests.support.changes import Table


@pytest.mark.timeout(600)
def test_5000_mixed_changes_leave_what_a_fit_gives() -> None:
    """100 features, up to three rows a change, a refresh by the policy every 1,000."""
    table = Table("linear", 11, n=2000, p=100)
    for number in range(1, 5001):
        table.act("exact")
        if number % 1000 == 0:
            table.model.refresh()
        if number % 250 == 0:
            distance, bound = table.distance(), table.model.error.bound
            assert bound is not None
            assert distance <= bound
            assert bound <= 1e-9 * float(np.linalg.norm(table.model.theta))
