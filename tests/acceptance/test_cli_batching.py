"""``lethe work --min-batch``: requests wait for company."""

from __future__ import annotations

import json
import signal
from pathlib import Path

import pytest

from lethe.consumers.service.embedded_valkey import EmbeddedValkey
from tests.support.command import Lethe
from tests.support.training import write

pytestmark = [pytest.mark.redis, pytest.mark.xdist_group("test_cli_batching")]


def test_the_flags_and_the_settings_reach_the_worker(tmp_path: Path) -> None:
    """Given requests for two rows, sent one after the other, both leave in one version."""
    data = write(tmp_path / "rows.parquet", logistic=False)
    with EmbeddedValkey(tmp_path / "valkey") as server:
        lethe = Lethe(server.data_dir, LETHE_MIN_BATCH="2")
        lethe("register", "m", "--data", str(data), "--id", "id", "--target", "y", "--features",
              "a,b", "--kind", "linear", "--ridge", "1", "--error-budget", "100")  # fmt: skip
        refused = lethe("work", "--until-idle", "--max-wait", "2h", code=2)
        flags = ("deletions", "--max-wait", "1h", "--log-format", "json")
        with lethe.working(*flags) as worker:
            assert worker.stderr is not None
            lethe("delete", "m", "--row", "u1")
            held = next(json.loads(line) for line in worker.stderr if '"hold"' in line)
            lethe("delete", "m", "--row", "u2", "--wait", "120")
            worker.send_signal(signal.SIGTERM)
            worker.communicate(timeout=120)
        versions = lethe("versions", "m", "--json").document["versions"]

    assert held["rows"] == 1
    assert worker.returncode == 0
    assert [version["rows_deleted"] for version in versions] == [0, 2]
    assert "LETHE_MAX_WAIT" in refused.err
