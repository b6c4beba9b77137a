"""Did the promises hold? Each check is a pure function of what was observed from outside."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from lethe.consumers.contract import codes
from lethe.consumers.contract.events import Version
from lethe.consumers.contract.receipt import Receipt
from lethe.consumers.contract.version_chain import check_version, parameters_digest
from lethe.consumers.demo.observer import Observed, Outcome
from lethe.engine.errors import BrokenChain
from lethe.engine.refresh.size import RefreshSize

WANTED_SIZES = (RefreshSize.POLISH, RefreshSize.REBUILD)


@dataclass(frozen=True, slots=True)
class Check:
    """A promise and whether it held; ``failures`` say where it did not."""

    promise: str
    measured: str
    failures: Sequence[str]

    @property
    def passed(self) -> bool:
        """Whether it held everywhere."""
        return not self.failures


def all_checks(outcome: Outcome) -> tuple[Check, ...]:
    """Return every check of a run."""
    return tuple(check(outcome) for check in CHECKS)


def all_passed(checks: Sequence[Check]) -> bool:
    """Return whether there are checks, and each passed."""
    return bool(checks) and all(check.passed for check in checks)


def within_bound(outcome: Outcome) -> Check:
    """Check that theta is within its published bound of retraining.

    The retrained parameters have a rounding error of their own, which is measured and allowed on
    top of the bound; nothing else is allowed.
    """
    versions = [(seen, seen.event.error.bound) for seen in _all(outcome)]
    bounded = [(seen, bound) for seen, bound in versions if bound is not None]
    failures = [
        f"{_name(seen)}: {seen.distance:.3e} from retraining, bound {bound:.3e}"
        for seen, bound in bounded
        if seen.distance > bound + seen.retrained.rounding
    ]
    return Check(
        "every version with a bound is within that bound of retraining",
        f"{len(bounded)} of {len(versions)} versions have one",
        failures if bounded else ["no version has a bound"],
    )


def rounded_is_identical(outcome: Outcome) -> Check:
    """Check that a version whose error is rounded has the bits of a refit in fractions."""
    rounded = [seen for seen in _all(outcome) if seen.identical is not None]
    failures = [f"{_name(seen)}: its bits are others" for seen in rounded if not seen.identical]
    return Check(
        "exact answers of the linear model are identical to retraining in fractions, bit for bit",
        f"{len(rounded)} versions",
        failures if rounded else ["no version is rounded"],
    )


def no_projection_over_budget(outcome: Outcome) -> Check:
    """Check that nothing over the budget is published where the exact answer is within it.

    A linear model's exact answer is: it never publishes anything over its budget.
    """
    linear = [seen for seen in _all(outcome) if seen.event.kind == "linear"]
    completed = [seen for seen in _all(outcome) if seen.event.completed]
    failures = [
        f"{_name(seen)}: true error {seen.true_error:.3e}, budget {seen.budget:.3e}"
        for seen in linear
        if seen.event.error.over or seen.true_error > seen.budget
    ]
    return Check(
        "no version of the linear model is over its budget",
        f"{len(linear)} versions; {len(completed)} versions were completed",
        failures if completed else ["no projection was over the budget"],
    )


def under_budget_after_refresh(outcome: Outcome) -> Check:
    """Check that a refresh triggered by the budget leaves the true error under the budget."""
    triggered = [seen for seen in _all(outcome) if seen.ordered == "error_budget"]
    failures = [
        f"{_name(seen)}: true error {seen.true_error:.3e}, budget {seen.budget:.3e}"
        for seen in triggered
        if seen.true_error > seen.budget
    ]
    worst = max((seen.true_error / seen.budget for seen in triggered), default=0.0)
    return Check(
        "after a refresh triggered by the budget, the true error is under the budget",
        f"{len(triggered)} such refreshes, at worst {worst:.1%} of the budget",
        failures if triggered else ["the budget triggered no refresh"],
    )


def chain_holds(outcome: Outcome) -> Check:
    """Check every digest, every link from version 0 on, and every version's parameters.

    `ModelSubscriber` has checked the same before; this check does not rely on it.
    """
    failures = []
    for seen_versions in outcome.versions.values():
        previous: Version | None = None
        for seen in seen_versions:
            try:
                check_version(seen.event, previous)
            except BrokenChain as error:
                failures.append(str(error))
            names = seen.version.feature_names, seen.version.target_names
            digest = parameters_digest(seen.theta[:, None], *names, fit_intercept=True)
            if digest != seen.event.parameters_digest:
                failures.append(f"{_name(seen)}: its parameters are not those of the version")
            previous = seen.event
    return Check(
        "versions are numbered without gaps, hash-linked, and match their parameters",
        f"{len(_all(outcome))} versions checked link by link",
        failures,
    )


def rows_agree(outcome: Outcome) -> Check:
    """Check that a version counts as live the rows whose deletion was never requested."""
    failures = [
        f"{_name(seen)}: {seen.event.rows_live} rows live, {seen.rows_live} by the requests"
        for seen in _all(outcome)
        if seen.event.rows_live != seen.rows_live
    ]
    deleted = sum(seen[-1].event.rows_deleted for seen in outcome.versions.values() if seen)
    return Check(
        "each version has forgotten the requested rows, and no others",
        f"{deleted} rows deleted",
        failures,
    )


def one_receipt_each(outcome: Outcome) -> Check:
    """Check that every request got exactly one final receipt, as the contract specifies.

    A repeated request gets the first receipt again, byte for byte; a conflicting request gets a
    rejection of its own, and the first receipt stands.
    """
    received: dict[tuple[str, str], list[tuple[Receipt, bytes]]] = defaultdict(list)
    for receipt, raw in outcome.receipts:
        if receipt.final:
            received[receipt.model_id, receipt.request_id].append((receipt, raw))
    expected: dict[tuple[str, str], list[tuple[str, str | None]]] = defaultdict(list)
    for request in outcome.requests:
        if request.request_id is not None and request.status is not None:
            expected[request.model_id, request.request_id].append((request.status, request.code))
    failures = []
    for identity in sorted(expected.keys() | received.keys()):
        name = f"model {identity[0]!r}, request {identity[1]!r}"
        outcomes = [(receipt.status, receipt.code) for receipt, _ in received[identity]]
        if Counter(expected[identity]) != Counter(outcomes):
            failures.append(f"{name}: receipts {outcomes}, expected {expected[identity]}")
        own = {
            raw for receipt, raw in received[identity] if receipt.code != codes.REQUEST_ID_CONFLICT
        }
        if len(own) > 1:
            failures.append(f"{name}: {len(own)} different final receipts")
    unread = sum(request.request_id is None for request in outcome.requests)
    if unread != len(outcome.dead_letters):
        failures.append(f"{len(outcome.dead_letters)} dead letters for {unread} unreadable records")
    distinct = {raw: receipt.status for pairs in received.values() for receipt, raw in pairs}
    repeats = sum(len(pairs) for pairs in received.values()) - len(distinct)
    counted = ", ".join(f"{n} {status}" for status, n in sorted(Counter(distinct.values()).items()))
    return Check(
        "every request has exactly one final receipt, as the contract specifies",
        f"{counted}; {repeats} resent byte for byte; dead letters: {unread}",
        failures,
    )


def records_erased(outcome: Outcome) -> Check:
    """Check that no record of a deleted row is left in the store."""
    failures = [
        f"model {model!r}: {len(rows)} deleted rows are still there, the first is {rows[0]!r}"
        for model, rows in outcome.leftovers.items()
        if rows
    ]
    if set(outcome.leftovers) != set(outcome.versions):
        failures.append("the store was not searched for the rows of every model")
    return Check(
        "the server holds no features of deleted rows",
        "searched every value of every key",
        failures,
    )


def each_size_happened(outcome: Outcome) -> Check:
    """Check that the policy chose a polish and a rebuild."""
    sizes = Counter(seen.event.refresh.size for seen in _all(outcome) if seen.event.refresh)
    counted = ", ".join(f"{sizes[size]} {size}" for size in RefreshSize if sizes[size])
    return Check(
        "the policy chose both polish and rebuild at least once",
        counted or "none",
        [f"no {size} happened" for size in WANTED_SIZES if not sizes[size]],
    )


CHECKS: Sequence[Callable[[Outcome], Check]] = (
    within_bound,
    rounded_is_identical,
    no_projection_over_budget,
    under_budget_after_refresh,
    chain_holds,
    rows_agree,
    one_receipt_each,
    records_erased,
    each_size_happened,
)


def _all(outcome: Outcome) -> list[Observed]:
    return [seen for versions in outcome.versions.values() for seen in versions]


def _name(seen: Observed) -> str:
    return f"model {seen.event.model_id!r}, version {seen.event.version}"
