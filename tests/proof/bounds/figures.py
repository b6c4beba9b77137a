"""What streams come to: figures by family, tables of them, and the promises that they keep."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TypeAlias

import numpy as np

from tests.proof.bounds.running import counted, together
from tests.proof.bounds.states import BUDGET, Record, Stream

Figures: TypeAlias = dict[str, float | int | str | None]

TENTH = 0.003
"""Share of the estimates that may be under a tenth of the truth."""

BEYOND = 0.05
"""No state that says "within the budget" may be beyond this."""

UNDECIDED = 0.01
"""Share of the states that the oracle may leave undecided: more would be no judgement."""

_SHOWN = 6
_APPROXIMATE = ("pru", "influence")  # their bound is mostly a distance that is known


def of_bounds(plan: str, stream: Stream) -> Figures:
    """Return the figures of bounds: how many are false, and how loose they are.

    ``median`` and ``p90`` are of bound over error, over all states; ``exact_...`` over those that
    publish the exact answer, so that the bound is of rounding (or of a certificate) alone.
    ``worst`` is the largest truth over bound, of those and of all that are false.
    """
    judged = [r for r in stream.records if r.bound is not None and counted(plan, r)]
    decided = [r for r in judged if np.isfinite(r.oracle)]
    exact = [r for r in decided if not _approximate(r)]
    telling = [r for r in decided if r.false or not _approximate(r)]
    worst = max(telling, key=lambda r: r.ratio, default=None)
    middle, most = _looseness(decided)
    exact_middle, exact_most = _looseness(exact)
    return {
        "states": len(decided),
        "below": sum(r.false for r in decided),
        "worst": None if worst is None else worst.ratio,
        "worst_at": None if worst is None else where(worst),
        "median": middle,
        "p90": most,
        "exact_median": exact_middle,
        "exact_p90": exact_most,
        "unknown": sum(r.kind == "unknown" for r in stream.records),
        "refused": stream.refusals.total(),
        "undecided": len(judged) - len(decided),
        "escaped": len(stream.escaped),
    }


def _approximate(record: Record) -> bool:
    return record.how.partition(",")[0] in _APPROXIMATE


def _looseness(records: Sequence[Record]) -> tuple[float | None, float | None]:
    """Return the median and the 90 % quantile of bound / error."""
    if not records:
        return None, None
    ratios = [(r.bound or 0.0) / r.distance if r.distance > 0.0 else np.inf for r in records]
    middle, most = np.quantile(ratios, [0.5, 0.9], method="lower")
    return float(middle), float(most)


def of_estimates(stream: Stream) -> Figures:
    """Return the figures of estimates, after the policy has acted and before.

    ``lies`` are states that say "within the budget" and are beyond `BEYOND`; ``unknown`` states
    that say nothing before the policy has acted, ``over`` those that say to be over the budget;
    ``needless``, of both, those that were within it; ``left_over``, what is still so afterwards.
    """
    raw = [r for r in stream.records if r.stage == "raw" and np.isfinite(r.oracle)]
    final = [r for r in stream.records if r.stage == "final" and np.isfinite(r.oracle)]
    unknown = [r for r in raw if _says_nothing(r)]
    over = [r for r in raw if not _says_nothing(r) and not _within(r)]
    return {
        "states": len(final),
        "under": sum(r.under_a_tenth for r in final),
        "lies": sum(_lies(r) for r in final),
        "unknown": len(unknown),
        "over": len(over),
        "needless": sum(r.true_relative <= BUDGET for r in [*unknown, *over]),
        "left_over": sum(not _within(r) for r in final),
        "raw_under": sum(r.under_a_tenth for r in raw),
        "raw_lies": sum(_lies(r) for r in raw),
        "below": sum(r.false for r in final),
        "refused": stream.refusals.total(),
        "undecided": stream.undecided,
        "escaped": len(stream.escaped),
    }


def _says_nothing(record: Record) -> bool:
    return record.relative is None or record.value is None or record.kind == "unknown"


def _within(record: Record) -> bool:
    return not _says_nothing(record) and (record.relative or 0.0) <= BUDGET


def _lies(record: Record) -> bool:
    return _within(record) and record.true_relative > BEYOND


def where(record: Record) -> str:
    """Return how to repeat a record."""
    return f"--family {record.family} --seed {record.seed} (step {record.step}, {record.how})"


def figures(plan: str, streams: Mapping[str, Stream]) -> dict[str, Figures]:
    """Return the figures of each family, and of ``all``."""
    whole = {**streams, "all": together(streams.values())}
    if plan == "estimates":
        return {name: of_estimates(stream) for name, stream in whole.items()}
    return {name: of_bounds(plan, stream) for name, stream in whole.items()}


def broken(plan: str, total: Figures) -> list[str]:
    """Return the promises that the figures of ``all`` do not keep."""
    found = []
    if total["below"]:
        found.append(f"{total['below']} of {total['states']} bounds are below the truth")
    if int(total["undecided"] or 0) > UNDECIDED * int(total["states"] or 0):
        found.append(f"the oracle could not decide {total['undecided']} of {total['states']}")
    if total["escaped"]:
        found.append(f"{total['escaped']} errors escaped that are not the engine's own")
    if plan == "estimates":
        under, states = int(total["under"] or 0), int(total["states"] or 0)
        if under > TENTH * states:
            found.append(f"{under} of {states} estimates are under a tenth of the truth")
        if total["lies"]:
            found.append(f"{total['lies']} say within {BUDGET:.0%} and are beyond {BEYOND:.0%}")
    return found


def table(rows: Mapping[str, Figures]) -> str:
    """Return figures as a table for reading."""
    heads = list(next(iter(rows.values())))
    lines = [["family", *heads]]
    lines += [[name, *(_cell(figure) for figure in row.values())] for name, row in rows.items()]
    widths = [max(len(line[i]) for line in lines) for i in range(len(heads) + 1)]
    return "\n".join(
        "  ".join(
            cell.ljust(width) if i == 0 or heads[i - 1] == "worst_at" else cell.rjust(width)
            for i, (cell, width) in enumerate(zip(line, widths, strict=True))
        ).rstrip()
        for line in lines
    )


def _cell(figure: float | str | None) -> str:
    if figure is None:
        return "-"
    return f"{figure:.3g}" if isinstance(figure, float) else str(figure)


def examples(plan: str, stream: Stream) -> list[str]:
    """Return the states that break a promise: of each family the one with the fewest rows."""
    if plan == "estimates":
        wrong = [r for r in stream.records if r.stage == "final"]
        wrong = [r for r in wrong if r.under_a_tenth or _lies(r) or r.false]
    else:
        wrong = [r for r in stream.records if r.false and counted(plan, r)]
    first: dict[tuple[str, bool], Record] = {}
    for record in sorted(wrong, key=lambda r: (not r.false, r.live)):
        first.setdefault((record.family, record.false), record)
    chosen = list(first.values())
    return [f"{r.live} rows left, {told(r)}: {where(r)}" for r in chosen] + stream.escaped[:_SHOWN]


def told(record: Record) -> str:
    """Return what a record published, against the truth."""
    numbers = [("value", record.value), ("bound", record.bound), ("relative", record.relative)]
    published = ", ".join(f"{name} {number:.3g}" for name, number in numbers if number is not None)
    away = f"truth {record.distance:.3g} (+- {record.oracle:.1g})"
    if record.false and record.excess is not None:
        away += f", {record.excess:.2g} past the bound"
    return f"{record.kind}: {published}, {away}, truly {record.true_relative:.2g} relative"
