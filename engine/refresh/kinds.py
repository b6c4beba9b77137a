"""Polish, compact and rebuild of a model of any kind.

Those of a softmax model are `engine.refresh.coupled`'s, all others' `engine.refresh.refreshes`'.
"""

from __future__ import annotations

from collections.abc import Callable

from lethe.engine.deletion.generation import Generation, Stream
from lethe.engine.fit.factor import Factor
from lethe.engine.fit.multinomial import SoftmaxObjective
from lethe.engine.fit.objective import Array, Kind, Rows
from lethe.engine.refresh import coupled, refreshes
from lethe.engine.refresh.refreshes import NewGeneration, Polished


def polish_snapshot(
    generation: Generation,
    stream: Stream,
    factor: Factor,
    rows: Rows,
    W: Array,
    *,
    target: float,
    on_pass: Callable[[int], None] = lambda _: None,
) -> Polished:
    """Polish theta_exact over the live rows; as the function of this name in `refreshes`."""
    if generation.objective.kind is not Kind.SOFTMAX:
        return refreshes.polish_snapshot(
            generation, stream, factor, rows, W, target=target, on_pass=on_pass
        )
    return coupled.polish(generation, stream, rows, target, on_pass)


def compact(
    generation: Generation, stream: Stream, factor: Factor, rows: Rows, W: Array
) -> NewGeneration:
    """Fold V away; as the function of this name in `refreshes`."""
    if generation.objective.kind is not Kind.SOFTMAX:
        return refreshes.compact(generation, stream, factor, rows, W)
    return coupled.compact(generation, stream, rows)


def rebuild(
    generation: Generation, rows: Rows, start: Array | None = None, *, rounded: bool = False
) -> NewGeneration:
    """Refit from the live rows alone; as the function of this name in `refreshes`."""
    if generation.objective.kind is not Kind.SOFTMAX:
        return refreshes.rebuild(generation, rows, start, rounded=rounded)
    objective = SoftmaxObjective.of(generation.objective.penalty, rows)
    return coupled.begin(generation.number + 1, objective, rows, start)


def concurrent_remainder(
    generation: Generation,
    stream: Stream,
    polished: Polished,
    rows: Rows,
    W: Array,
    concurrent: int,
    pi: Array | None = None,
) -> float:
    """Estimate what changes during a polish leave; as the function in `refreshes`."""
    if generation.objective.kind is not Kind.SOFTMAX:
        return refreshes.concurrent_remainder(generation, stream, polished, rows, W, concurrent, pi)
    return coupled.concurrent_remainder(generation, stream, polished, rows, concurrent, pi)
