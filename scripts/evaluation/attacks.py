"""Two tests of membership after deletion: U-LiRA, and the KL divergence of margins (KLoM).

Both look at one row's margin over many shadow models, deleted and retrained ones.

U-LiRA (Hayes et al. 2024, "Inexact unlearning needs more careful evaluations to avoid a false
sense of privacy") fits one normal distribution to the margins of each kind, for each row, and
guesses by the likelihood ratio which kind a new model is of: 0.5 is a coin, 1 is certainty.

KLoM (Georgiev et al. 2024, "Attribute-to-Delete: machine unlearning via datamodel matching") is
the KL divergence between the two histograms of a row's margins.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from evaluation.data import Array, Index

_BINS = 20
_SMOOTHED = 1e-5  # probability that an empty bin counts with
_RESAMPLES = 400
_SMALLEST_SPREAD = 1e-12


@dataclass(frozen=True, slots=True)
class Interval:
    """A mean, and the ends of its 95 % interval."""

    value: float
    low: float
    high: float


def u_lira(deleted: Array, retrained: Array, rng: np.random.Generator) -> Interval:
    """Return the accuracy of U-LiRA, averaged over rows.

    Parameters
    ----------
    deleted, retrained
        S x m margins of m rows under S shadow models of each kind. Model s of the two is one pair.
    rng
        Draws the resamples of pairs.

    Notes
    -----
    Each half of the pairs is judged by normal distributions of the other half. A tie counts one
    half. The interval is a bootstrap over the pairs of each half, not over rows, as margins under
    one model depend on each other; the distributions are fitted again for every resample.
    """
    count = len(deleted)
    half = count // 2
    first, second = np.arange(half), np.arange(half, count)
    drawn = [
        _accuracy(deleted, retrained, rng.choice(first, half), rng.choice(second, count - half))
        for _ in range(_RESAMPLES)
    ]
    low, high = np.percentile(drawn, [2.5, 97.5])
    return Interval(_accuracy(deleted, retrained, first, second), float(low), float(high))


def _accuracy(deleted: Array, retrained: Array, first: Index, second: Index) -> float:
    """Return the share of right guesses, each half judged by the other."""
    right = [
        _right(deleted[judged], retrained[judged], deleted[seen], retrained[seen])
        for seen, judged in ((first, second), (second, first))
    ]
    return float(np.concatenate(right).mean())


def _right(deleted: Array, retrained: Array, seen_deleted: Array, seen_retrained: Array) -> Array:
    """Return the share of right guesses of each pair."""
    share = np.zeros(len(deleted))
    for margins, sign in ((deleted, 1), (retrained, -1)):
        ratio = _log_density(margins, seen_deleted) - _log_density(margins, seen_retrained)
        share += (0.5 * (1 + np.sign(sign * ratio))).mean(axis=1) / 2
    return share


def _log_density(margins: Array, seen: Array) -> Array:
    """Return the logarithm of the density at margins, up to a constant, for each row."""
    spread = np.maximum(seen.std(axis=0), _SMALLEST_SPREAD)
    density: Array = -(((margins - seen.mean(axis=0)) / spread) ** 2) / 2 - np.log(spread)
    return density


def klom(deleted: Array, retrained: Array) -> Array:
    """Return the KL divergence of margins, deleted from retrained, for each of m rows."""
    pairs = zip(deleted.T, retrained.T, strict=True)
    return np.array([_divergence(one, other) for one, other in pairs])


def _divergence(one: Array, other: Array) -> float:
    edges = np.histogram_bin_edges(np.concatenate([one, other]), _BINS)
    p, q = (np.histogram(margins, edges)[0] / len(margins) for margins in (one, other))
    p, q = (np.maximum(share, _SMOOTHED) for share in (p, q))
    p, q = p / p.sum(), q / q.sum()
    return float(np.sum(p * np.log(p / q)))
