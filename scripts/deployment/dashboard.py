"""The Grafana dashboard of the workers: rows of panels, laid out from left to right.

A panel names its queries; where it stands follows from its width and from the panels before it, so
that no two overlap. `$job` is what Prometheus calls a deployment, `$model` a choice of models.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

WIDTH = 24
"""Columns of a Grafana dashboard."""

_SOURCE = {"type": "prometheus", "uid": "${datasource}"}
_SELECTED = 'job=~"$job"'
_OF_MODEL = 'job=~"$job", model=~"$model"'
_GREEN, _ORANGE, _RED = "green", "orange", "red"
_QUANTILES = ((0.5, "half"), (0.95, "95 in 100"), (0.99, "99 in 100"))


@dataclass(frozen=True, slots=True)
class Query:
    """A query in PromQL, and the name of its series in the legend."""

    expression: str
    legend: str = ""


@dataclass(frozen=True, slots=True)
class Panel:
    """One panel: ``kind`` is Grafana's name of the visualisation."""

    title: str
    description: str
    queries: Sequence[Query]
    kind: str = "timeseries"
    unit: str = "short"
    width: int = 12
    height: int = 8
    thresholds: Mapping[float, str] = field(default_factory=dict)
    options: Mapping[str, Any] = field(default_factory=dict)
    transformations: Sequence[Mapping[str, Any]] = ()


@dataclass(frozen=True, slots=True)
class Row:
    """A title over panels."""

    title: str
    panels: Sequence[Panel]


def _stat(title: str, description: str, expression: str, thresholds: Mapping[float, str]) -> Panel:
    """Return a single number that changes its colour at the thresholds."""
    options = {"colorMode": "background", "reduceOptions": {"calcs": ["lastNotNull"]}}
    query = Query(expression)
    return Panel(title, description, [query], "stat", "short", 4, 4, thresholds, options)


def _quantiles(histogram: str) -> list[Query]:
    buckets = f"sum by (le) (rate({histogram}_bucket{{{_SELECTED}}}[$__rate_interval]))"
    return [
        Query(f"histogram_quantile({share}, {buckets})", legend) for share, legend in _QUANTILES
    ]


def _rate(counter: str, by: str, selected: str = _SELECTED) -> Query:
    return Query(
        f"sum by ({by}) (rate({counter}{{{selected}}}[$__rate_interval]))", f"{{{{{by}}}}}"
    )


def _gauge(name: str, by: str = "model", selected: str = _OF_MODEL) -> Query:
    return Query(f"max by ({by}) ({name}{{{selected}}})", f"{{{{{by}}}}}")


def _events(counter: str, legend: str) -> Query:
    """Return how many events there were in each interval."""
    return Query(f"sum(increase({counter}{{{_SELECTED}}}[$__rate_interval]))", legend)


NOW = Row("Now", [
    _stat("Live workers", "Workers whose /healthz answers 200.",
          f"sum(lethe_worker_live{{{_SELECTED}}})", {0: _RED, 1: _GREEN}),
    _stat("Halted models", "They wait until somebody acts: see the runbook LetheModelHalted.",
          f"sum(lethe_halted_models{{{_SELECTED}}})", {0: _GREEN, 1: _RED}),
    _stat("Models over budget", "An unknown error counts as over every budget.",
          f"count(max by (model) (lethe_error_relative{{{_SELECTED}}}) > "
          f"max by (model) (lethe_error_budget{{{_SELECTED}}})) or vector(0)",
          {0: _GREEN, 1: _ORANGE}),
    _stat("Deferred requests", "They wait for a rebuild without their rows.",
          f"sum(lethe_deferred_requests{{{_SELECTED}}})", {0: _GREEN, 1: _ORANGE}),
    _stat("Lag", "Records of requests that are not read yet.",
          f"sum(lethe_lag_records{{{_SELECTED}}})", {0: _GREEN, 1000: _ORANGE}),
    _stat("Dead letters in 24 h", "Records that could not be read.",
          f"sum(increase(lethe_dead_letters_total{{{_SELECTED}}}[24h]))", {0: _GREEN, 1: _ORANGE}),
])  # fmt: skip

REQUESTS = Row("Requests", [
    Panel("Requests", "Requests processed, by the status of their receipt.",
          [_rate("lethe_requests_total", "status")], unit="reqps"),
    Panel("From request to receipt", "From the log's timestamp of the request to its published "
          "receipt. With --min-batch, requests wait to be batched.",
          _quantiles("lethe_end_to_end_seconds"), unit="s"),
    Panel("Lag", "Records that are not read yet, by partition.",
          [_gauge("lethe_lag_records", "partition", _SELECTED)]),
    Panel("Rows deleted", "By model.", [_rate("lethe_rows_deleted_total", "model", _OF_MODEL)],
          unit="rowsps"),
    Panel("Held requests", "Requests that wait to be batched, in the memory of each worker.",
          [_gauge("lethe_held_requests", "instance", _SELECTED)]),
    Panel("Not processed", "Dead letters, and requests that no key on the list has signed.",
          [_events("lethe_dead_letters_total", "dead letters"),
           _events("lethe_unauthenticated_total", "unauthenticated")]),
    Panel("Changes of tables", "What the intake made of the changes that Debezium captured.",
          [_rate("lethe_changes_total", "outcome")], unit="ops"),
    Panel("Erasures", "Combined receipts by status, and erasures that wait for answers of models.",
          [Query(f"sum by (status) (increase(lethe_erasures_total{{{_SELECTED}}}"
                 "[$__rate_interval]))", "{{status}}"),
           Query(f"sum(lethe_erasures_pending{{{_SELECTED}}})", "waiting")]),
])  # fmt: skip

MODELS = Row("Models", [
    Panel("Error as a share of the budget", "Published relative error over the budget: above 1, a "
          "refresh is under way or needed. A gap: the error is unknown.",
          [Query(f"max by (model) (lethe_error_relative{{{_OF_MODEL}}}) / "
                 f"max by (model) (lethe_error_budget{{{_OF_MODEL}}})", "{{model}}")],
          unit="percentunit", thresholds={0: _GREEN, 1: _RED}),
    Panel("Deferred requests", "Requests of each model that wait for a rebuild.",
          [_gauge("lethe_deferred_requests")]),
    Panel("Models", "As of now.", [
        _gauge(name) for name in (
            "lethe_version", "lethe_rows_live", "lethe_error_relative", "lethe_error_budget",
            "lethe_deferred_requests",
        )], "table", width=24, transformations=[
            {"id": "merge", "options": {}},
            {"id": "organize", "options": {
                "excludeByName": {"Time": True},
                "renameByName": {
                    "model": "Model", "Value #A": "Version", "Value #B": "Live rows",
                    "Value #C": "Error", "Value #D": "Budget", "Value #E": "Deferred",
                },
            }},
        ]),
])  # fmt: skip

REFRESHES = Row("Refreshes", [
    Panel("Refreshes", "By size; and those that failed, or were refused as too frequent.", [
        Query(f"sum by (size) (increase(lethe_refreshes_total{{{_SELECTED}}}[$__rate_interval]))",
              "{{size}}"),
        _events("lethe_refreshes_failed_total", "failed"),
        _events("lethe_refreshes_refused_total", "refused"),
    ]),
    Panel("Duration", "From the snapshot of the rows to the result.",
          _quantiles("lethe_refresh_seconds"), unit="s"),
    Panel("Queue", "Jobs that workers have read, by whether they run.",
          [Query(f"sum by (state) (lethe_refresh_jobs{{{_SELECTED}}})", "{{state}}")]),
    Panel("Wait", "From the order of a refresh until it begins.",
          _quantiles("lethe_refresh_wait_seconds"), unit="s"),
])  # fmt: skip

COMMITS = Row("Commits", [
    Panel("Append to the log", "Until the log has acknowledged the commits of a batch.",
          _quantiles("lethe_append_seconds"), unit="s", width=8),
    Panel("Compute the step", "The algebra of one batch of a model.",
          _quantiles("lethe_step_seconds"), unit="s", width=8),
    Panel("Rows in a batch", "Rows that one commit deletes.",
          _quantiles("lethe_batch_rows"), width=8),
    Panel("Commits", "Contested: another worker committed to the same model first.",
          [_rate("lethe_commits_total", "outcome")], unit="ops"),
    Panel("Folds", "Partitions of commits that were read again.",
          [_events("lethe_folds_total", "folds")]),
])  # fmt: skip

SERVER = Row("HTTP server", [
    Panel("Requests", "Requests to the server, by status.",
          [_rate("lethe_http_requests_total", "status")], unit="reqps"),
    Panel("Time to answer", "Until an answer begins.",
          _quantiles("lethe_http_response_seconds"), unit="s"),
])  # fmt: skip

ROWS = (NOW, REQUESTS, MODELS, REFRESHES, COMMITS, SERVER)


def dashboard() -> dict[str, Any]:
    """Return the dashboard as Grafana imports it."""
    return {
        "uid": "lethe",
        "title": "Lethe",
        "description": "Deletion requests, models and their errors, refreshes. What to do about an "
        "alert is in docs/runbooks.md.",
        "tags": ["lethe"],
        "schemaVersion": 39,
        "editable": True,
        "timezone": "utc",
        "refresh": "30s",
        "time": {"from": "now-6h", "to": "now"},
        "templating": {"list": list(_variables())},
        "panels": list(_laid_out(ROWS)),
    }


def _variables() -> Iterator[dict[str, Any]]:
    yield {"name": "datasource", "label": "Prometheus", "type": "datasource", "query": "prometheus"}
    for name, query in (
        ("job", "label_values(lethe_worker_live, job)"),
        ("model", f"label_values(lethe_error_budget{{{_SELECTED}}}, model)"),
    ):
        yield {
            "name": name, "label": name.capitalize(), "type": "query", "datasource": _SOURCE,
            "query": {"query": query, "refId": name}, "definition": query,
            "refresh": 2, "sort": 1, "multi": True, "includeAll": True, "allValue": ".*",
            "current": {"selected": True, "text": ["All"], "value": ["$__all"]},
        }  # fmt: skip


def _laid_out(rows: Sequence[Row]) -> Iterator[dict[str, Any]]:
    """Yield the panels, each to the right of the one before, or below where there is no room."""
    number, top = 0, 0
    for row in rows:
        number += 1
        yield {
            "id": number, "type": "row", "title": row.title, "collapsed": False, "panels": [],
            "gridPos": {"x": 0, "y": top, "w": WIDTH, "h": 1},
        }  # fmt: skip
        top += 1
        left, height = 0, 0
        for panel in row.panels:
            if left + panel.width > WIDTH:
                top, left, height = top + height, 0, 0
            number += 1
            position = {"x": left, "y": top, "w": panel.width, "h": panel.height}
            yield {"id": number, "gridPos": position, **_content(panel)}
            left, height = left + panel.width, max(height, panel.height)
        top += height


def _content(panel: Panel) -> dict[str, Any]:
    table = panel.kind == "table"
    targets = [
        {
            "refId": chr(ord("A") + i),
            "datasource": _SOURCE,
            "expr": query.expression,
            "legendFormat": query.legend or "__auto",
            "instant": table or panel.kind == "stat",
            "range": not (table or panel.kind == "stat"),
            "format": "table" if table else "time_series",
        }
        for i, query in enumerate(panel.queries)
    ]
    return {
        "type": panel.kind,
        "title": panel.title,
        "description": panel.description,
        "datasource": _SOURCE,
        "targets": targets,
        "options": dict(panel.options) or _options(panel.kind),
        "transformations": list(panel.transformations),
        "fieldConfig": {
            "defaults": {"unit": panel.unit, **_colours(panel)},
            "overrides": [],
        },
    }


def _options(kind: str) -> dict[str, Any]:
    if kind != "timeseries":
        return {}
    return {
        "legend": {"displayMode": "list", "placement": "bottom", "showLegend": True},
        "tooltip": {"mode": "multi", "sort": "desc"},
    }


def _colours(panel: Panel) -> dict[str, Any]:
    if not panel.thresholds:
        return {}
    first = min(panel.thresholds)
    steps = [
        {"color": colour, "value": None if value == first else value}
        for value, colour in sorted(panel.thresholds.items())
    ]
    colours: dict[str, Any] = {"thresholds": {"mode": "absolute", "steps": steps}}
    if panel.kind == "timeseries":
        colours["custom"] = {"thresholdsStyle": {"mode": "line"}}
    else:
        colours["color"] = {"mode": "thresholds"}
    return colours
