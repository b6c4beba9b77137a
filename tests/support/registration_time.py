"""What ``lethe register --from`` costs beside the fit of the Pipeline that it is given.

``python -m tests.support.registration_time`` prints processor time, user and system: of the fit, of
an interpreter that imports what the command does, and of one that runs it.
"""

from __future__ import annotations

import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pandas as pd
from sklearn.compose import make_column_transformer
from sklearn.impute import SimpleImputer
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler
from skops import io as skops

from lethe.consumers.service.embedded_valkey import EmbeddedValkey

_ROWS, _RUNS = 50_000, 5
_IMPORTS = """
import pandas, skops.io
import lethe.consumers.cli.maintain.registering, lethe.consumers.registration.fitted_estimator
"""
_RUN = "import sys; from lethe.consumers.cli.main import run; sys.exit(run())"


def table(n: int = _ROWS) -> tuple[pd.DataFrame, Pipeline]:
    """Return n rows of 22 features, two dates, an id and a target; and a Pipeline for them."""
    draw = np.random.default_rng(7)
    numbers = {f"number{j}": draw.normal(j, 1.0 + j, n) for j in range(14)}
    score = sum(draw.normal(0.0, 0.3) * (x - x.mean()) / x.std() for x in numbers.values())
    for x in [*numbers.values()][::2]:
        x[draw.random(n) < 0.05] = np.nan
    truths = {f"truth{j}": draw.random(n) < 0.3 for j in range(4)}
    places = {f"place{j}": draw.choice(["Bonn", "Kiel", "Mainz", "Ulm"], n) for j in range(4)}
    score = score - (places["place0"] == "Ulm") + truths["truth0"] + draw.logistic(size=n)
    days = {f"day{j}": np.datetime64("2020-01-01") + draw.integers(0, 999, n) for j in range(2)}
    rest = {"customer": [f"u{i}" for i in range(n)], "left": np.where(score > 0.0, "yes", "no")}
    columns = make_column_transformer(
        (make_pipeline(SimpleImputer(), StandardScaler()), [*numbers]),
        (OneHotEncoder(handle_unknown="ignore"), [*truths, *places]),
    )
    frame = pd.DataFrame({**numbers, **truths, **places, **days, **rest})
    return frame, make_pipeline(columns, LogisticRegression())


def _seconds(arguments: Sequence[str], compiled: Path) -> float:
    """Return the processor time of a fresh interpreter whose modules are compiled there."""
    kept = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}
    environment = {**kept, "PYTHONPYCACHEPREFIX": str(compiled)}
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    command = [sys.executable, "-c", *arguments]
    subprocess.run(command, check=True, capture_output=True, env=environment)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def main() -> None:
    """Print least, median and largest of five runs, after one that compiles."""
    rows, pipeline = table()
    X, y = rows.drop(columns=["customer", "left", "day0", "day1"]), rows["left"]
    with tempfile.TemporaryDirectory() as directory, EmbeddedValkey(directory):
        data, file = Path(directory) / "rows.parquet", Path(directory) / "pipeline.skops"
        rows.to_parquet(data)
        times: dict[str, list[float]] = {"fit": [], "imports": [], "lethe register": []}
        for run in range(_RUNS + 1):
            start = time.process_time()
            pipeline.fit(X, y)
            times["fit"].append(time.process_time() - start)
            skops.dump(pipeline, file)
            line = (
                "register", f"churn{run}", "--from", str(file), "--data", str(data),
                "--id", "customer", "--target", "left", "--data-dir", directory,
            )  # fmt: skip
            compiled = Path(directory) / "compiled"
            times["imports"].append(_seconds([_IMPORTS], compiled))
            times["lethe register"].append(_seconds([_RUN, *line], compiled))
    for what, (_, *each) in times.items():
        least, middle, most = min(each), statistics.median(each), max(each)
        sys.stdout.write(f"{what:<15} {least:.2f} {middle:.2f} {most:.2f}\n")


if __name__ == "__main__":
    main()
