"""The dashboard and the alerts ask for what workers export, and every alert says what to do."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from itertools import combinations
from pathlib import Path
from typing import Any

import pytest
import yaml
from prometheus_client.metrics_core import Metric

from lethe.consumers.server.metrics import ServerMetrics
from lethe.consumers.service.telemetry.health import Health
from lethe.consumers.service.telemetry.metrics import Metrics

ROOT = Path(__file__).resolve().parents[2]
FILES = ROOT / "deploy" / "helm" / "lethe" / "files"
RUNBOOKS = (ROOT / "docs" / "runbooks.md").read_text()
ALERTS: list[dict[str, Any]] = [
    rule
    for group in yaml.safe_load((FILES / "alerts.yaml").read_text())["groups"]
    for rule in group["rules"]
]
DASHBOARD: dict[str, Any] = json.loads((FILES / "dashboard.json").read_text())
PANELS: list[dict[str, Any]] = DASHBOARD["panels"]
SUFFIXES = {"counter": ["_total"], "gauge": [""], "histogram": ["_bucket", "_count", "_sum"]}


def expressions() -> Iterator[tuple[str, str]]:
    """Yield every expression in PromQL, and where it stands."""
    for rule in ALERTS:
        yield rule["alert"], rule["expr"]
    for panel in PANELS:
        for target in panel.get("targets", []):
            yield panel["title"], target["expr"]
    for variable in DASHBOARD["templating"]["list"]:
        if variable["type"] == "query":
            yield variable["name"], variable["definition"]


def exported() -> set[str]:
    """Return the names of all series of a worker and of a server."""
    metrics = Metrics()
    metrics.watch("deletions", Health())
    families: list[Metric] = [*metrics.registry.collect(), *ServerMetrics().registry.collect()]
    return {f"{one.name}{suffix}" for one in families for suffix in SUFFIXES[one.type]}


@pytest.mark.parametrize(("place", "expression"), list(expressions()))
def test_every_series_that_is_asked_for_exists(place: str, expression: str) -> None:
    asked = set(re.findall(r"\blethe_\w+", expression))
    assert asked, place
    assert asked <= exported()


@pytest.mark.parametrize("rule", ALERTS, ids=lambda rule: rule["alert"])
def test_every_alert_has_a_runbook_and_says_how_urgent_it_is(rule: dict[str, Any]) -> None:
    page, _, anchor = rule["annotations"]["runbook_url"].partition("#")
    assert (ROOT / page).exists()
    assert anchor == rule["alert"].lower()
    section = RUNBOOKS.partition(f"\n## {rule['alert']}\n")[2].partition("\n## ")[0]
    assert "**Symptom.**" in section
    assert "**It means**" in section
    assert rule["labels"]["severity"] in {"critical", "warning"}
    assert rule["annotations"]["summary"]


def test_every_runbook_is_of_an_alert_and_in_the_order_of_the_alerts() -> None:
    assert re.findall(r"^## (\w+)$", RUNBOOKS, re.MULTILINE) == [rule["alert"] for rule in ALERTS]


def test_every_alert_is_seen_to_fire_and_seen_to_be_quiet() -> None:
    """`promtool test rules` runs the file (tests/integration/deploy)."""
    path = ROOT / "tests" / "integration" / "deploy" / "alerts_test.yaml"
    cases = [
        case
        for test in yaml.safe_load(path.read_text())["tests"]
        for case in test["alert_rule_test"]
    ]
    names = {rule["alert"] for rule in ALERTS}
    assert {case["alertname"] for case in cases if case["exp_alerts"]} == names
    assert {case["alertname"] for case in cases if not case["exp_alerts"]} == names


def test_no_two_panels_overlap_and_all_are_on_the_page() -> None:
    for one, other in combinations([panel["gridPos"] for panel in PANELS], 2):
        apart = (
            one["x"] + one["w"] <= other["x"]
            or other["x"] + other["w"] <= one["x"]
            or one["y"] + one["h"] <= other["y"]
            or other["y"] + other["h"] <= one["y"]
        )
        assert apart, (one, other)
    for panel in PANELS:
        place = panel["gridPos"]
        assert 0 <= place["x"] < place["x"] + place["w"] <= 24, panel["title"]
    assert len({panel["id"] for panel in PANELS}) == len(PANELS)


def test_no_row_of_panels_has_a_gap() -> None:
    covered: dict[int, int] = {}
    for panel in PANELS:
        place = panel["gridPos"]
        for y in range(place["y"], place["y"] + place["h"]):
            covered[y] = covered.get(y, 0) + place["w"]
    assert covered == dict.fromkeys(range(max(covered) + 1), 24)


def test_every_panel_says_what_it_shows() -> None:
    for panel in PANELS:
        assert panel["type"] == "row" or panel["description"].endswith("."), panel["title"]
