"""What the files under deploy/ promise: durable, on loopback, unprivileged, watched."""

from __future__ import annotations

import configparser
import importlib.util
import json
import re
import threading
import tomllib
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from types import ModuleType
from typing import Any

import jsonschema
import pytest
import yaml

ROOT = Path(__file__).resolve().parents[2]
DEPLOY = ROOT / "deploy"
COMPOSE: dict[str, Any] = yaml.safe_load((DEPLOY / "compose.yaml").read_text())
SERVICES: dict[str, Any] = COMPOSE["services"]
CHART = DEPLOY / "helm" / "lethe"
DOCKERFILE = (DEPLOY / "Dockerfile").read_text()
WORKERS = ["deletions", "refresh", "erasures"]
OURS = [*WORKERS, "server"]
MONITORING = ["prometheus", "grafana"]


def _settings(path: Path) -> dict[str, str]:
    """Return the directives of a Valkey configuration."""
    lines = (line.strip() for line in path.read_text().splitlines())
    return dict(line.split(maxsplit=1) for line in lines if line and not line.startswith("#"))


def _unit(name: str) -> configparser.ConfigParser:
    # Interpolation would trip over %; strict over directives that may be repeated.
    parser = configparser.ConfigParser(interpolation=None, strict=False)
    parser.optionxform = str  # type: ignore[assignment,method-assign]  # the documented way
    parser.read_string((DEPLOY / "systemd" / name).read_text())
    return parser


def test_valkey_has_every_acknowledged_write_on_disk_and_never_evicts() -> None:
    settings = _settings(DEPLOY / "valkey.conf")
    assert settings["appendonly"] == "yes"
    assert settings["appendfsync"] == "always"
    assert settings["maxmemory-policy"] == "noeviction"
    valkey = SERVICES["valkey"]
    assert "./valkey.conf:/etc/valkey/valkey.conf:ro" in valkey["volumes"]
    assert "valkey-server /etc/valkey/valkey.conf -" in valkey["command"][-1]
    assert "valkey-data:/data" in valkey["volumes"]
    assert settings["dir"] == "/data"


def test_valkey_wants_a_password_that_compose_insists_on() -> None:
    valkey = SERVICES["valkey"]
    assert 'requirepass "$$VALKEY_PASSWORD"' in valkey["command"][-1]
    assert valkey["environment"]["VALKEY_PASSWORD"].startswith("${LETHE_REDIS_PASSWORD:?")
    for name in OURS:
        assert "${LETHE_REDIS_PASSWORD:?" in SERVICES[name]["environment"]["LETHE_REDIS_URL"]
    assert (DEPLOY / ".env.example").read_text().rstrip().endswith("LETHE_REDIS_PASSWORD=")
    assert ".env" in (DEPLOY / ".gitignore").read_text().splitlines()


@pytest.mark.parametrize("name", SERVICES)
def test_ports_are_published_on_loopback_only(name: str) -> None:
    for port in SERVICES[name].get("ports", []):
        assert port.startswith("127.0.0.1:"), port
    assert "network_mode" not in SERVICES[name]


@pytest.mark.parametrize("name", SERVICES)
def test_every_container_is_unprivileged(name: str) -> None:
    service = SERVICES[name]
    assert service["cap_drop"] == ["ALL"]
    assert service["security_opt"] == ["no-new-privileges:true"]
    assert "privileged" not in service
    if name != "kafka":  # its image writes its own configuration when it starts
        assert service["read_only"] is True


@pytest.mark.parametrize("name", [*OURS, "kafka", "valkey"])
def test_every_service_is_watched_restarted_and_given_time_to_stop(name: str) -> None:
    service = SERVICES[name]
    assert service["healthcheck"]["test"][0] in {"CMD", "CMD-SHELL"}
    assert service["restart"] == "unless-stopped"
    assert service["stop_grace_period"] == "60s"


@pytest.mark.parametrize("name", [*OURS, "cli"])
def test_workers_wait_for_healthy_servers(name: str) -> None:
    conditions = {k: v["condition"] for k, v in SERVICES[name]["depends_on"].items()}
    assert conditions == {"kafka": "service_healthy", "valkey": "service_healthy"}


def test_the_workers_are_apart_and_configured_by_the_environment() -> None:
    assert [SERVICES[name]["command"] for name in WORKERS] == [
        ["work", "deletions"],
        ["work", "refresh"],
        ["work", "erasures"],
    ]
    for name in WORKERS:
        assert set(SERVICES[name]["environment"]) == {
            "LETHE_REDIS_URL",
            "LETHE_KAFKA_BOOTSTRAP_SERVERS",
            "LETHE_HTTP_HOST",
            "LETHE_HTTP_PORT",
            "LETHE_LOG_FORMAT",
        }


@pytest.mark.parametrize("name", SERVICES)
def test_images_are_pinned_and_named_volumes_declared(name: str) -> None:
    tag = SERVICES[name]["image"].partition(":")[2]
    assert re.fullmatch(r"v?\d+\.\d+\.\d+.*", tag), tag
    for volume in SERVICES[name]["volumes"]:
        source = volume.partition(":")[0]
        assert source in COMPOSE["volumes"] or (DEPLOY / source).is_file(), source


def test_the_server_takes_keys_because_it_is_not_on_loopback() -> None:
    server = SERVICES["server"]
    assert server["command"] == ["serve"]
    assert server["environment"]["LETHE_SERVER_HOST"] == "0.0.0.0"  # noqa: S104 - of a container
    keys = server["environment"]["LETHE_SERVER_KEYS"]
    assert keys.startswith(server["volumes"][0].partition(":")[2])
    issue = f"run --rm --no-deps cli key issue {keys} "  # in the same volume
    assert issue in (DEPLOY / "compose.yaml").read_text()
    assert server["healthcheck"]["test"][-1] == "8321"


def test_prometheus_reads_every_worker_and_grafana_has_the_dashboard() -> None:
    assert all(SERVICES[name]["profiles"] == ["monitoring"] for name in MONITORING)
    settings = yaml.safe_load((DEPLOY / "monitoring" / "prometheus.yml").read_text())
    [job] = settings["scrape_configs"]
    [source] = job["dns_sd_configs"]
    assert source["names"] == OURS
    assert str(source["port"]) == SERVICES["deletions"]["environment"]["LETHE_HTTP_PORT"]
    assert str(source["port"]) == SERVICES["server"]["environment"]["LETHE_SERVER_METRICS_PORT"]
    mounts = dict(
        volume.split(":")[:2] for name in MONITORING for volume in SERVICES[name]["volumes"]
    )
    [rules] = settings["rule_files"]
    assert mounts["./helm/lethe/files/alerts.yaml"] == f"/etc/prometheus/{rules}"
    provided = yaml.safe_load((DEPLOY / "monitoring/grafana/dashboards.yaml").read_text())
    [folder] = [provider["options"]["path"] for provider in provided["providers"]]
    assert mounts["./helm/lethe/files/dashboard.json"].rpartition("/")[0] == folder
    environment = SERVICES["grafana"]["environment"]
    assert environment["GF_AUTH_ANONYMOUS_ORG_ROLE"] == "Viewer"
    assert environment["GF_AUTH_DISABLE_LOGIN_FORM"] == "true"


def test_kafka_makes_no_topics_and_advertises_each_listener() -> None:
    environment = SERVICES["kafka"]["environment"]
    assert environment["KAFKA_AUTO_CREATE_TOPICS_ENABLE"] == "false"

    def names(key: str, separator: str) -> set[str]:
        return {entry.partition(separator)[0] for entry in environment[key].split(",")}

    listeners = names("KAFKA_LISTENERS", "://")
    assert names("KAFKA_LISTENER_SECURITY_PROTOCOL_MAP", ":") == listeners
    assert names("KAFKA_ADVERTISED_LISTENERS", "://") == listeners - {"CONTROLLER"}
    inside = SERVICES["deletions"]["environment"]["LETHE_KAFKA_BOOTSTRAP_SERVERS"]
    assert f"INTERNAL://{inside}" in environment["KAFKA_ADVERTISED_LISTENERS"]


def test_compose_runs_the_kafka_that_the_tests_run() -> None:
    version = re.search(
        "<kafka.version>(.*)</kafka.version>", (DEPLOY / "kafka/pom.xml").read_text()
    )
    assert version is not None
    assert SERVICES["kafka"]["image"] == f"apache/kafka:{version[1]}"
    jars = (DEPLOY / "kafka" / "libs.sha256").read_text()
    assert f"  kafka_2.13-{version[1]}.jar\n" in jars


def test_the_image_is_pinned_hashed_and_not_root() -> None:
    assert re.search(r"^ARG PYTHON=python:3\.12\.\d+-slim-\w+$", DOCKERFILE, re.MULTILINE)
    commands = re.split(r"\n| && ", DOCKERFILE.replace("\\\n", " "))
    installs = [
        command for command in commands if re.search(r"pip( --python \S+)? install", command)
    ]
    assert len(installs) == 3
    for arguments in installs:
        assert "--require-hashes" in arguments or "--no-deps --no-index" in arguments
    final = DOCKERFILE.rpartition("\nFROM ")[2]
    assert re.search(r"^USER (?!0)\d+:\d+$", final, re.MULTILINE)
    assert "HEALTHCHECK" in final
    assert 'ENTRYPOINT ["lethe"]' in final
    assert 'CMD ["work", "all"]' in final


def test_the_build_sees_every_file_that_it_copies_and_they_exist() -> None:
    ignore = (DEPLOY / "Dockerfile.dockerignore").read_text().splitlines()
    copied = re.findall(r"^COPY (?!--from)(.*) \S+$", DOCKERFILE, re.MULTILINE)
    sources = {source for line in copied for source in line.split()}
    assert sources == {line[1:] for line in ignore if line.startswith("!")}
    assert [source for source in sources if not (ROOT / source).exists()] == []
    assert "*" in ignore


@pytest.mark.parametrize(
    ("unit", "command"),
    [
        ("lethe-work.service", "lethe work all"),
        ("lethe-serve.service", "lethe serve"),
        ("lethe-refresh-due.service", "lethe refresh --due"),
    ],
)
def test_systemd_units_run_unprivileged(unit: str, command: str) -> None:
    service = _unit(unit)["Service"]
    assert service["ExecStart"] == f"/opt/lethe/bin/{command}"
    assert service["User"] == "lethe"
    assert service["NoNewPrivileges"] == "yes"
    assert service["ProtectSystem"] == "strict"


def test_the_timer_has_a_service_of_its_name() -> None:
    assert _unit("lethe-refresh-due.timer")["Timer"]["Persistent"] == "true"
    assert (DEPLOY / "systemd" / "lethe-refresh-due.service").exists()


def test_the_chart_is_of_this_version_and_its_defaults_fit_its_schema() -> None:
    """tests/integration/deploy renders it."""
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text())
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert chart["version"] == chart["appVersion"] == project["version"]
    values = yaml.safe_load((CHART / "values.yaml").read_text())
    jsonschema.validate(values, json.loads((CHART / "values.schema.json").read_text()))
    for name in OURS:
        assert SERVICES[name]["image"] == f"{values['image']['repository']}:{project['version']}"


@pytest.mark.parametrize(
    ("url", "fits"),
    [
        ("rediss://lethe-worker@valkey.data:6379/0", True),
        ("rediss+cluster://lethe-worker@node-1:6379,node-2:6379", True),
        ("redis+cluster://valkey-cluster", True),
        ("redis+cluster://user:secret@node-1:6379", False),
        ("redis://node-1:6379,node-2:6379", False),
    ],
)
def test_the_chart_takes_addresses_without_a_password(url: str, fits: bool) -> None:
    values = yaml.safe_load((CHART / "values.yaml").read_text())
    values["store"]["url"] = url
    schema = json.loads((CHART / "values.schema.json").read_text())
    assert jsonschema.Draft7Validator(schema).is_valid(values) is fits


# --- The health check that the containers run -------------------------------------------------


def _healthcheck() -> ModuleType:
    spec = importlib.util.spec_from_file_location("healthcheck", DEPLOY / "healthcheck.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@contextmanager
def _worker_that_answers(status: int) -> Iterator[int]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(status if self.path == "/healthz" else 404)
            self.end_headers()

        def log_message(self, format: str, *args: object) -> None:
            pass

    with HTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield server.server_port
        finally:
            server.shutdown()
            thread.join()


@pytest.mark.parametrize(("status", "expected"), [(200, True), (503, False), (500, False)])
def test_the_health_check_follows_healthz(
    status: int, expected: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:1")  # must not be asked
    with _worker_that_answers(status) as port:
        assert _healthcheck().healthy(port) is expected


def test_the_health_check_fails_when_nobody_listens() -> None:
    with _worker_that_answers(200) as port:
        pass
    assert _healthcheck().healthy(port) is False


def test_the_users_of_the_store_have_no_password_that_anybody_could_know() -> None:
    lines = (DEPLOY / "valkey-users.acl").read_text().splitlines()
    assert lines[0].startswith("user default off ")
    for line in lines[1:]:
        words = line.split()
        assert words[2:4] == ["reset", "on"]
        # A hash that the server refuses to start with, until it is replaced
        assert words[4].startswith("#SHA256-OF-THE-PASSWORD-OF-")
        assert not any(word == "nopass" or word.startswith(">") for word in words)
        keys = [word for word in words if "~" in word]
        assert all(key.split("~", 1)[1].startswith("lethe:") for key in keys)
        assert "-@dangerous" in words


def test_only_the_worker_and_the_operator_may_write_what_subscribers_believe() -> None:
    writers: dict[str, set[str]] = {}
    for line in (DEPLOY / "kafka" / "acls.csv").read_text().splitlines():
        if line and not line.startswith("#"):
            role, _, name, operations = line.split(",")
            if {"Write", "All"} & set(operations.split()):
                assert not name.endswith("*"), line
                writers.setdefault(name, set()).add(role)
    for topic in ("lethe.commits", "lethe.versions", "lethe.models", "lethe.receipts"):
        assert writers[topic] == {"worker", "operator"}
    assert "subscriber" not in set().union(*writers.values())
