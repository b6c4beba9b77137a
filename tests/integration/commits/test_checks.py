"""``lethe check``: how far the store follows lethe.commits, and what no worker can go on from."""

from __future__ import annotations

import base64
import re
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from lethe.consumers.audit.health import commits as commit_checks
from lethe.consumers.audit.health.checks import Check
from lethe.consumers.audit.health.commits import check_commits
from lethe.consumers.audit.health.models import check_model
from lethe.consumers.contract import topics
from lethe.consumers.log.base import Log
from lethe.consumers.log.wrapped import WrappedLog
from lethe.consumers.service.configuration.settings import Settings, load_settings
from lethe.consumers.service.connect import Runtime, open_runtime
from lethe.consumers.service.telemetry.logs import logger
from lethe.consumers.workers.housekeeping import Housekeeper
from lethe.engine.store.offline import staging
from lethe.engine.store.offline.staging import TIME_TO_LIVE
from tests.support.platform import Platform, seal_file

pytestmark = pytest.mark.redis


@pytest.fixture
def platform(platform_on: Callable[..., Platform], monkeypatch: pytest.MonkeyPatch) -> Platform:
    """A model, and a deletion that is applied and published."""
    monkeypatch.setattr(commit_checks, "_CATCH_UP_SECONDS", 0.2)
    platform = platform_on("streams")
    platform.register()
    platform.delete("m", 1)
    platform.pair[0].close()
    return platform


def checks(platform: Platform, tmp_path: Path) -> dict[str, Check]:
    """Return what is said of commits, by subject."""
    file = tmp_path / "seal.keys"
    if not file.exists():
        seal_file(tmp_path)
    settings = settings_of(platform, tmp_path, seal_key_file=file)
    with open_runtime(settings) as runtime:
        return {one.subject: one for one in check_commits(runtime.store(), runtime)}


def settings_of(platform: Platform, tmp_path: Path, **more: Any) -> Settings:
    return load_settings({"redis_url": platform.url, "data_dir": tmp_path, **more})


def failed(platform: Platform, tmp_path: Path) -> dict[str, str]:
    found = checks(platform, tmp_path)
    return {subject: one.detail for subject, one in found.items() if not one.ok}


def test_a_store_that_follows_to_the_end_is_fine(platform: Platform, tmp_path: Path) -> None:
    found = checks(platform, tmp_path)
    assert all(one.ok for one in found.values())
    assert found["commits"].detail == "applied and published to the end; 1 of 16 partitions in use"
    assert platform.seals.current in found["seal keys"].detail


def test_what_is_not_applied_or_published_is_counted(platform: Platform, tmp_path: Path) -> None:
    cursors = platform.load().keys.partition.cursors
    end = int(platform.raw().hget(cursors, "apply") or 0)
    platform.raw().hset(cursors, "published", end - 1)
    said = failed(platform, tmp_path)["commits"]
    assert f"applied up to {end} and published up to {end - 1}, of {end}" in said
    assert "lethe work deletions" in said


def test_a_halted_model_is_named(platform: Platform, tmp_path: Path) -> None:
    platform.raw().hset(platform.load().keys.partition.cursors, "behind:m", "1 1")
    assert "action=halt" in failed(platform, tmp_path)["model m"]


@pytest.mark.parametrize(
    ("field", "value", "said"),
    [
        ("topic", "another", "LOG_RESET: .*lethe.commits/8 was recreated"),
        (
            "apply",
            "99",
            "LOG_RESET: .*lethe.commits/8 ends at 3, but the store has followed it to 99",
        ),
    ],
)
def test_a_log_that_lost_commits_is_told(
    platform: Platform, tmp_path: Path, field: str, value: str, said: str
) -> None:
    platform.raw().hset(platform.load().keys.partition.cursors, field, value)
    found = checks(platform, tmp_path)["commits"]
    assert not found.ok
    assert re.search(said, found.detail)
    assert "lethe recover" in found.detail


def test_keys_that_open_nothing_fail(platform: Platform, tmp_path: Path) -> None:
    file = tmp_path / "seal.keys"
    file.write_bytes(base64.b64encode(bytes(32)))
    file.chmod(0o600)
    assert "LETHE_SEAL_KEY_FILE" in failed(platform, tmp_path)["seal keys"]


def test_live_rows_without_records_are_lost_data(platform: Platform) -> None:
    keys = platform.load().generation_keys
    shard = next(key for key in keys.every_rows() if platform.raw().exists(key))
    rows = platform.raw().hlen(shard)
    platform.raw().delete(shard)
    found = {one.subject: one for one in check_model(platform.store, platform.log, "m")}
    assert not found["model m, rows"].ok
    assert f"DATA_LOST: {rows} of " in found["model m, rows"].detail
    assert "--replace" in found["model m, rows"].detail


class _Settled(WrappedLog):
    """A log that says of a topic what Kafka would."""

    def __init__(self, log: Log, settings: Mapping[str, str]) -> None:
        super().__init__(log)
        self.name = "kafka"
        self._settings = settings

    def topic_settings(self, topic: str) -> Mapping[str, str]:
        return self._settings if topic == topics.COMMITS else {}


GOOD = {
    "cleanup.policy": "delete", "retention.bytes": "-1", "retention.ms": "2592000000",
    "message.timestamp.type": "LogAppendTime", "unclean.leader.election.enable": "false",
    "max.message.bytes": "8388608",
}  # fmt: skip


@pytest.mark.parametrize(
    ("change", "ok", "said"),
    [
        ({}, True, "keeps commits for 30 days"),
        ({"retention.ms": "-1"}, True, "keeps commits for ever"),
        ({"cleanup.policy": "compact"}, False, "cleanup.policy=compact: should be delete"),
        ({"retention.bytes": "1000"}, False, "retention.bytes=1000"),
        ({"message.timestamp.type": "CreateTime"}, False, "should be LogAppendTime"),
        ({"unclean.leader.election.enable": "true"}, False, "acknowledged commits can be lost"),
        ({"max.message.bytes": "1048588"}, False, "max.message.bytes=1048588"),
        (None, True, "cannot be read; grant DescribeConfigs"),
    ],
)
def test_settings_of_the_topic_are_judged(
    platform: Platform, tmp_path: Path, change: dict[str, str] | None, ok: bool, said: str
) -> None:
    settings = settings_of(platform, tmp_path)
    found = {} if change is None else GOOD | change
    with open_runtime(settings) as runtime:
        told = Runtime(settings, _Settled(runtime.log, found), runtime.redis_url, 1, runtime._stack)
        [one] = [c for c in check_commits(platform.store, told) if c.subject.startswith("topic")]
    assert one.ok is ok
    assert said in one.detail


def test_what_lost_registrations_staged_is_swept_once_it_is_old(platform: Platform) -> None:
    keys, raw = platform.load().keys, platform.raw()
    for name, number in (("fresh", 1), ("old", 1), ("waits", 99)):
        staging.note_registration(raw, keys, name, number)
        raw.set(keys.generation(name).factor, b"x")
    moment = raw.time()
    for name, number in (("old", 1), ("waits", 99)):
        raw.hset(keys.stagings, name, f"{number} {int(moment[0]) - TIME_TO_LIVE - 1}")
    keeper = Housekeeper(
        platform.store, platform.producer, now=lambda: datetime.now(UTC), logger=logger("test")
    )
    keeper.run_due()
    left = {name for name in ("fresh", "old", "waits") if raw.exists(keys.generation(name).factor)}
    # One may still be catching up with deletions; the commit of another may still land.
    assert left == {"fresh", "waits"}
    assert set(raw.hkeys(keys.stagings)) == {b"fresh", b"waits"}
