"""The floor of the bench: what it is compared with must not be the product itself."""

from __future__ import annotations

import subprocess
import sys

from tests.support.servers import ROOT

_LOADED = """
import sys
import benchmarks.floor
print(*sorted({name.partition(".")[0] for name in sys.modules}))
"""


def test_the_floor_uses_none_of_our_code() -> None:
    done = subprocess.run(
        [sys.executable, "-c", _LOADED],
        capture_output=True, text=True, check=True,
        cwd=ROOT / "scripts", env={"PYTHONPATH": f"{ROOT / 'scripts'}:{ROOT}"},
    )  # fmt: skip
    loaded = set(done.stdout.split())

    assert {"benchmarks", "kafka", "redis"} <= loaded
    assert not loaded & {"consumers", "engine", "lethe", "numpy", "pydantic"}
