"""All settings, what came of them, and the table of it."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from random import Random
from typing import TypeAlias

from lethe.engine.fit.objective import Kind
from tests.proof.conversions import estimators, pipelines, special
from tests.proof.conversions.judging import Outcome, Verdict, judged
from tests.proof.conversions.setting import Setting

Judged: TypeAlias = Sequence[tuple[Setting, Outcome]]

_REFUSED = re.compile(r"(\w+): (?:(\w+)=)?")
_NO_CLASS = {
    "is not fitted": "not fitted",
    "is a class": "not fitted",
    "rows given": "fitted to other rows, or with weights",
    "rows that it was fitted on": "fitted to other rows, or with weights",
}
_FEW = 3  # settings: what is refused so rarely is counted together


def chosen() -> Iterator[Setting]:
    """Yield the settings that are the same with every seed: each documented value by itself."""
    yield from distinct(
        [*estimators.settings(Random(0), 0), *estimators.others(), *pipelines.one_at_a_time()]
    )
    yield from pipelines.selected()
    yield from special.settings()


def drawn(seed: int, size: int) -> Iterator[Setting]:
    """Yield settings whose parameters are all drawn: about 2 ``size``, half of them pipelines."""
    rng = Random(seed)
    yield from distinct(
        [
            *estimators.settings(rng, size // 4),
            *pipelines.for_all_columns(rng, size // 8),
            *pipelines.settings(rng, size),
        ]
    )


def distinct(settings: Iterable[Setting]) -> list[Setting]:
    """Return settings without those that occurred before."""
    first: dict[tuple[str, Kind, str, str], Setting] = {}
    for one in settings:
        whole = one.estimator.__repr__(N_CHAR_MAX=1 << 20)
        first.setdefault((whole, one.kind, one.table, one.target), one)
    return list(first.values())


def judge_all(settings: Iterable[Setting]) -> Judged:
    """Judge settings, each with its place as the seed of what is deleted."""
    return [(one, judged(one, place)) for place, one in enumerate(settings)]


def failures(found: Judged) -> list[str]:
    """Return a line for each setting that was neither right nor refused by name."""
    return [
        f"{one.estimator} on {one.table!r}, {one.target!r}: {outcome.message}"
        for one, outcome in found
        if outcome.verdict is Verdict.FAILED
    ]


def reason(outcome: Outcome) -> str:
    """Return what a refusal is about: a class and its parameter."""
    for says, why in _NO_CLASS.items():
        if says in outcome.message:
            return why
    match = _REFUSED.search(outcome.message)
    assert match is not None, outcome.message
    name, parameter = match.groups()
    return f"{name}: {parameter}" if parameter else name


def table(found: Judged) -> str:
    """Return what came of the settings: accepted, refused by reason, and worst distances."""
    accepted: dict[str, list[float]] = defaultdict(list)
    allowed: dict[str, float] = {}
    for one, outcome in found:
        if outcome.verdict is Verdict.ACCEPTED:
            group = f"{one.name}, {one.kind}"
            group += f", within {outcome.tolerance:.0e}"
            accepted[group].append(outcome.distance)
            allowed[group] = outcome.tolerance
    refused = Counter(reason(o) for _, o in found if o.verdict is Verdict.REFUSED)
    lines = [f"{'accepted':<58} {'settings':>8} {'worst distance':>15}"]
    for group, distances in sorted(accepted.items()):
        lines.append(f"  {group:<56} {len(distances):>8} {max(distances):>15.1e}")
    lines += ["", f"{'refused by name':<58} {'settings':>8}"]
    common = {why: count for why, count in refused.most_common() if count > _FEW}
    rare = f"{len(refused) - len(common)} other reasons, most of them another class"
    for why, count in [*common.items(), (rare, refused.total() - sum(common.values()))]:
        lines.append(f"  {why:<56} {count:>8}")
    totals = Counter(outcome.verdict for _, outcome in found)
    worst = dict.fromkeys(sorted(set(allowed.values())), 0.0)
    for _, outcome in found:
        if outcome.verdict is Verdict.ACCEPTED:
            worst[outcome.tolerance] = max(worst[outcome.tolerance], outcome.distance)
    told = ", ".join(f"{most:.1e} of {bound:.0e} allowed" for bound, most in worst.items())
    counted = ", ".join(f"{totals[verdict]} {verdict}" for verdict in Verdict)
    return "\n".join([*lines, "", f"{len(found)} settings: {counted}", f"worst distance: {told}"])
