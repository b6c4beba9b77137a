"""``lethe work --min-batch``: what waits for company, and that it does not wait for ever."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest

from consumers.embedded import EmbeddedValkey
from tests.acceptance.lethe import Lethe
from tests.acceptance.training import write

pytestmark = [pytest.mark.redis, pytest.mark.xdist_group("test_cli_batching")]


def test_until_idle_waits_for_company_and_then_decides_a_lone_request(tmp_path: Path) -> None:
    """Given requests for two rows and then one, both rows share a version, the third is alone."""
    data = write(tmp_path / "rows.parquet", logistic=False)
    with EmbeddedValkey(tmp_path / "valkey") as server:
        lethe = Lethe(server.data_dir, LETHE_MIN_BATCH="2", LETHE_MAX_WAIT="8s")
        lethe("register", "m", "--data", str(data), "--id", "id", "--target", "y", "--features",
              "a,b", "--kind", "linear", "--ridge", "1", "--error-budget", "100")  # fmt: skip
        lethe("delete", "m", "--row", "u1")
        lethe("delete", "m", "--row", "u2")
        lethe("work", "--until-idle", "--max-wait", "1h")
        sent = time.time()
        lethe("delete", "m", "--row", "u3")
        done = lethe("work", "--until-idle", "--log-format", "json")
        waited = time.time() - sent
        versions = lethe("versions", "m", "--json").document
        refused = lethe("work", "--until-idle", "--max-wait", "2h", code=2)

    held = [json.loads(line) for line in done.err.splitlines() if '"hold"' in line]
    assert [line["rows"] for line in held] == [1]
    assert done.out.startswith("idle; requests: 1 APPLIED")
    assert waited > 8
    assert [version["rows_deleted"] for version in versions] == [0, 2, 3]
    assert "LETHE_MAX_WAIT" in refused.err
