"""Write features of handwritten digits for docs/last-layer.md, and the ids to delete.

    python scripts/last_layer.py --features random --write digits.parquet

Features of scikit-learn's digits: a random layer, or the hidden layer of a network. The file has
what `lethe register` reads; forget.txt beside it has the ids.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from sklearn.datasets import load_digits
from sklearn.neural_network import MLPClassifier

from harness.study import SEED

TRAINING, DELETED = 1400, 70
UNITS = {"random": 300, "hidden": 100}
_WHITE = 16.0  # of a pixel: known before any image is looked at
_EPOCHS = 1000  # more than any of these trainings takes


def main(arguments: list[str]) -> int:
    """Write the files; return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--features", choices=UNITS, default="random")
    parser.add_argument("--write", type=Path, metavar="FILE", required=True)
    parser.add_argument("--seed", type=int, default=SEED)
    chosen = parser.parse_args(arguments)
    pixels, digits = load_digits(return_X_y=True)
    train = np.random.default_rng(chosen.seed).permutation(len(digits))[:TRAINING]
    pixels, digits, units = pixels[train] / _WHITE, digits[train], UNITS[chosen.features]
    if chosen.features == "random":  # drawn without looking at images
        rng = np.random.default_rng(chosen.seed)
        weights, offsets = rng.standard_normal((64, units)) / 8, rng.uniform(-0.5, 0.5, units)
    else:
        network = MLPClassifier((units,), random_state=chosen.seed, max_iter=_EPOCHS)
        network.fit(pixels, digits)
        weights, offsets = network.coefs_[0], network.intercepts_[0]
    features = np.maximum(pixels @ weights + offsets, 0)
    ids = [f"i{number}" for number in train]
    columns = {f"f{j}": column for j, column in enumerate(features.T)}
    pq.write_table(pa.table({"image": ids, "digit": digits, **columns}), chosen.write)
    forgotten = "".join(f"{one}\n" for one in ids[:DELETED])
    (chosen.write.parent / "forget.txt").write_text(forgotten, encoding="utf-8")
    print(f"{chosen.write}: {TRAINING} rows, {units} features; forget.txt: {DELETED} ids")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
