"""scripts/cdc says what it needs; what it starts is tested with real servers (test_debezium)."""

from __future__ import annotations

import re
import subprocess
import sys
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest

from tests.support.debezium import CDC_SCRIPT

CONNECT = CDC_SCRIPT.parent.parent / "deploy" / "connect"


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, str(CDC_SCRIPT), *arguments], capture_output=True, text=True, check=False
    )


def test_nothing_runs_where_nothing_was_started(tmp_path: Path) -> None:
    asked = run("status", "--data", str(tmp_path))
    assert (asked.returncode, asked.stdout) == (1, "not running\n")
    assert run("stop", "--delete", "--data", str(tmp_path)).returncode == 0


def test_a_property_without_a_value_is_refused(tmp_path: Path) -> None:
    refused = run("start", "--set", "plugin.name", "--data", str(tmp_path))
    assert refused.returncode == 2
    assert "NAME=VALUE" in refused.stderr


@pytest.mark.parametrize("folder", [CONNECT, CONNECT / "debezium"])
def test_every_version_is_exact_and_every_jar_has_a_digest(folder: Path) -> None:
    pom = ET.parse(folder / "pom.xml").getroot()  # noqa: S314 (our own file)
    [properties] = pom.iter("{http://maven.apache.org/POM/4.0.0}properties")
    versions = [one.text or "" for one in properties]
    assert versions
    assert all(re.fullmatch(r"[0-9.]+(\.Final)?", version) for version in versions)
    text = (folder / "pom.xml").read_text()
    digests = (folder / "libs.sha256").read_text()
    assert "http" not in text.replace("http://maven.apache.org/POM/4.0.0", "")
    for name in re.findall(r"<artifactId>(connect-[\w-]+|debezium-connector-[\w-]+)<", text):
        assert re.search(rf"^[0-9a-f]{{64}}  {name}-[\w.]+\.jar$", digests, re.MULTILINE)
