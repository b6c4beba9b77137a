"""How attempts at refresh jobs are counted."""

from __future__ import annotations

from typing import Any

import pytest
import redis

from lethe.engine.store.layout.keys import ModelKeys
from lethe.engine.store.offline.jobs import Attempts, begin_attempt, end_attempt
from lethe.engine.store.offline.staging import TIME_TO_LIVE

pytestmark = pytest.mark.redis


def test_attempts_that_did_not_end_and_interrupted_ones_are_counted_apart(
    redis_client: redis.Redis,
) -> None:
    assert begin_attempt(redis_client, "m", "j") == Attempts(open=1, interrupted=0)
    end_attempt(redis_client, "m", "j")
    assert begin_attempt(redis_client, "m", "j") == Attempts(open=1, interrupted=0)
    assert begin_attempt(redis_client, "m", "j", interrupted=1) == Attempts(open=1, interrupted=1)
    assert begin_attempt(redis_client, "m", "j") == Attempts(open=2, interrupted=1)


def test_what_is_kept_of_a_job_that_a_failover_lost_expires(redis_client: redis.Redis) -> None:
    end_attempt(redis_client, "m", "j")
    left: Any = redis_client.ttl(ModelKeys("m").job("j"))
    assert 0 < left <= TIME_TO_LIVE
