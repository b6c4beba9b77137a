"""The same deletion through the commands of Lethe, each a process of its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from harness.machine import ONE_THREAD
from harness.timing import seconds
from heads.features import EXTRACTORS, split, write_features
from heads.forgetting import RIDGE, Plan

_MODEL = "digits"


def measure(plan: Plan, seed: int) -> Iterator[dict[str, Any]]:
    """Yield a record for each kind of features: seconds of each command, and what verify finds."""
    train, _ = split(plan.training, seed)
    gone = np.random.default_rng([seed, 0]).choice(plan.training, plan.deleted, replace=False)
    for kind in plan.served:
        with tempfile.TemporaryDirectory(prefix="lethe-last-layer-") as made:
            directory = Path(made)
            write_features(
                directory / "rows.parquet", train, EXTRACTORS[kind](train, plan.units[kind], seed)
            )
            forget = "".join(f"{name}\n" for name in train.take(gone).ids)
            (directory / "forget.txt").write_text(forget, encoding="utf-8")
            yield {"features": kind, **_commands(directory)}


def _commands(directory: Path) -> dict[str, Any]:
    register = ["register", _MODEL, "--data", "rows.parquet", "--id", "image", "--target", "digit"]
    register += ["--kind", "logistic", "--ridge", str(RIDGE), "--method", "exact"]
    took = {
        "register_seconds": seconds(lambda: _lethe(directory, *register)),
        "delete_seconds": seconds(
            lambda: _lethe(directory, "delete", _MODEL, "--rows-file", "forget.txt")
        ),
        "work_seconds": seconds(lambda: _lethe(directory, "work", "--until-idle")),
    }
    verified = json.loads(_lethe(directory, "verify", _MODEL, "--json"))
    return {
        **took,
        "version": verified["version"],
        "rows_live": verified["rows_live"],
        "distance": verified["distance_relative"],
        "within_bound": verified["verified"],
    }


def _lethe(directory: Path, *arguments: str) -> str:
    """Run a command on the directory's embedded store, and return what it prints."""
    program = "import sys; from lethe.consumers.cli.main import run; sys.exit(run())"
    environment = {
        **os.environ,
        **ONE_THREAD,
        "LETHE_DATA_DIR": str(directory / "data"),
        "LETHE_HTTP_PORT": "0",
        "LETHE_EMBEDDED_LINGER": os.environ.get("LETHE_EMBEDDED_LINGER", "0"),
    }
    for server in ("LETHE_REDIS_URL", "LETHE_KAFKA_BOOTSTRAP_SERVERS"):
        environment.pop(server, None)  # the run has a store of its own
    done = subprocess.run(
        [sys.executable, "-c", program, *arguments],
        cwd=directory, env=environment, capture_output=True, text=True, check=False,
    )  # fmt: skip
    if done.returncode != 0:
        raise RuntimeError(f"lethe {arguments[0]} ended with {done.returncode}: {done.stderr}")
    return done.stdout
