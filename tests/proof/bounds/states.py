"""Streams of states: fit, delete, refresh, and after each what was published against the truth.

A stream follows from its family and seed alone. Plans:

- *linear*: batches by any method, refreshes of any size drawn in between; every state is judged.
- *certificates*, *poisson*: after every deletion a refresh that ends in a certificate.
- *softmax*: as *linear*, every deletion being certified by its own pass.
- *changes*, *changed labels*, *changed counts*, *changed classes*: the same with rows inserted and
  corrected between the deletions (`tests.proof.bounds.changing`).
- *slips*, *labelled slips*: what people do to a table (`tests.proof.bounds.people`), judged in
  rational numbers where the model is linear.
- *estimates*: after every deletion the policy is asked, if what is published is over the budget or
  not known at all; judged before (stage ``raw``) and after it has acted (stage ``final``).

What the engine refuses is handled as its user would: a rebuild without the rows.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np

from lethe.engine import LinearModel, LogisticModel, PoissonModel, SoftmaxModel
from tests.proof.bounds.case import Case, Draw, drawn
from tests.proof.bounds.changing import changing_bounds, changing_certificates
from tests.proof.bounds.people import labelled_slips, slips
from tests.proof.bounds.stream import BUDGET, Model, Record, Run, Stream, batches

__all__ = ["BUDGET", "PLANS", "Record", "Stream", "describe", "run_stream"]


def _linear(run: Run) -> None:
    run.judge("fit")
    chances = [[1.0, 0.0, 0.0], [0.4, 0.4, 0.2]][int(run.rng.integers(2))]
    for batch in batches(run.case, run.rng):
        method = str(run.rng.choice(["exact", "pru", "influence"], p=chances))
        size = str(run.rng.choice(["complete", "polish", "compact", "rebuild"]))
        refreshing = run.rng.random() < run.case.refreshing
        how = run.delete(batch, method)
        if how is None:
            return
        run.judge(how)
        if refreshing and (done := run.refresh(size)):
            run.judge(done)


def _certificates(run: Run) -> None:
    run.judge("fit")
    for batch in batches(run.case, run.rng):
        method = str(run.rng.choice(["exact", "pru", "influence"], p=[0.6, 0.3, 0.1]))
        size = str(run.rng.choice(["polish", "compact", "rebuild"], p=[0.7, 0.1, 0.2]))
        if run.delete(batch, method) is None:
            return
        if size == "compact" and run.refresh("compact"):
            size = "polish"
        if done := run.refresh(size):
            run.judge(done)


def _estimates(run: Run) -> None:
    for batch in batches(run.case, run.rng):
        method = str(run.rng.choice(["exact", "pru", "influence"], p=[0.45, 0.45, 0.1]))
        how = run.delete(batch, method)
        if how is None:
            return
        raw = run.judge(how, "raw")
        if raw.relative is None or not raw.relative <= BUDGET:
            done = run.refresh(None) or run.refresh("rebuild")
            run.judge(f"policy: {done}")
        else:
            run.done.records.append(raw._replace(stage="final"))


PLANS: dict[str, tuple[type[Model], Callable[[Run], None]]] = {
    "linear": (LinearModel, _linear),
    "certificates": (LogisticModel, _certificates),
    "estimates": (LogisticModel, _estimates),
    "poisson": (PoissonModel, _certificates),
    "softmax": (SoftmaxModel, _linear),
    "changes": (LinearModel, changing_bounds),
    "changed labels": (LogisticModel, changing_certificates),
    "changed counts": (PoissonModel, changing_certificates),
    "changed classes": (SoftmaxModel, changing_bounds),
    "slips": (LinearModel, slips),
    "labelled slips": (LogisticModel, labelled_slips),
}


def run_stream(plan: str, name: str, draw: Draw, seed: int) -> Stream:
    """Return what the stream of this family and seed comes to."""
    kind, play = PLANS[plan]
    case, rng = drawn(name, draw, seed)
    run = Run(name, seed, case, rng, kind)
    run.truth.exact = plan == "slips"
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        try:
            if run.fit():
                play(run)
        except Exception as error:  # what it is, is for the person who repeats the seed
            run.done.escaped.append(f"step {run.step}: {type(error).__name__}: {error}")
    return run.done


def describe(case: Case) -> str:
    """Return one line on what a case is."""
    facts: dict[str, Any] = {
        "rows x columns": "x".join(map(str, case.X.shape)),
        "ridge": f"{case.ridge:.3g}",
        "intercept": case.intercept,
        "weights": case.weight is not None,
        "type": case.X.dtype,
        "targets": 1 if case.y.ndim == 1 else case.y.shape[1],
    }
    return ", ".join(f"{name} {value}" for name, value in facts.items())
