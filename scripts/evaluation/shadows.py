"""Shadow models: deleted and retrained ones in pairs, and what the attacks make of them.

Retraining is deterministic here, so that a shadow model's randomness is its training set: a random
half of the rows, as in LiRA, and the hard rows. A pair has the same half: one model is trained on
it and the deleted rows, which are then deleted; the other one has never seen them. So a pair of
equal models scores exactly one half. Where the retrained models have other halves than the deleted
ones, the score has the noise of independent models; KLoM is always taken there.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from evaluation.attacks import Interval, klom, u_lira
from evaluation.data import DATA, Array, Table, hardest
from evaluation.deletions import METHODS, answers, retrained

HARD = 10
"""Rows deleted, and hard rows that stay: every other of the 20 with the largest Cook's distance."""


def measure(name: str, pairs: int, seed: int) -> Iterator[dict[str, Any]]:
    """Yield a record for each method, and for deleted and retained rows."""
    rng = np.random.default_rng([seed, list(DATA).index(name)])
    for rows, margins in _margins(DATA[name](rng), pairs, rng).items():
        goal = margins["goal"]
        for method in METHODS:
            other = goal if method == "retrain" else margins["retrain"]
            divergences = klom(margins[method], other)
            yield {
                "part": "shadows",
                "data": name,
                "rows": rows,
                "method": method,
                "pairs": pairs,
                **_fields("paired", u_lira(margins[method], goal, rng)),
                **_fields("other_half", u_lira(margins[method], other, rng)),
                "klom": float(divergences.mean()),
                "klom_95": float(np.percentile(divergences, 95)),
            }


def _margins(
    table: Table, pairs: int, rng: np.random.Generator
) -> Mapping[str, Mapping[str, Array]]:
    """Return S x m margins, of deleted and of retained rows, under each method's S models.

    ``goal`` are the retrained models of the pairs, ``retrain`` those of other halves.
    """
    order = hardest(table, retrained(table, np.arange(len(table.y))))
    gone, stay, others = order[: 2 * HARD : 2], order[1 : 2 * HARD : 2], order[2 * HARD :]
    thetas: dict[str, list[Array]] = {method: [] for method in (*METHODS, "goal")}
    for _ in range(pairs):
        half, other_half = (
            np.concatenate([stay, rng.choice(others, len(others) // 2, replace=False)])
            for _ in range(2)
        )
        for method, theta in answers(table, half, gone).items():
            thetas[method].append(theta)
        thetas["goal"].append(retrained(table, half))
        thetas["retrain"].append(retrained(table, other_half))
    return {
        which: {
            method: np.array([table.margins(theta, rows) for theta in found])
            for method, found in thetas.items()
        }
        for which, rows in (("deleted", gone), ("retained", stay))
    }


def _fields(name: str, attack: Interval) -> dict[str, float]:
    return {name: attack.value, f"{name}_low": attack.low, f"{name}_high": attack.high}
