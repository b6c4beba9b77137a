"""Measure what V costs as it grows, what folding it away costs, and polishes beside rebuilds.

    .venv/bin/python scripts/crossover.py            # tables of docs/guards.md
    .venv/bin/python scripts/crossover.py --sizes 250,1000

Prints, as Markdown: the time per deletion against K, the constants that `engine.deletion.crossover`
should have on this machine beside those that it has, and what its prices of a polish and a rebuild
come to. One BLAS thread; takes about two minutes.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
from functools import partial
from typing import Any

import numpy as np
import redis
from threadpoolctl import threadpool_limits

from harness.tables import table
from harness.timing import shortest
from lethe.consumers.service.embedded_valkey import EmbeddedValkey
from lethe.engine.deletion import crossover
from lethe.engine.deletion.correction import Correction
from lethe.engine.deletion.generation import Generation, Stream, at_rest, begin, current_dual_rows
from lethe.engine.deletion.methods import method_named
from lethe.engine.deletion.stream import delete
from lethe.engine.error.estimate import remainder_estimate
from lethe.engine.error.sentinels import Sentinels
from lethe.engine.fit.factor import Factor, lower_triangle
from lethe.engine.fit.objective import Kind, Objective, Rows
from lethe.engine.fit.precompute import precompute
from lethe.engine.refresh.folding import compacted_dual_rows, downdated_factor
from lethe.engine.refresh.refreshes import polish_snapshot, rebuild
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


def show(head: list[str], lines: list[list[str]]) -> None:
    """Print a table."""
    print(f"\n{table(head, lines)}")


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--sizes", default="250,1000,3000", help="values of d")
    parser.add_argument("--most", type=int, default=20_000_000, help="numbers of X, for polishes")
    chosen = parser.parse_args()
    sizes = [int(size) for size in chosen.sizes.split(",")]
    rng = np.random.default_rng(0)
    with threadpool_limits(1):
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
        polish_against_rebuild(rng, chosen.most)


if __name__ == "__main__":
    main()
