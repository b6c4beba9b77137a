"""Reconstruction of a deleted row from two published versions, and what noise does to it.

A linear version moves by theta' - theta = A'^-1 sum_i e_i x_i over the deleted rows i, so whoever
knows the Hessian A' reads off sum_i e_i x_i; a logistic one moves so to first order. The attacker
here knows A' exactly: the worst case. Without A', the attacker takes the difference as it is.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.linalg import solve_triangular

from evaluation.data import DATA, Array, Index, Table
from evaluation.deletions import POLISH_TARGET, retrained
from lethe.engine.error.gaussian import mu_of
from lethe.engine.fit.objective import Kind
from reproduction.retraining import logistic_hessian

BATCHES = (1, 2, 5, 20, 100)
EPSILON, DELTA = 1.0, 1e-4
NOISES = ("none", "output", "priced")
"""``output`` covers the published bound (docs/certified.md), ``priced`` the row's Cook distance."""


@dataclass(frozen=True, slots=True)
class Versions:
    """The two versions (d,) around a deletion, and the Hessian after it."""

    before: Array
    after: Array
    hessian: Array


def hessian(table: Table, rows: Index, theta: Array) -> Array:
    """Return the Hessian of these rows' loss at theta, d x d."""
    X = table.X[rows]
    if table.kind is Kind.LOGISTIC:
        return logistic_hessian(X, theta, table.ridge)
    A: Array = X.T @ X + table.ridge * np.eye(X.shape[1])
    return A


def measure(name: str, draws: int, seed: int) -> Iterator[dict[str, Any]]:
    """Yield a record for each batch size and kind of noise: medians over draws of the rows.

    The versions are retrained ones, so that nothing measured here is an error of deletion.
    """
    rng = np.random.default_rng([seed, 1, list(DATA).index(name)])
    table = DATA[name](rng)
    n = len(table.y)
    all_rows = np.arange(n)
    full = retrained(table, all_rows)
    for k in BATCHES:
        found: dict[str, list[dict[str, float]]] = {noise: [] for noise in NOISES}
        for _ in range(draws):
            gone = rng.choice(n, k, replace=False)
            kept = np.setdiff1d(all_rows, gone)
            after = retrained(table, kept)
            versions = Versions(full, after, hessian(table, kept, after))
            for noise in NOISES:
                found[noise].append(_attacked(table, versions, gone, kept, noise, rng))
        for noise, figures in found.items():
            medians = {
                field: float(np.median([one[field] for one in figures])) for field in figures[0]
            }
            record = {"part": "reconstruction", "data": name, "k": k, "noise": noise}
            low, high = np.percentile([one["cosine"] for one in figures], [25, 75])
            quartiles = {"cosine_25": float(low), "cosine_75": float(high)}
            yield {**record, "draws": draws, **medians, **quartiles}


def _attacked(
    table: Table, versions: Versions, gone: Index, kept: Index, noise: str, rng: np.random.Generator
) -> dict[str, float]:
    """Return |cos| of what is reconstructed with the nearest deleted and unrelated row."""
    released = _released(versions, noise, rng)
    difference = released.after - released.before
    estimate = versions.hessian @ difference
    unrelated = rng.choice(kept, len(gone), replace=False)
    clean, noisy = (_loss(table, theta, kept) for theta in (versions.after, released.after))
    return {
        "cosine": _nearest(table.X[gone], estimate),
        "cosine_unrelated": _nearest(table.X[unrelated], estimate),
        "cosine_without_hessian": _nearest(table.X[gone], difference),
        "moved": float(
            np.linalg.norm(released.after - versions.after) / np.linalg.norm(versions.after)
        ),
        "loss_ratio": noisy / clean,
    }


def _released(versions: Versions, noise: str, rng: np.random.Generator) -> Versions:
    """Return the versions with fresh noise on both.

    ``output`` is N(0, sigma^2 I), sigma = alpha / mu(epsilon, delta), alpha the error that a polish
    leaves. ``priced`` is N(0, (a / mu)^2 A^-1), a the length of the step in the norm of A: for one
    row a^2 is its Cook distance times p s^2, so that this pair of versions is (epsilon, delta)
    indistinguishable in theta for the one deletion.
    """
    if noise == "none":
        return versions
    mu = mu_of(EPSILON, DELTA)
    draws = rng.standard_normal((2, len(versions.before)))
    if noise == "output":
        draws *= POLISH_TARGET * float(np.linalg.norm(versions.after)) / mu
    else:
        step = versions.after - versions.before
        length = float(np.sqrt(step @ versions.hessian @ step))
        root = np.linalg.cholesky(versions.hessian)
        draws = length / mu * solve_triangular(root.T, draws.T, lower=False).T
    before, after = versions.before + draws[0], versions.after + draws[1]
    return Versions(before, after, versions.hessian)


def _loss(table: Table, theta: Array, rows: Index) -> float:
    """Return the mean squared error, or the mean log loss."""
    margins = table.margins(theta, rows)
    losses = margins**2 if table.kind is Kind.LINEAR else np.logaddexp(0, -margins)
    return float(losses.mean())


def _nearest(rows: Array, direction: Array) -> float:
    """Return the largest |cos| of a direction with rows, without their constant last column."""
    features, along = rows[:, :-1], direction[:-1]
    lengths = np.linalg.norm(features, axis=1) * np.linalg.norm(along)
    return float(np.max(np.abs(features @ along) / lengths))
