"""A store belongs to one log, and odd addresses are one clear line."""

from pathlib import Path

import pytest
from threadpoolctl import threadpool_info

from consumers.runtime import open_runtime
from consumers.settings import Settings
from engine.errors import InvalidData
from engine.store.connection import connect
from engine.store.keys import BOUND_LOG


@pytest.mark.redis
def test_a_store_whose_models_are_on_another_log_is_refused(tmp_path: Path) -> None:
    """Given a data directory that was used with Kafka, without --kafka nothing may be sent."""
    with open_runtime(Settings(data_dir=tmp_path)) as runtime:
        runtime.ensure_topics()
        store = runtime.store()
        assert store.client.get(BOUND_LOG) == b"streams"
        store.client.set(BOUND_LOG, "kafka")

        with pytest.raises(InvalidData, match=r"published to Kafka .*, not to Redis Streams"):
            runtime.store()
        with pytest.raises(InvalidData, match="--data-dir"):
            runtime.ensure_topics()


@pytest.mark.redis
def test_workers_compute_with_one_blas_thread(tmp_path: Path) -> None:
    with open_runtime(Settings(data_dir=tmp_path)):
        pools = [pool for pool in threadpool_info() if pool["user_api"] == "blas"]
    assert pools
    assert {pool["num_threads"] for pool in pools} == {1}


@pytest.mark.parametrize(
    "url", ["redis://localhost:6379/0?bogus=canary-secret", "http://localhost", "redis://h:port"]
)
def test_an_address_that_cannot_be_used_is_one_clear_line(url: str) -> None:
    with pytest.raises(InvalidData, match="no address that can be used") as raised:
        connect(url)

    assert "canary-secret" not in str(raised.value)
