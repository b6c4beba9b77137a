"""Section ``audit``: what a drift audit and its second opinion cost, beside one pass."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np

from harness.records import Record, timed
from harness.study import Section, Setup
from harness.synthetic import noisy_rows
from harness.timing import Call, in_turns
from lethe.engine.deletion.methods import method_named
from lethe.engine.deletion.stream import begin, delete
from lethe.engine.error.drift import audit
from lethe.engine.error.second_opinion import second_opinion
from lethe.engine.fit.objective import Kind, Objective
from lethe.engine.fit.precompute import precompute


@dataclass(frozen=True, slots=True)
class Plan:
    """Sizes, (n, d)."""

    sizes: Sequence[tuple[int, int]] = ((100_000, 50), (10_000, 1000))
    repeats: int = 30


def run(plan: Plan, setup: Setup) -> Iterable[Record]:
    """Time them in turns."""
    for n, d in plan.sizes:
        rows = noisy_rows(Kind.LINEAR, n, d, setup.seed)
        objective = Objective(Kind.LINEAR, np.ones(d))
        made = precompute(objective, rows)
        generation, stream = begin(0, objective, made)
        leaving, W = rows.take(slice(0, 50)), made.dual_rows[:50]
        stream = delete(generation, stream, leaving, W, method_named("exact")).stream
        live, dual = rows.take(slice(50, None)), made.dual_rows[50:]
        gradient = objective.gradient(live, stream.theta_exact)
        scale = objective.gradient_scale(live, stream.theta_exact)
        opinion = partial(
            second_opinion, live, live.weight, objective.penalty, made.factor, gradient, scale
        )
        calls: dict[str, Call] = {
            "one pass": partial(objective.gradient, live, stream.theta_exact),
            "second opinion": opinion,
            "drift audit": partial(audit, generation, stream, made.factor, live, dual),
            "rebuild": partial(precompute, objective, live),
        }
        setting = {"n": n, "d": d}
        samples = in_turns(calls, plan.repeats)
        times = {name: timed(setting, name, taken, "s") for name, taken in samples.items()}
        yield from times.values()
        one, opinion_s, whole, rebuilt = (time.value for time in times.values())
        for metric, ratio in (
            ("second opinion over one pass", opinion_s / one),
            ("drift audit over a rebuild", whole / rebuilt),
        ):
            yield Record(setting, metric, "1", ratio, plan.repeats)


SECTION = Section("audit", Plan(), Plan(sizes=((500, 20),), repeats=3), run)
