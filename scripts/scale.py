"""What a model with its rows in files takes: register, delete, rebuild, verify.

Rows are drawn, written as Parquet, and go through the commands that a user types, on the embedded
server: ``python scripts/scale.py --rows 5000000 --features 100``. With ``--preprocess``, one number
in fifty is missing, and there are two columns of categories beside them. Processor time and peak
memory are those of each process, as the kernel counts them.
"""

from __future__ import annotations

import argparse
import os
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from rich.console import Console
from rich.table import Table

BLOCK = 250_000
LETHE = [sys.executable, "-c", "from lethe.consumers.cli.main import run; run()"]
REFERENCE = """
import sys, pandas, sklearn.linear_model
table = pandas.read_parquet(sys.argv[1]).drop(columns=["id", "person"])
sklearn.linear_model.{}.fit(table.drop(columns="y"), table["y"])
"""
ESTIMATORS = {
    "linear": "Ridge(1.0)",
    "logistic": "LogisticRegression(solver='newton-cholesky', tol=1e-10)",
}
MOST_IN_MEMORY = 200_000_000
"""Numbers up to which pandas and scikit-learn are measured, too: they hold them four times."""


@dataclass
class Taken:
    """What a process took: wall and processor seconds, peak memory in MB, its standard output."""

    seconds: float
    processor: float
    memory: float
    output: str


class Process:
    """A command that runs, with one BLAS thread."""

    def __init__(self, arguments: list[str], data: Path) -> None:
        one = dict.fromkeys(("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS"), "1")
        self._output = tempfile.TemporaryFile()  # noqa: SIM115 - closed with the process
        self._begin = time.perf_counter()
        self._process = subprocess.Popen(
            arguments,
            stdout=self._output,
            env={**os.environ, **one, "LETHE_DATA_DIR": str(data)},
        )

    def wait(self) -> Taken:
        """Wait for its end; return what it took. A failure ends this process, too."""
        _, status, usage = os.wait4(self._process.pid, 0)
        seconds = time.perf_counter() - self._begin
        self._process.returncode = os.waitstatus_to_exitcode(status)
        if self._process.returncode:
            sys.exit(self._process.returncode)
        self._output.seek(0)
        output = self._output.read().decode()
        self._output.close()
        processor = usage.ru_utime + usage.ru_stime
        return Taken(seconds, processor, usage.ru_maxrss / 1e3, output)

    def stop(self) -> Taken:
        """Ask it to end, and wait."""
        self._process.send_signal(signal.SIGTERM)
        return self.wait()


def draw(folder: Path, rows: int, features: int, kind: str, preprocess: bool) -> None:
    """Write rows as Parquet files: ten rows a person; if asked, with what to preprocess."""
    folder.mkdir()
    rng = np.random.default_rng(1)
    beta = rng.standard_normal(features)
    for start in range(0, rows, BLOCK):
        n = min(BLOCK, rows - start)
        X = rng.standard_normal((n, features))
        numbers = range(start, start + n)
        columns: dict[str, Any] = {f"x{j}": X[:, j] for j in range(features)}
        y = X @ beta + rng.standard_normal(n)
        columns["y"] = y if kind == "linear" else (y > 0).astype(np.int64)
        if preprocess:
            X[rng.random(X.shape) < 0.02] = np.nan
            columns["town"] = rng.choice([f"town {i}" for i in range(20)], n)
            columns["post"] = rng.choice([f"N{i}" for i in range(10)], n)
        columns["id"] = [f"row-{i}" for i in numbers]
        columns["person"] = [f"person-{i // 10}" for i in numbers]
        path = folder / f"part-{start:010}.parquet"
        pq.write_table(pa.table(columns), path, row_group_size=65_536, use_dictionary=False)


def steps_of(features: int) -> str:
    """Return a file for --preprocess."""
    numeric = "".join(f'[columns.x{j}]\nstep = "numeric"\n' for j in range(features))
    towns = '[columns.town]\nstep = "one-hot"\n[columns.post]\nstep = "target-encode"\n'
    return numeric + towns + "smooth = 5.0\n"


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--features", type=int, default=50)
    parser.add_argument("--kind", choices=ESTIMATORS, default="linear")
    parser.add_argument("--preprocess", action="store_true")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory:
        home = Path(directory)
        table, data = home / "table", home / "data"
        # Apart: what is spawned counts the peak of its parent as its own.
        drawing = get_context("spawn").Process(
            target=draw, args=(table, given.rows, given.features, given.kind, given.preprocess)
        )
        drawing.start()
        drawing.join()

        def run(*arguments: str) -> Taken:
            return Process([*LETHE, *arguments], data).wait()

        measured: dict[str, Taken] = {}
        prepared: list[str] = []
        if given.preprocess:
            (home / "steps.toml").write_text(steps_of(given.features))
            prepared = ["--preprocess", str(home / "steps.toml")]
        elif given.rows * given.features <= MOST_IN_MEMORY:
            code = REFERENCE.format(ESTIMATORS[given.kind])
            reference = Process([sys.executable, "-c", code, str(table)], data)
            measured["pandas and scikit-learn"] = reference.wait()
        measured["lethe register --rows"] = run(
            "register", "big", "--data", str(table), "--id", "id", "--target", "y",
            "--subject", "person", "--kind", given.kind, "--ridge", "1",
            "--rows", str(home / "rows"), *prepared,
        )  # fmt: skip
        worker = Process([*LETHE, "work"], data)
        for number in range(5):
            run("delete", "big", "--subject", f"person-{number * 7}", "--wait", "60")
        measured["lethe refresh --size rebuild (waiting)"] = run(
            "refresh", "big", "--size", "rebuild", "--wait", "3600"
        )
        measured["lethe work, meanwhile"] = worker.stop()
        measured["lethe verify"] = run("verify", "big")
        files = sum(path.stat().st_size for path in (home / "rows").rglob("*") if path.is_file())
        store = sum(path.stat().st_size for path in data.rglob("*") if path.is_file())
    shown = Table("", "seconds", "processor s", "peak MB")
    for what, taken in measured.items():
        shown.add_row(what, f"{taken.seconds:.1f}", f"{taken.processor:.1f}", f"{taken.memory:.0f}")
    console = Console()
    console.print(f"{given.rows} rows of {given.features} features, a tenth as many people")
    console.print(shown)
    console.print(f"files of rows {files / 1e6:.0f} MB, files of the store {store / 1e6:.1f} MB")


if __name__ == "__main__":
    main()
