"""Measure what V costs as it grows and what folding it away costs, on this machine.

    .venv/bin/python scripts/crossover.py            # the tables of docs/guards.md
    .venv/bin/python scripts/crossover.py --sizes 250,1000

Prints, as Markdown: the time per deletion against K, the constants that `engine.deletion.crossover`
should have on this machine beside those that it has, and what the rule costs against fixed
thresholds on several streams. One BLAS thread; takes about two minutes, 100 s of them the
processor's.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from collections.abc import Callable
from functools import partial
from itertools import product
from typing import Any

import numpy as np
import redis
from threadpoolctl import threadpool_limits

from harness.tables import table
from harness.timing import shortest
from lethe.consumers.service.embedded_valkey import EmbeddedValkey
from lethe.engine.deletion import crossover
from lethe.engine.deletion.correction import Correction
from lethe.engine.deletion.methods import method_named
from lethe.engine.deletion.stream import (
    Generation,
    Stream,
    at_rest,
    begin,
    current_dual_rows,
    delete,
)
from lethe.engine.error.estimate import remainder_estimate
from lethe.engine.error.sentinels import Sentinels
from lethe.engine.fit.factor import Factor, lower_triangle
from lethe.engine.fit.objective import Kind, Objective, Rows
from lethe.engine.fit.precompute import precompute
from lethe.engine.refresh.compact import compacted_dual_rows, downdated_factor
from lethe.engine.refresh.policy import Limits
from lethe.engine.refresh.refreshes import compact, polish_snapshot, rebuild
from lethe.engine.store.generation import Sampled
from lethe.engine.store.layout import codec
from lethe.engine.store.layout.keys import SHARDS, ModelKeys
from lethe.engine.store.offline.staging import stage_generation

_REPEATS = 30
_COUNTED = 60_000  # numbers of V: in a smaller one, calls cost more than numbers
BATCHES = (1, 16, 256)


def made_stream(rng: np.random.Generator, d: int, K: int) -> Stream:
    """Return a stream with K rows in V."""
    V = Correction.of(rng.standard_normal((K, d)) * 1e-3)
    return at_rest(np.zeros((d, 1)), 0.0)._replace(V=V)


def cost_of_v(rng: np.random.Generator, sizes: list[int]) -> float:
    """Print the time per deletion that V adds; return the median of ns per number, k = 1."""
    lines, found = [], []
    for d in sizes:
        objective = Objective(Kind.LOGISTIC, np.ones(d))
        generation = Generation(0, objective, np.zeros((d, 1)), 1.0, 10.0, 0.0)
        none = at_rest(np.zeros((d, 1)), 0.0)
        for K in (d // 16, d // 4, d // 2, d):
            stream = made_stream(rng, d, K)
            times = []
            for k in BATCHES:
                X = rng.standard_normal((k, d))
                W = X / d
                one, empty = (
                    shortest(partial(current_dual_rows, s, X, W), _REPEATS) for s in (stream, none)
                )
                times.append((one - empty) / k)
            sample = Rows(rng.standard_normal((256, d)), np.ones((256, 1)), np.ones(256))
            sentinels = Sentinels(tuple(map(str, range(256))), sample, sample.X / d)
            with_v, without = (
                shortest(partial(remainder_estimate, generation, s, sentinels, 10_000), _REPEATS)
                for s in (stream, stream._replace(V=Correction.empty(d)))
            )
            a_number = times[0] / (K * d)
            if K * d >= _COUNTED:
                found.append(a_number)
            shown = [f"{1e6 * t:.1f}" for t in times]
            estimate = f"{1e6 * (with_v - without):.0f}"
            lines.append([str(d), str(K), *shown, f"{1e9 * a_number:.2f}", estimate])
    head = ["d", "K", *(f"us a row, k = {k}" for k in BATCHES)]
    show([*head, "ns a number, k = 1", "estimate, us a commit"], lines)
    return statistics.median(found)


def cost_of_folding(rng: np.random.Generator, shapes: list[tuple[int, int, int]]) -> float:
    """Print the time of a compact's arithmetic; return seconds per multiplication."""
    lines, found = [], []
    for n, d, K in shapes:
        X = rng.standard_normal((n, d))
        stream = made_stream(rng, d, K)
        factor = Factor(lower_triangle(X.T @ X / n + np.eye(d)), 1.0, 10.0)
        a = shortest(partial(downdated_factor, factor, stream), 5)
        b = shortest(partial(compacted_dual_rows, stream, X, X), 5)
        work = crossover.folding_multiplications(n, d, K)
        found.append((a + b) / work)
        model = crossover.SECONDS_PER_MULTIPLICATION * work
        lines.append([*map(str, (n, d, K)), *(f"{time:.3f}" for time in (a, b, model))])
    show(["n", "d", "K", "factor, s", "dual rows, s", "model, s"], lines)
    return statistics.median(found)


def cost_of_storing(rng: np.random.Generator, n: int, d: int) -> float:
    """Print the time of reading and staging n rows; return seconds per number (2 n d of them)."""
    with tempfile.TemporaryDirectory() as directory, EmbeddedValkey(directory) as server:
        client = redis.Redis.from_url(server.url)
        where = ModelKeys("m").generation("0")
        objective = Objective(Kind.LINEAR, np.ones(d))
        generation = Generation(0, objective, np.zeros((d, 1)), 1.0, 10.0, 0.0)
        X = rng.standard_normal((n, d))
        write = partial(
            stage_generation,
            client,
            where,
            generation=generation,
            stream=at_rest(np.zeros((d, 1)), 0.0),
            L=np.eye(d),
            ids=[str(i) for i in range(n)],
            rows=Rows(X, np.ones((n, 1)), np.ones(n)),
            W=X,
            sentinels=Sampled(),
        )

        def read() -> None:
            records: list[Any] = []
            for shard in range(SHARDS):
                records += client.hvals(where.rows(shard))
            codec.unpack_rows(records, d, 1, "rows")

        written, got = shortest(write, 5), shortest(read, 5)
    print(f"\nStore, n = {n}, d = {d}: {written:.3f} s to stage, {got:.3f} s to read back.")
    return (written + got) / (2 * n * d)


def price(n: int, d: int, K: int) -> float:
    """Return what folding V away costs for a linear model: by a compact, or by a rebuild."""
    return min(crossover.folding_seconds(n, d, K), crossover.rebuilding_seconds(n, d, 1))


def hard_and_mild(rng: np.random.Generator, n: int, d: int, kind: str) -> tuple[Rows, int]:
    """Return n rows, those that are deleted first, and how many these are.

    Mild: labels drawn from the model, one row in fifty deleted, at random. Hard: nearly separable,
    and the mislabelled rows, one in fifty, are what is deleted.
    """
    X = rng.standard_normal((n, d))
    margin = X @ rng.standard_normal(d) * (1.0 if kind == "mild" else 5.0) / np.sqrt(d)
    k = max(n // 50, 1)
    if kind == "mild":
        y = (rng.random(n) < 1 / (1 + np.exp(-margin))).astype(np.float64)
    else:
        y = (margin > 0).astype(np.float64)
        y[:k] = 1 - y[:k]
    return Rows(X, y[:, None], np.ones(n)), k


def polish_against_rebuild(rng: np.random.Generator, most: int) -> None:
    """Print what a polish and a rebuild take of the same state, beside what the policy thinks."""
    lines, passes = [], []
    sizes = [(n, d) for d in (10, 30, 100, 300, 1000) for n in (500, 2_000, 10_000, 20_000)]
    for n, d in sizes:
        for kind in ("mild", "hard"):
            if n * d > most or n < 2 * d:
                continue
            rows, k = hard_and_mild(rng, n, d, kind)
            objective = Objective(Kind.LOGISTIC, np.full(d, 1.0 if kind == "mild" else 1e-2))
            made = precompute(objective, rows)
            generation, stream = begin(0, objective, made)
            gone, live, W = rows.take(slice(0, k)), rows.take(slice(k, n)), made.dual_rows
            stream = delete(generation, stream, gone, W[:k], method_named("exact")).stream
            target = 0.0025 * float(np.linalg.norm(stream.published))
            polishing = partial(
                polish_snapshot, generation, stream, made.factor, live, W[k:], target=target
            )
            repeats = 5 if n * d <= 1_000_000 else 2
            hard = kind == "hard"
            times = (
                shortest(polishing, repeats),
                crossover.polishing_seconds(n - k, d, k, hard=hard, stored=False),
                shortest(partial(rebuild, generation, live, stream.theta_exact), repeats),
                crossover.refitting_seconds(n - k, d, hard=hard, stored=False),
            )
            done = polishing()
            passes.append(done.passes)
            took = f"{done.passes}" if done.certified is not None else f"{done.passes}, no bound"
            lines.append([str(n), str(d), kind, took, *(f"{1e3 * time:.1f}" for time in times)])
    show(["n", "d", "data", "passes", "polish, ms", "model", "rebuild, ms", "model"], lines)
    print(f"\nMedian of passes: {statistics.median(passes):g}.")


Rule = Callable[[int, int, int, float], bool]
"""Whether to fold, from n, d, K, and what V has cost."""

LIMITS = Limits()
RULES: dict[str, Rule] = {
    "the rule": lambda n, d, K, spent: LIMITS.rows(d) < K or spent >= price(n, d, K),
    "K > max(d/4, 256)": lambda _n, d, K, _spent: max(d / 4, 256) < K,
    "K > d": lambda _n, d, K, _spent: d < K,
    "K > 64": lambda _n, _d, K, _spent: K > 64,
}


def above(threshold: float) -> Rule:
    """Return the rule that folds above a fixed K."""
    return lambda _n, _d, K, _spent: threshold < K


def stream_cost(rule: Rule, n: int, d: int, deletions: int, k: int) -> float:
    """Return the seconds that a stream of deletions costs by the model: V, and folding it away."""
    total, spent, K = 0.0, 0.0, 0
    for done in range(0, deletions, k):
        step = crossover.step_seconds(d, K, k)
        total, spent, K = total + step, spent + step, K + k
        if rule(n - done, d, K, spent):
            total += price(n - done, d, K)
            spent, K = 0.0, 0
    return total


def model_against_streams(rng: np.random.Generator, n: int, d: int, deletions: int) -> None:
    """Print real streams of single deletions beside the model, without store and job.

    Processor time, because other programs would add to the clock's. What a deletion costs without
    V is the median of those with fewer than 16 rows in V.
    """
    X, y = rng.standard_normal((n, d)), rng.standard_normal((n, 1))
    rows = Rows(X, y, np.ones(n))
    objective = Objective(Kind.LINEAR, np.ones(d))
    made, exact = precompute(objective, rows), method_named("exact")
    print(f"\nReal streams, n = {n}, d = {d}, {deletions} single deletions, processor time.")
    lines = []
    for threshold in (deletions // 16, deletions // 4, deletions):
        generation, stream = begin(0, objective, made)
        factor, W = made.factor, made.dual_rows.copy()
        steps, without, folds, kept, folded = [], [], 0.0, 0.0, 0.0
        for i in range(deletions):
            K, one = len(stream.V), slice(i, i + 1)
            begun = time.process_time()
            stream = delete(generation, stream, rows.take(one), W[one], exact).stream
            steps.append(time.process_time() - begun)
            kept += crossover.step_seconds(d, K, 1)
            if K < 16:
                without.append(steps[-1])
            if threshold < K + 1:
                left = slice(i + 1, n)
                begun = time.process_time()
                after = compact(generation, stream, factor, rows.take(left), W[left])
                folds += time.process_time() - begun
                work = crossover.folding_multiplications(n - i, d, K + 1)
                folded += crossover.SECONDS_PER_MULTIPLICATION * work
                generation, stream, factor = after.generation, after.stream, after.factor
                W[left] = after.dual_rows
        v = sum(steps) - deletions * statistics.median(without)
        name = f"K > {threshold}" if threshold < deletions else "never"
        lines.append([name, *(f"{time:.2f}" for time in (v, kept, folds, folded))])
    show(["folded away at", "V, s", "model", "folding, s", "model"], lines)


def rule_against_thresholds(deletions: int) -> None:
    """Print what the rule costs, as a multiple of the best fixed threshold in hindsight."""
    lines = []
    sizes = ((1_000, 250), (10_000, 250), (10_000, 1000), (30_000, 1000), (30_000, 3000))
    for (n, d), gone, k in product(sizes, (deletions // 10, deletions), (1, 16)):
        length, most = min(gone, n - 1), LIMITS.rows(d)
        thresholds = {int(32 * 1.25**i) for i in range(26)} | {most, length + 1}
        every = {t: stream_cost(above(t), n, d, length, k) for t in thresholds}
        allowed = {t: cost for t, cost in every.items() if min(t, length) <= most}
        at = min(allowed, key=lambda t: allowed[t])
        best = allowed[at]
        costs = [stream_cost(rule, n, d, length, k) / best for rule in RULES.values()]
        where = "never" if at > length else f"K > {at}"
        ceiling = f"{best / min(every.values()):.2f}"
        shown = [f"{where}: {best:.3g} s", ceiling, *(f"{cost:.2f}" for cost in costs)]
        lines.append([*map(str, (n, d, length, k)), *shown])
    head = ["n", "d", "deletions", "k", "best fixed threshold", "price of the ceiling"]
    show([*head, *RULES], lines)


def show(head: list[str], lines: list[list[str]]) -> None:
    """Print a table."""
    print(f"\n{table(head, lines)}")


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--sizes", default="250,1000,3000", help="values of d")
    parser.add_argument("--model-only", action="store_true", help="only the last table")
    parser.add_argument("--polish", action="store_true", help="with --model-only: polish, too")
    chosen = parser.parse_args()
    sizes = [int(size) for size in chosen.sizes.split(",")]
    rng = np.random.default_rng(0)
    with threadpool_limits(1):
        if not chosen.model_only:
            shapes = [(8 * d, d, K) for d in sizes if d <= 2000 for K in (d // 4, d)]
            measured = {
                "seconds per number of V": (cost_of_v(rng, sizes), crossover.SECONDS_PER_V),
                "seconds per multiplication": (
                    cost_of_folding(rng, shapes),
                    crossover.SECONDS_PER_MULTIPLICATION,
                ),
                "seconds per stored number": (
                    cost_of_storing(rng, 8_000, 250),
                    crossover.SECONDS_PER_STORED,
                ),
            }
            lines = [[name, *(f"{one:.1e}" for one in both)] for name, both in measured.items()]
            show(["constant", "here", "in engine/deletion/crossover.py"], lines)
            model_against_streams(rng, 3_000, 1_000, 1_500)
        if chosen.polish or not chosen.model_only:
            polish_against_rebuild(rng, most=20_000_000)
        rule_against_thresholds(5_000)


if __name__ == "__main__":
    main()
