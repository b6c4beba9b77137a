"""scikit-learn's digits, and two ways from an image to features: drawn, or learned."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray
from sklearn.datasets import load_digits
from sklearn.neural_network import MLPClassifier

Array: TypeAlias = NDArray[np.float64]
Labels: TypeAlias = NDArray[np.int64]
Extractor: TypeAlias = Callable[[Array], Array]

_WHITE = 16.0  # of a pixel: known before any image is looked at
_EPOCHS = 1000  # more than any of these trainings takes


@dataclass(frozen=True, slots=True)
class Images:
    """Images, n x 64 with values from 0 to 1, and their digits; the id of each."""

    pixels: Array
    digits: Labels
    ids: tuple[str, ...]

    def take(self, rows: Sequence[int] | NDArray[Any]) -> Images:
        """Return some of the images."""
        chosen = np.asarray(rows)
        return Images(self.pixels[chosen], self.digits[chosen], tuple(self.ids[i] for i in chosen))

    def without(self, rows: NDArray[Any]) -> Images:
        """Return the other images."""
        return self.take(np.setdiff1d(np.arange(len(self.ids)), rows))


def split(training: int, seed: int) -> tuple[Images, Images]:
    """Return images to train on, and the others."""
    pixels, digits = load_digits(return_X_y=True)
    every = Images(pixels / _WHITE, digits, tuple(f"i{i}" for i in range(len(digits))))
    order = np.random.default_rng(seed).permutation(len(digits))
    return every.take(order[:training]), every.take(order[training:])


def random_layer(_: Images, units: int, seed: int) -> Extractor:
    """Return a layer of rectified units with weights that are drawn without looking at images."""
    rng = np.random.default_rng(seed)
    weights = rng.standard_normal((64, units)) / 8
    offsets = rng.uniform(-0.5, 0.5, units)
    return lambda pixels: np.maximum(pixels @ weights + offsets, 0)


def hidden_layer(images: Images, units: int, seed: int) -> Extractor:
    """Return the hidden layer of a network that is trained on the images."""
    network = MLPClassifier((units,), random_state=seed, max_iter=_EPOCHS)
    network.fit(images.pixels, images.digits)
    weights, offsets = network.coefs_[0], network.intercepts_[0]
    return lambda pixels: np.maximum(pixels @ weights + offsets, 0)


EXTRACTORS: Mapping[str, Callable[[Images, int, int], Extractor]] = {
    "random": random_layer,
    "hidden": hidden_layer,
}
"""By the name that the command takes: from training images, units and a seed to an extractor."""


def write_features(path: Path, images: Images, extract: Extractor) -> None:
    """Write what `lethe register` reads: an id, a digit and the features of each image."""
    features = extract(images.pixels)
    columns = {f"f{j}": column for j, column in enumerate(features.T)}
    pq.write_table(pa.table({"image": images.ids, "digit": images.digits, **columns}), path)
