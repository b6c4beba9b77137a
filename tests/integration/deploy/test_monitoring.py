"""promtool runs the alerts; a real worker exports what they and the dashboard ask for."""

from __future__ import annotations

import re
import shutil
import signal
import subprocess
import urllib.request
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from lethe.consumers.service.embedded_valkey import EmbeddedValkey
from tests.conftest import give_up
from tests.support.command import Lethe
from tests.support.servers import ROOT, Missing, free_port
from tests.support.training import write
from tests.unit.test_monitoring import FILES, expressions

ADDED_BY_PROMETHEUS = {"job", "instance"}
NOT_USED = {"lethe_changes_total", "lethe_erasures_total"}
"""What nothing happens to in the test: no table changes, and nobody is erased."""


def promtool(*arguments: str) -> str:
    """Run Debian's promtool; return what it prints."""
    path = shutil.which("promtool")
    if path is None:
        give_up(Missing("no promtool: `make setup-all`, or apt-get install prometheus"))
    done = subprocess.run([path, *arguments], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def read(port: int, path: str) -> str:
    with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=30) as answer:
        return str(answer.read().decode())


def stop(process: subprocess.Popen[str]) -> None:
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=120)
    assert process.returncode == 0


def test_the_alert_rules_are_valid() -> None:
    promtool("check", "rules", "--lint-fatal", str(FILES / "alerts.yaml"))


def test_each_alert_fires_when_it_must_and_only_then() -> None:
    promtool("test", "rules", str(Path(__file__).with_name("alerts_test.yaml")))


def test_composes_prometheus_reads_the_workers_with_the_rules_beside_it(tmp_path: Path) -> None:
    shutil.copy(ROOT / "deploy/monitoring/prometheus.yml", tmp_path)
    shutil.copy(FILES / "alerts.yaml", tmp_path)  # as Compose mounts them
    promtool("check", "config", str(tmp_path / "prometheus.yml"))


@pytest.mark.redis
def test_real_processes_export_every_series_with_every_label(tmp_path: Path) -> None:
    data = write(tmp_path / "rows.parquet", logistic=True)
    port, metrics_port, api_port = free_port(), free_port(), free_port()
    with EmbeddedValkey(tmp_path / "work") as server:
        lethe = Lethe(server.data_dir)
        lethe("register", "m", "--data", str(data), "--id", "id", "--target", "y",
              "--kind", "logistic", "--ridge", "1")  # fmt: skip
        with lethe.working("--http-port", str(port)) as worker:
            lethe("delete", "m", "--row", "u3", "--wait", "120")
            lethe("refresh", "m", "--size", "rebuild", "--wait", "120")
            page = read(port, "/metrics")
            stop(worker)
        serving = Lethe(server.data_dir, LETHE_SERVER_METRICS_PORT=str(metrics_port))
        process = serving.start("serve", "--port", str(api_port))
        try:
            assert process.stdout is not None
            process.stdout.readline()  # it listens
            read(api_port, "/v1/models")
            page += read(metrics_port, "/metrics")
        finally:
            stop(process)
    labels: dict[str, set[str]] = {}
    unused = set()  # announced, and without a value so far
    for family in text_string_to_metric_families(page):
        if not family.samples:
            unused.add(f"{family.name}_total")
        for sample in family.samples:
            labels.setdefault(sample.name, set()).update(sample.labels)
    assert unused <= NOT_USED
    for place, expression in expressions():
        names = set(re.findall(r"\blethe_\w+", expression))
        assert names <= labels.keys() | unused, place
        if names & unused:
            continue
        known = set().union(*(labels[name] for name in names)) | ADDED_BY_PROMETHEUS
        grouped = {
            label.strip()
            for group in re.findall(r"by \(([^)]*)\)", expression)
            for label in group.split(",")
        }
        selected = set(re.findall(r'(\w+) ?(?:=|=~|!=|!~) ?"', expression))
        assert grouped | selected <= known, place
