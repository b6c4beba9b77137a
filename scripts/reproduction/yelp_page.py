"""How the Yelp experiment is shown: tables, and a plot like the paper's."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from reproduction.figures import figure, save
from reproduction.linear import EXACT, INFLUENCE, PRU, PRU_PUBLISHED
from reproduction.records import Record
from reproduction.tables import distinct, find, markdown, select

FIT = "FIT"
L2 = "L2"
FIT_OF_USER = "FIT of a user"
L2_OF_USER = "L2 of a user"
RELATIVE_ERROR = "largest relative error to retraining"
SHARE_REFUSED = "share refused as ill-conditioned"

_METHODS = (INFLUENCE, PRU_PUBLISHED, PRU, EXACT)
_HEADER = ("inf", "PRU as published", "PRU", "ours")
_ZERO = 0.005  # what prints as 0.00
_EXACT = 1e-8
_STEM = "paper-yelp"

_INTRODUCTION = """\
Linear regression of the label (+1 for four and five stars, else -1) on counts of {d} words, over
{n} reviews, ridge {ridge:g} (the paper prints none; this is the authors' program's). Mean (standard
error of the mean). The paper shows this as a figure, without numbers.

![FIT and L2 against the size of the removed group](images/{stem}.png)

Groups of reviews, as in the paper. FIT: k positive reviews have the injected feature; L2: any k
reviews:
"""
_USERS = """\
One user at a time: all k reviews of a user are deleted, mean over the users with k reviews. The
injected feature is the review's label, in that user's reviews alone:
"""


def error_of(metric: str) -> str:
    """Return the name of the metric's standard error of the mean."""
    return f"{metric}: standard error"


def render(records: Sequence[Record]) -> str:
    """Return the figure and the tables of both kinds of deletion."""
    some = records[0]
    shares = [record for record in records if record.metric.endswith(SHARE_REFUSED)]
    refused = round(sum(record.value * record.samples for record in shares))
    deletions = sum(record.samples for record in shares)
    return "\n".join(
        [
            _INTRODUCTION.format(n=some.n, d=some.d, ridge=some.ridge, stem=_STEM),
            _table(records, FIT, L2),
            _USERS,
            _table(records, FIT_OF_USER, L2_OF_USER),
            f"Of {deletions} deletions, {refused} were refused as ill-conditioned and are not in "
            "the columns PRU and ours; the product lets those wait for a rebuild.\n",
        ]
    )


def _table(records: Sequence[Record], *metrics: str) -> str:
    of = [record for record in records if record.metric in metrics]
    header = ["k", *(f"{metric}, {name}" for metric in metrics for name in _HEADER)]
    lines = [
        [str(k), *(_shown(records, k, method, m) for m in metrics for method in _METHODS)]
        for k in sorted(distinct(of, "k"))
    ]
    return markdown(header, lines)


def _shown(records: Sequence[Record], k: int, method: str, metric: str) -> str:
    found = find(records, k=k, method=method, metric=metric)
    if found is None:
        return "-"
    error = find(records, k=k, method=method, metric=error_of(metric))
    value = f"{found.value:.2f}".replace("-0.00", "0.00")
    return value if error is None else f"{value} ({error.value:.2f})"


def checks(records: Sequence[Record]) -> list[tuple[bool, str]]:
    """Check that ours leaves nothing of the injected weight, and equals retraining."""
    fit = [r for r in records if r.method == EXACT and r.metric in (FIT, FIT_OF_USER)]
    errors = [r for r in records if r.method == EXACT and r.metric.endswith(RELATIVE_ERROR)]
    worst = max((abs(r.value) for r in fit), default=float("nan"))
    far = max((r.value for r in errors), default=float("nan"))
    return [
        (worst < _ZERO, f"FIT of ours prints 0.00 at every k (largest {worst:.1e})"),
        (far <= _EXACT, f"ours within {_EXACT:.0e} of retraining (largest {far:.1e})"),
    ]


def draw(records: Sequence[Record], images: Path) -> None:
    """Write the figure: mean and standard error against the size of the removed group."""
    made, axes = figure(columns=2)
    for axis, metric, label in (
        (axes[0], FIT, "injected weight, after / before"),
        (axes[1], L2, "L2 distance, after / before"),
    ):
        axis.axhline(1.0, linestyle="--", color="grey", label="no removal")
        for method, name in zip(_METHODS, _HEADER, strict=True):
            if method == PRU_PUBLISHED:
                continue  # the same line as PRU
            of = sorted(select(records, method=method, metric=metric), key=lambda r: r.k)
            sizes = [record.k for record in of]
            errors = [find(records, k=k, method=method, metric=error_of(metric)) for k in sizes]
            axis.errorbar(
                sizes,
                [record.value for record in of],
                [0.0 if error is None else error.value for error in errors],
                label=name,
                capsize=2,
            )
        axis.set_xlabel("size of removed group")
        axis.set_ylabel(label)
    axes[0].legend()
    save(made, images / _STEM)
