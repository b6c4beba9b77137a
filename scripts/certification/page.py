"""docs/certificates.md and its figure, from a run's results alone."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
from matplotlib.figure import Figure

from certification.polishes import BEYOND, RELATIVE
from certification.sentinels import FAMILIES
from harness.plots import save, style
from harness.tables import machine_table, table

Record: TypeAlias = Mapping[str, Any]
Key: TypeAlias = Callable[[Record], str]

HEAD = """\
# How tight the certificates are

Written by `python scripts/certificates.py` from `results/certificates.json`.
What the kinds of error are, and why each bound holds, is in [error.md](error.md). The test
that no certificate was below the true error is `tests/proof/properties/test_certificates.py`."""

CERTIFICATES = """\
{number:,} random states, bound over true error. *measured* counts states with a bound and an error
at least ten times what rounding is granted; the others are in *states* and *below* only. *below*
counts bounds under the true error, compared before both are rounded for the results. *fresh*: with
the factor of the Hessian at theta. *stale*: a random point with the factor of the fit before its
deletions, one pass. *audited*: the same at theta_exact. *polished*: to 1e-2, 1e-5 and 1e-8."""

LARGER = """\
256 sentinels stand for many more rows each. Where signed parts of many rows nearly cancel
(anisotropic) what the sample adds by chance is longer than the sum itself: the estimate is then too
large. Where deletions take almost all rows that have a feature (zeros and ones, one corner) the few
that remain make up the sum, and the sample was drawn before they mattered: it can be far too
small."""

POLISH = """\
n = {n}, d = {d}, {deleted} rows deleted, one BLAS thread, medians. Both start at theta_exact;
polish ends with a certificate of {relative:.0e} relative, Newton's method (a Hessian and a factor a
step) with a step that short. *before* is the error at the start. Each product X v with its
transposed product is one pass. Most passes: {passes}; least ratio: {ratio:.1f}; not counting the
last row, for which no polish is meant (theta moves by half of itself, and the policy rebuilds)."""


def page(run: Mapping[str, Any]) -> str:
    """Return docs/certificates.md."""
    states, estimates, polishes = states_of(run), run["sentinels"], run["polish"]
    usual = [one for one in estimates if one["family"] in FAMILIES]
    larger = [one for one in estimates if one["family"] not in FAMILIES]
    parts = [
        HEAD,
        machine_table(run["machine"]),
        "## Certificates",
        CERTIFICATES.format(number=len(states)),
        _certificates(states, lambda state: state["how"], "state"),
        _certificates(states, lambda state: state["argument"], "argument"),
        _certificates(states, _family, "family"),
        "![bound over true error](images/certificates.png)",
        "## Sentinels",
        f"{len(estimates):,} estimates over true error: an estimate, never a bound.",
        *_sentinels(usual),
    ]
    if larger:
        parts += [f"### {larger[0]['rows']:,} rows", LARGER, *_sentinels(larger)]
    if polishes:
        meant = [one for one in polishes if one["family"] not in BEYOND]
        text = POLISH.format_map(
            {
                **polishes[0],
                "relative": RELATIVE,
                "passes": max(one["passes"] for one in meant),
                "ratio": min(one["newton_seconds"] / one["seconds"] for one in meant),
            }
        )
        parts += ["## Polish against warm full Newton", text, _polishes(polishes)]
    return "\n\n".join(parts) + "\n"


def states_of(run: Mapping[str, Any]) -> list[Record]:
    """Return the states of the certificates' table, one mapping each."""
    found = run["certificates"]
    return [dict(zip(found["columns"], row, strict=True)) for row in found["rows"]]


def _family(state: Record) -> str:
    return f"{state['family']}, {'polished' if state['how'] == 'polished' else 'not'}"


def _groups(records: Sequence[Record], key: Key) -> list[tuple[str, list[Record]]]:
    names = dict.fromkeys(key(record) for record in records)
    return [(name, [record for record in records if key(record) == name]) for name in names]


def _certificates(states: Sequence[Record], key: Key, title: str) -> str:
    lines = []
    for name, group in _groups(states, key):
        bounded = [state for state in group if state["bound"] is not None]
        below = sum(state["below"] for state in group)
        ratios = [one["bound"] / one["true"] for one in bounded if one["above_rounding"]]
        marks = np.percentile(ratios, [50, 90, 99, 100]) if ratios else ()
        counts = (len(group), len(group) - len(bounded), below, len(ratios))
        quantiles = [f"{mark:.3g}" for mark in marks] or ["-"] * 4
        lines.append([name, *map(str, counts), *quantiles])
    head = [title, "states", "no bound", "below", "measured", "median", "90 %", "99 %", "most"]
    return table(head, lines)


def _sentinels(estimates: Sequence[Record]) -> list[str]:
    """Return the tables by family, by order, and of all."""
    keys: dict[str, Key] = {
        "family": lambda one: one["family"],
        "order of deletion": lambda one: one["order"],
        "": lambda _: "all",
    }
    head = ["states", "within 0.8 to 3", "under 0.8", "over 3"]
    head += ["least", "2.5 %", "median", "97.5 %", "most"]
    tables = []
    for title, key in keys.items():
        lines = []
        for name, group in _groups(estimates, key):
            found = np.array([one["ratio"] for one in group])
            low, high = float(np.mean(found < 0.8)), float(np.mean(found > 3.0))
            shares = [f"{100 * share:.1f} %" for share in (1 - low - high, low, high)]
            marks = [f"{mark:.2f}" for mark in np.percentile(found, [0, 2.5, 50, 97.5, 100])]
            lines.append([name, str(len(found)), *shares, *marks])
        tables.append(table([title, *head], lines))
    return tables


def _polishes(found: Sequence[Record]) -> str:
    lines = []
    for one in found:
        bound = "none" if one["certificate"] is None else f"{one['certificate']:.1e}"
        lines.append(
            [
                one["family"],
                f"{one['before']:.1e}",
                str(one["passes"]),
                bound,
                f"{one['true']:.1e}",
                f"{one['seconds']:.3f}",
                str(one["newton_steps"]),
                f"{one['newton_seconds']:.3f}",
                f"{one['newton_seconds'] / one['seconds']:.1f}",
            ]
        )
    head = ["family", "before", "passes", "certificate", "true error", "s", "Newton's steps", "s"]
    return table([*head, "ratio"], lines)


def draw(run: Mapping[str, Any], path: Path) -> None:
    """Draw bound over error by way, and estimate over error by family."""
    states = [one for one in states_of(run) if one["bound"] and one["above_rounding"]]
    with style():
        figure = Figure(figsize=(11, 4), layout="constrained")
        left, right = figure.subplots(1, 2)
        for how in ("fresh", "stale", "audited", "polished"):
            chosen = [one for one in states if one["how"] == how]
            errors = [one["true"] / one["size"] for one in chosen]
            left.loglog(errors, [s["bound"] / s["true"] for s in chosen], ".", ms=2, label=how)
        left.axhline(1.0, color="black", lw=0.8)
        left.set(xlabel="true error / |theta*|", ylabel="certificate / true error", ylim=(0.7, 1e3))
        left.legend(markerscale=5)
        groups = _groups(run["sentinels"], lambda one: one["family"])
        ratios = [[one["ratio"] for one in group] for _, group in groups]
        names = [name for name, _ in groups]
        right.boxplot(ratios, vert=False, tick_labels=names, whis=(2.5, 97.5), sym=".")
        for mark in (0.8, 1.0, 3.0):
            right.axvline(mark, color="black", lw=0.8, ls="-" if mark == 1.0 else ":")
        right.set(xlabel="sentinels' estimate / true error", xscale="log", xlim=(0.1, 12))
        save(figure, path)
