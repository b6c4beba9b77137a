"""The measurement of the HTTP API under load loses and doubles nothing, and says so."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from http_load import WAYS, Load
from tests.support.servers import ROOT

pytestmark = [pytest.mark.redis, pytest.mark.slow]


def test_a_small_run_finds_every_request_once(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "scripts/http_load.py", "--log", "streams", "--requests", "200",
         "--clients", "20", "--rate", "50", "--json", str(tmp_path / "load.json")],
        cwd=ROOT, capture_output=True, text=True, check=False,
    )  # fmt: skip

    assert done.returncode == 0, done.stdout + done.stderr
    figures = json.loads((tmp_path / "load.json").read_text())
    assert figures["checks"] == {
        "lost": 0, "doubled": 0, "without a receipt": 0, "rows deleted": 200,
    }  # fmt: skip
    assert 0 < figures["bare"]["p50"] <= figures["bare"]["p99"]
    assert 0 < figures["HTTP"]["p50"] <= figures["HTTP"]["p99"]
    assert figures["HTTP"]["processor ms"] > 0


@pytest.mark.parametrize("rate", [0.5, 7.0, 200.0])
def test_both_ways_send_every_record_once_in_turns_at_one_rate(rate: float) -> None:
    load = Load(requests=53, clients=10, rate=rate)

    sent = sorted(
        (moment, way, number) for i in range(10) for way, number, moment in load.moments(i)
    )

    for way in WAYS:
        assert [number for _, one, number in sent if one == way] == list(range(53))
    assert [moment for moment, _, _ in sent] == pytest.approx([i / rate for i in range(106)])
