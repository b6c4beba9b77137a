"""When V has cost as much as folding it away would: the crossover, by measured cost.

Every deletion multiplies by V twice: O(K d) a row. Folding V away costs O(n K d) by a compact, or
O(n d^2) by a rebuild (less, once K is about 3/4 d; a logistic model's once it is about 2 d), and
the n live rows are written again. Whether deletions go on is not known, so this is the ski-rental
problem (Karlin, Manasse, Rudolph, Sleator 1988): rent until the rent paid equals the price, then
buy; whatever comes, that is at most twice the cost of knowing it beforehand.

The constants are seconds of one machine (2 cores, one BLAS thread), measured by
``scripts/crossover.py``; only their ratios matter, and the threshold moves with the square root
of an error in them. docs/guards.md has the tables.
"""

from __future__ import annotations

SECONDS_PER_V = 5.5e-10
"""Per number of V and batch: V is read twice, whatever the batch."""

SECONDS_PER_V_AND_ROW = 1.2e-10
"""Per number of V and row of the batch: two multiplications. From five rows on, these are more."""

SECONDS_PER_MULTIPLICATION = 7e-11
"""A multiplication and addition in the matrix products of a compact."""

SECONDS_PER_STORED = 1.2e-7
"""Per number of a row record (2 d a row): read from the store, and staged in it again."""

SECONDS_OF_A_JOB = 0.05
"""To schedule a refresh job and swap in its result."""

SECONDS_OF_A_PASS = 6e-4
SECONDS_PER_ROW_AND_PASS = 2.5e-7
SECONDS_PER_NUMBER_AND_PASS = 1.2e-9
"""One pass of a polish: its calls, its n sigmoids and logarithms, and the n d numbers of X. With
few columns the first two dominate, which is why a rebuild is cheaper there."""

PASSES, HARD_PASSES = 2, 40
"""Passes of a polish. If the estimate is believed, the audit certifies at once in three cases of
four, and the others take a few more passes; if not, the factor is far from the Hessian: 17 to 60
passes, the median 43."""

SECONDS_OF_A_REFIT = 1.5e-3
SECONDS_PER_ROW_AND_REFIT = 4e-6
"""A logistic rebuild, besides its matrix products."""

NEWTON_HESSIANS = 6
"""Hessians that refitting a logistic model forms from a warm start."""

HARD_HESSIANS = 12
"""The same if the estimate is not believed: the start is far off."""

CLEARLY_CHEAPER = 0.8
"""A rebuild replaces a compact if it costs less than this fraction of it."""


def step_seconds(d: int, K: int, k: int, *, estimated: bool = False) -> float:
    """Return what V, of K rows, adds to the deletion of k rows.

    ``estimated``: the sentinels' estimate of a logistic model reads V four times more.
    """
    estimate = 2 * SECONDS_PER_V if estimated else 0.0
    return (max(SECONDS_PER_V, SECONDS_PER_V_AND_ROW * k) + estimate) * K * d


def folding_multiplications(n: int, d: int, K: int) -> float:
    """Return the multiplications of a compact: dual rows, and the downdated factor."""
    return 2.0 * n * K * d + 2.0 * K * d**2 + d**3


def rebuilding_multiplications(n: int, d: int, hessians: int) -> float:
    """Return the multiplications of a rebuild that forms ``hessians`` Hessians, 1 if linear."""
    return (0.5 * hessians + 1.0) * n * d**2 + (hessians / 6 + 2.0) * d**3


def folding_seconds(n: int, d: int, K: int) -> float:
    """Return what a compact of K rows costs with n live rows: arithmetic, store and job."""
    return _with_store(n, d, folding_multiplications(n, d, K))


def rebuilding_seconds(n: int, d: int, hessians: int) -> float:
    """Return what a rebuild costs with n live rows: arithmetic, store and job."""
    return _with_store(n, d, rebuilding_multiplications(n, d, hessians))


def polishing_seconds(n: int, d: int, K: int, *, hard: bool, stored: bool) -> float:
    """Return what a polish of a logistic model costs; ``hard``: its estimate is not believed.

    ``stored``: rows are read from a store.
    """
    numbers = float(n) * d + d**2 + 2.0 * K * d
    a_pass = (
        SECONDS_OF_A_PASS + SECONDS_PER_ROW_AND_PASS * n + SECONDS_PER_NUMBER_AND_PASS * numbers
    )
    return (HARD_PASSES if hard else PASSES) * a_pass + stored * _reading_seconds(n, d)


def refitting_seconds(n: int, d: int, *, hard: bool, stored: bool) -> float:
    """Return what a rebuild of a logistic model costs, to compare with `polishing_seconds`.

    With a store, the rows that are read are written again.
    """
    hessians = HARD_HESSIANS if hard else NEWTON_HESSIANS
    products = SECONDS_PER_MULTIPLICATION * rebuilding_multiplications(n, d, hessians)
    rows = SECONDS_OF_A_REFIT + SECONDS_PER_ROW_AND_REFIT * n
    return rows + products + 2.0 * stored * _reading_seconds(n, d)


def _reading_seconds(n: int, d: int) -> float:
    """Return the time to read the rows; writing them takes about as long."""
    return SECONDS_PER_STORED * n * d


def _with_store(n: int, d: int, multiplications: float) -> float:
    stored = 2.0 * n * d + d**2 / 2
    return (
        SECONDS_PER_MULTIPLICATION * multiplications
        + SECONDS_PER_STORED * stored
        + SECONDS_OF_A_JOB
    )
