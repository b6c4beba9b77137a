"""How far an import moves ordinary models: what docs/scikit-learn.md says of it.

python -m tests.proof.pipelines.moved
"""

from __future__ import annotations

import sys
import warnings

import numpy as np
import pandas as pd
from sklearn.compose import make_column_transformer
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler

from lethe import LogisticModel

NUMBERS = [f"c{i}" for i in range(20)]


def table(rows: int) -> tuple[pd.DataFrame, np.ndarray]:
    """Return numbers of scales from 0.1 to 1,000 and a category, and labels."""
    draw = np.random.default_rng(0)
    numbers = draw.normal(size=(rows, len(NUMBERS))) * np.logspace(-1, 3, len(NUMBERS))
    X = pd.DataFrame(numbers, columns=NUMBERS)
    X["town"] = draw.choice(list("abcdefgh"), rows)
    return X, (X["c0"] * 5 + (X["town"] == "a") + draw.normal(size=rows) > 0).to_numpy()


def main() -> None:
    """Print how far scaled and unscaled models of default tolerance are from their optimum."""
    for rows in (2_000, 10_000, 50_000):
        X, y = table(rows)
        columns = make_column_transformer((StandardScaler(), NUMBERS), (OneHotEncoder(), ["town"]))
        for name, estimator, given in (
            ("scaled", make_pipeline(columns, LogisticRegression()), X),
            ("unscaled", LogisticRegression(), X[NUMBERS]),
        ):
            model = LogisticModel.from_sklearn(estimator.fit(given, y), given, y)
            sys.stdout.write(f"{rows:>6} rows, {name:<8}  {model.converted_from_}\n")


if __name__ == "__main__":
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of an unscaled one that has not converged
        main()
