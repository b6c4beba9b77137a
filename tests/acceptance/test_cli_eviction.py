"""A store that removes keys when its memory is full is refused by what writes to it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from lethe.consumers.service.embedded_valkey import EmbeddedValkey
from lethe.engine.store.server.connection import connect
from tests.support.command import Lethe

pytestmark = [pytest.mark.redis, pytest.mark.xdist_group("test_cli_eviction")]


def test_register_and_work_refuse_a_store_that_evicts(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    table = pa.table(
        {"id": [str(i) for i in range(50)], "x": rng.normal(size=50), "y": np.ones(50)}
    )
    pq.write_table(table, tmp_path / "rows.parquet")
    with EmbeddedValkey(tmp_path / "valkey") as server:
        connect(server.url).config_set("maxmemory-policy", "allkeys-lru")
        lethe = Lethe(server.data_dir)
        for command in (
            ("register", "m", "--data", str(tmp_path / "rows.parquet"), "--id", "id",
             "--target", "y", "--kind", "linear", "--ridge", "1"),
            ("work", "--until-idle"),
        ):  # fmt: skip
            refused = lethe(*command, code=2)
            assert "maxmemory-policy allkeys-lru" in refused.err
            assert "set 'maxmemory-policy noeviction'" in refused.err
