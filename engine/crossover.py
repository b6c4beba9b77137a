"""When V has cost as much as folding it away would: the crossover, by measured cost.

Every deletion multiplies by V twice: O(K d) a row. Folding V away (a compact) costs O(n K d) and
writes the n live rows again. Whether deletions go on is not known, so this is the ski-rental
problem (Karlin, Manasse, Rudolph, Sleator 1988): rent until the rent paid equals the price, then
buy; whatever comes, that is at most twice the cost of knowing it beforehand.

The three constants are seconds of one machine (2 cores, one BLAS thread), measured by
``scripts/crossover.py``; only their ratios matter, and the threshold moves with the square root
of an error in them. docs/guards.md has the tables.
"""

from __future__ import annotations

SECONDS_PER_V = 8e-10
"""Per number of V and batch: it is read twice, whatever the batch."""

SECONDS_PER_V_AND_ROW = 1.5e-10
"""Per number of V and row of the batch: two multiplications. From five rows on, these are more."""

SECONDS_PER_MULTIPLICATION = 7e-11
"""A multiplication and addition in the matrix products of a compact."""

SECONDS_PER_STORED = 6e-8
"""Per number of a row record (2 d a row): read from the store, and staged in it again."""

SECONDS_OF_A_JOB = 0.05
"""To order a refresh job, and to swap its result in."""


def step_seconds(d: int, K: int, k: int) -> float:
    """Return what V, of K rows, adds to the deletion of k rows."""
    return max(SECONDS_PER_V, SECONDS_PER_V_AND_ROW * k) * K * d


def folding_multiplications(n: int, d: int, K: int) -> float:
    """Return the multiplications of a compact: dual rows, and the downdated factor."""
    return 2.0 * n * K * d + 2.0 * K * d**2 + d**3


def folding_seconds(n: int, d: int, K: int) -> float:
    """Return what a compact of K rows costs with n live rows: arithmetic, store and job."""
    stored = 2.0 * n * d + d**2 / 2
    return (
        SECONDS_PER_MULTIPLICATION * folding_multiplications(n, d, K)
        + SECONDS_PER_STORED * stored
        + SECONDS_OF_A_JOB
    )
