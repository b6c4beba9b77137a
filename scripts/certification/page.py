"""Tables and the figure of docs/certificates.md."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import matplotlib as mpl
import numpy as np

from certification.polishes import BEYOND, RELATIVE, Polished
from certification.sentinels import FAMILIES, Estimated
from tests.support.certified import State

mpl.use("Agg")
from matplotlib import pyplot as plt

HEAD = """# How tight the certificates are

Written by `python scripts/certificates.py`; every figure here is in `results/certificates.json`.
What the three kinds of error are, and why each bound holds, is in [error.md](error.md). The test
that no certificate was below the true error is `tests/proof/properties/test_certificates.py`.

"""


def _quantiles(values: Sequence[float]) -> str:
    if not values:
        return "- | - | - | -"
    marks = np.percentile(values, [50, 90, 99, 100])
    return " | ".join(f"{mark:.3g}" for mark in marks)


def _ratio(state: State) -> float:
    return (state.certificate.bound or 0.0) / state.true


def _certificates(states: Sequence[State], key: Callable[[State], str], title: str) -> str:
    lines = [
        f"| {title} | states | no bound | below | measured | median | 90 % | 99 % | most |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for name in dict.fromkeys(key(state) for state in states):
        group = [state for state in states if key(state) == name]
        bounded = [state for state in group if state.certificate.bound is not None]
        below = sum((state.certificate.bound or 0.0) < state.true for state in bounded)
        ratios = [_ratio(state) for state in bounded if state.above_rounding]
        lines.append(
            f"| {name} | {len(group)} | {len(group) - len(bounded)} | {below} | {len(ratios)} | "
            f"{_quantiles(ratios)} |"
        )
    return "\n".join(lines) + "\n\n"


def _sentinels(estimates: Sequence[Estimated], key: Callable[[Estimated], str], title: str) -> str:
    lines = [
        f"| {title} | states | within 0.8 to 3 | under 0.8 | over 3 "
        "| least | 2.5 % | median | 97.5 % | most |",
        "|---|---|---|---|---|---|---|---|---|---|",
    ]
    for name in dict.fromkeys(key(one) for one in estimates):
        found = np.array([one.ratio for one in estimates if key(one) == name])
        low, high = float(np.mean(found < 0.8)), float(np.mean(found > 3.0))
        marks = " | ".join(f"{mark:.2f}" for mark in np.percentile(found, [0, 2.5, 50, 97.5, 100]))
        lines.append(
            f"| {name} | {len(found)} | {100 * (1 - low - high):.1f} % | {100 * low:.1f} % | "
            f"{100 * high:.1f} % | {marks} |"
        )
    return "\n".join(lines) + "\n\n"


def _polishes(found: Sequence[Polished]) -> str:
    lines = [
        "| family | before | passes | certificate | true error | s | Newton's steps | s | ratio |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for one in found:
        bound = "none" if one.certificate is None else f"{one.certificate:.1e}"
        lines.append(
            f"| {one.family} | {one.before:.1e} | {one.passes} | {bound} | {one.true:.1e} | "
            f"{one.seconds:.3f} | {one.newton_steps} | {one.newton_seconds:.3f} | "
            f"{one.newton_seconds / one.seconds:.1f} |"
        )
    return "\n".join(lines) + "\n\n"


def page(
    states: Sequence[State],
    estimates: Sequence[Estimated],
    polishes: Sequence[Polished],
    facts: Mapping[str, str],
) -> str:
    """Return docs/certificates.md."""
    meant = [one for one in polishes if one.family not in BEYOND]
    text = HEAD + "".join(f"{name}: {value}  \n" for name, value in facts.items()) + "\n"
    text += "## Certificates\n\n"
    text += (
        f"{len(states):,} random states, bound over true error. *measured* counts states with a "
        "bound and an error at least ten times what rounding is granted; the others are in "
        "*states* and *below* only. *fresh*: with the factor of the Hessian at theta. *stale*: a "
        "random point with the factor of the fit before its deletions, one pass. *audited*: the "
        "same at theta_exact. *polished*: to 1e-2, 1e-5 and 1e-8.\n\n"
    )
    text += _certificates(states, lambda state: state.how, "state")
    text += _certificates(states, lambda state: state.certificate.argument, "argument")
    text += _certificates(
        states, lambda s: f"{s.family}, {'polished' if s.how == 'polished' else 'not'}", "family"
    )
    text += "![bound over true error](images/certificates.png)\n\n## Sentinels\n\n"
    text += f"{len(estimates):,} estimates over true error: an estimate, never a bound.\n\n"
    usual = [one for one in estimates if one.family in FAMILIES]
    text += _sentinels(usual, lambda one: one.family, "family")
    text += _sentinels(usual, lambda one: one.order, "order of deletion")
    text += _sentinels(usual, lambda _: "all", "")
    larger = [one for one in estimates if one.family not in FAMILIES]
    if larger:
        text += (
            f"### {larger[0].rows:,} rows\n\n256 sentinels stand for many more rows each. Where "
            "signed parts of many rows nearly cancel (anisotropic) what the sample adds by chance "
            "is longer than the sum itself: the estimate is then too large. Where deletions take "
            "almost all rows that have a feature (zeros and ones, one corner) the few that remain "
            "make up the sum, and the sample was drawn before they mattered: it can be far too "
            "small.\n\n"
        )
        text += _sentinels(larger, lambda one: one.family, "family")
        text += _sentinels(larger, lambda one: one.order, "order of deletion")
        text += _sentinels(larger, lambda _: "all", "")
    if polishes:
        first = polishes[0]
        text += (
            f"## Polish against warm full Newton\n\nn = {first.n}, d = {first.d}, {first.deleted} "
            f"rows deleted, one BLAS thread, medians. Both start at theta_exact; polish ends with "
            f"a certificate of {RELATIVE:.0e} relative, Newton's method (a Hessian and a factor a "
            f"step) with a step that short. *before* is the error at the start. Each product X v "
            f"with its transposed product is one pass. Most passes: "
            f"{max(one.passes for one in meant)}; least ratio: "
            f"{min(one.newton_seconds / one.seconds for one in meant):.1f}; not counting the last "
            f"row, for which no polish is meant (theta moves by half of itself, and the policy "
            f"rebuilds).\n\n"
        )
        text += _polishes(polishes)
    return text


def draw(states: Sequence[State], estimates: Sequence[Estimated], path: Path) -> None:
    """Draw bound over error by way, and estimate over error by family."""
    figure, (left, right) = plt.subplots(1, 2, figsize=(11, 4), layout="constrained")
    for how in ("fresh", "stale", "audited", "polished"):
        chosen = [s for s in states if s.how == how and s.certificate.bound and s.above_rounding]
        left.loglog(
            [s.true / s.size for s in chosen], [_ratio(s) for s in chosen], ".", ms=2, label=how
        )
    left.axhline(1.0, color="black", lw=0.8)
    left.set(xlabel="true error / |theta*|", ylabel="certificate / true error", ylim=(0.7, 1e3))
    left.legend(markerscale=5)
    names = list(dict.fromkeys(one.family for one in estimates))
    right.boxplot(
        [[one.ratio for one in estimates if one.family == name] for name in names],
        vert=False, tick_labels=names, whis=(2.5, 97.5), sym=".",
    )  # fmt: skip
    for mark in (0.8, 1.0, 3.0):
        right.axvline(mark, color="black", lw=0.8, ls="-" if mark == 1.0 else ":")
    right.set(xlabel="sentinels' estimate / true error", xscale="log", xlim=(0.1, 12))
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=110)
    plt.close(figure)
