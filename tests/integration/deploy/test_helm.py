"""The chart, rendered by Helm: valid for Kubernetes, unprivileged, and without a secret in it."""

from __future__ import annotations

import functools
import json
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import click
import pytest
import yaml

from lethe.consumers.cli.main import COMMANDS
from lethe.consumers.cli.run.work import work
from lethe.consumers.contract import topics
from lethe.consumers.service.configuration.settings import unknown_variables
from lethe.consumers.workers.deletion_worker import GROUP
from tests.conftest import give_up
from tests.support.custom_resources import check_custom_resource, is_custom
from tests.support.servers import ROOT, Missing

HELM = ROOT / "scripts" / "helm"
CHART = ROOT / "deploy" / "helm" / "lethe"
VALUES = sorted(Path(__file__).with_name("values").glob("*.yaml"))
KUBERNETES = ("1.29", "1.37")
"""The oldest that the chart admits, and the newest whose schemas there are."""

Resource = dict[str, Any]

pytestmark = pytest.mark.xdist_group("helm")


def helm(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Run the project's Helm."""
    if not built():
        give_up(Missing("no Helm: `make setup-all` builds it, with Go; or set HELM=/path/to/helm"))
    return subprocess.run([HELM, *arguments], capture_output=True, text=True, check=False)


@functools.cache
def built() -> bool:
    """Return whether Helm is there; a test does not build it."""
    asked = subprocess.run([HELM, "--is-built"], capture_output=True, check=False)
    return asked.returncode == 0


@functools.cache
def rendered(values: Path) -> tuple[Resource, ...]:
    """Return the resources that the chart makes of values."""
    done = helm("template", "lethe", str(CHART), "--namespace", "ml", "--values", str(values))
    assert done.returncode == 0, done.stderr
    return tuple(each for each in yaml.safe_load_all(done.stdout) if each is not None)


def named(values: str) -> tuple[Resource, ...]:
    return rendered(Path(__file__).with_name("values") / f"{values}.yaml")


def of_kind(resources: tuple[Resource, ...], kind: str) -> dict[str, Resource]:
    return {each["metadata"]["name"]: each for each in resources if each["kind"] == kind}


def pods(resources: tuple[Resource, ...]) -> Iterator[tuple[str, Resource]]:
    """Yield the template of every pod, with the name of what makes it."""
    for each in resources:
        spec = each.get("spec", {})
        if each["kind"] == "CronJob":
            spec = spec["jobTemplate"]["spec"]
        if "template" in spec:
            yield each["metadata"]["name"], spec["template"]


def environment(pod: Resource) -> dict[str, str]:
    [container] = pod["spec"]["containers"]
    return {entry["name"]: entry.get("value", "") for entry in container["env"]}


def selects(selector: Resource, labels: Resource) -> bool:
    return cast("bool", selector["matchLabels"].items() <= labels.items())


@pytest.fixture(params=VALUES, ids=lambda path: path.stem)
def resources(request: pytest.FixtureRequest) -> tuple[Resource, ...]:
    return rendered(request.param)


@pytest.mark.parametrize("version", KUBERNETES)
def test_every_resource_is_valid(resources: tuple[Resource, ...], version: str) -> None:
    try:
        import kubernetes_validate
    except ModuleNotFoundError:
        give_up(Missing("no kubernetes-validate: `make setup-all` installs it"))
    for each in resources:
        if is_custom(each):
            check_custom_resource(each)
        else:
            kubernetes_validate.validate(each, version, strict=True)


def test_the_chart_passes_helms_own_check() -> None:
    done = helm("lint", "--strict", str(CHART), "--values", str(VALUES[0]))
    assert done.returncode == 0, done.stdout


def test_every_pod_is_unprivileged_and_writes_to_empty_directories_alone(
    resources: tuple[Resource, ...],
) -> None:
    for _, pod in pods(resources):
        spec = pod["spec"]
        assert spec["securityContext"]["runAsNonRoot"] is True
        assert spec["securityContext"]["runAsUser"] == 10001
        assert spec["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
        assert spec["automountServiceAccountToken"] is False
        [container] = spec["containers"]
        assert container["securityContext"] == {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        }
        assert container["resources"]["requests"].keys() == {"cpu", "memory"}
        assert "memory" in container["resources"]["limits"]
        writable = {
            mount["name"] for mount in container["volumeMounts"] if not mount.get("readOnly")
        }
        empty = {volume["name"] for volume in spec["volumes"] if "emptyDir" in volume}
        assert writable == empty


def test_secrets_are_named_and_never_in_it(resources: tuple[Resource, ...]) -> None:
    assert not of_kind(resources, "Secret")
    for _, pod in pods(resources):
        for volume in pod["spec"]["volumes"]:
            if "secret" in volume:
                assert volume["secret"]["defaultMode"] == 0o440
        for name, value in environment(pod).items():
            assert name.endswith("_FILE") or "PASSWORD" not in name
            assert "@" not in value or ":" not in value.partition("://")[2].partition("@")[0]


def test_each_file_that_a_setting_names_is_mounted(resources: tuple[Resource, ...]) -> None:
    for _, pod in pods(resources):
        [container] = pod["spec"]["containers"]
        mounts = {mount["name"]: mount["mountPath"] for mount in container["volumeMounts"]}
        assert mounts.keys() == {volume["name"] for volume in pod["spec"]["volumes"]}
        files = {
            f"{mounts[volume['name']]}/{item['path']}"
            for volume in pod["spec"]["volumes"]
            for item in volume.get("secret", {}).get("items", [])
        }
        if "--cdc" in container["args"]:
            assert container["args"][-1] == f"{mounts['mapping']}/tables.toml"
        wanted = {value for value in environment(pod).values() if value.startswith("/etc/lethe/")}
        assert files == wanted


def test_every_setting_exists_and_kubernetes_adds_none(resources: tuple[Resource, ...]) -> None:
    for _, pod in pods(resources):
        assert unknown_variables(environment(pod)) == {}
        assert pod["spec"]["enableServiceLinks"] is False


def test_processes_are_probed_and_given_time_to_stop(resources: tuple[Resource, ...]) -> None:
    for name, deployment in of_kind(resources, "Deployment").items():
        pod = deployment["spec"]["template"]
        [container] = pod["spec"]["containers"]
        ports = {port["name"]: port["containerPort"] for port in container["ports"]}
        for probe, path in (("livenessProbe", "/healthz"), ("readinessProbe", "/readyz")):
            asked = container[probe]["httpGet"]
            assert asked["path"] == path, name
            settings = environment(pod)
            listens_on = settings.get("LETHE_SERVER_PORT") or settings["LETHE_HTTP_PORT"]
            assert str(ports[asked["port"]]) == listens_on
            assert asked.get("scheme", "HTTP") == (
                "HTTPS" if "LETHE_SERVER_CERT_FILE" in settings else "HTTP"
            )
        assert pod["spec"]["terminationGracePeriodSeconds"] == 60
        assert deployment["spec"]["strategy"]["rollingUpdate"]["maxUnavailable"] == 0


def test_each_process_runs_a_command_that_exists(resources: tuple[Resource, ...]) -> None:
    kinds = next(each.type for each in work.params if each.name == "which")
    assert isinstance(kinds, click.Choice)
    for _, pod in pods(resources):
        [container] = pod["spec"]["containers"]
        command, *arguments = container["args"]
        assert command in COMMANDS
        assert command != "work" or arguments[0] in kinds.choices


def test_an_upgrade_changes_no_selector_and_runs_nothing(resources: tuple[Resource, ...]) -> None:
    """A Deployment's selector cannot change; a hook or a Job would be a migration."""
    for each in resources:
        assert each["kind"] != "Job"
        assert "helm.sh/hook" not in each["metadata"].get("annotations", {})
    for deployment in of_kind(resources, "Deployment").values():
        assert deployment["spec"]["selector"]["matchLabels"].keys() == {
            f"app.kubernetes.io/{label}" for label in ("name", "instance", "component")
        }


def test_what_selects_pods_selects_those_that_it_is_for(resources: tuple[Resource, ...]) -> None:
    labels = {name: pod["metadata"]["labels"] for name, pod in pods(resources)}
    deployments = of_kind(resources, "Deployment")
    for name, deployment in deployments.items():
        selected = [
            n for n, each in labels.items() if selects(deployment["spec"]["selector"], each)
        ]
        assert selected == [name]
    budgets = of_kind(resources, "PodDisruptionBudget")
    assert not budgets or budgets.keys() == deployments.keys()
    for name, budget in budgets.items():
        assert budget["spec"]["selector"] == deployments[name]["spec"]["selector"]
        assert budget["spec"]["maxUnavailable"] == 1
    for service in of_kind(resources, "Service").values():
        assert [
            n for n in labels if selects({"matchLabels": service["spec"]["selector"]}, labels[n])
        ]
    for name, policy in of_kind(resources, "NetworkPolicy").items():
        selected = [each for each in labels if selects(policy["spec"]["podSelector"], labels[each])]
        assert selected == ([name] if name.endswith("-server") else list(labels))
    for monitor in of_kind(resources, "PodMonitor").values():
        assert all(selects(monitor["spec"]["selector"], each) for each in labels.values())


def test_nobody_may_connect_unless_the_values_say_so() -> None:
    closed = of_kind(named("smallest"), "NetworkPolicy")["lethe"]
    assert closed["spec"]["policyTypes"] == ["Ingress"]
    assert "ingress" not in closed["spec"]
    server = of_kind(named("smallest"), "NetworkPolicy")["lethe-server"]["spec"]
    assert server["podSelector"]["matchLabels"]["app.kubernetes.io/component"] == "server"
    assert server["ingress"] == [
        {"from": [{"podSelector": {}}], "ports": [{"port": "http", "protocol": "TCP"}]}
    ]
    limited = of_kind(named("secure"), "NetworkPolicy")["lethe"]
    assert limited["spec"]["policyTypes"] == ["Ingress", "Egress"]
    [metrics] = limited["spec"]["ingress"]
    assert metrics["ports"] == [{"port": "metrics", "protocol": "TCP"}]
    reached = {port["port"] for rule in limited["spec"]["egress"] for port in rule["ports"]}
    assert reached == {53, 9093, 6379}


def test_each_worker_has_the_user_of_its_role() -> None:
    users = {
        name: (
            environment(pod)["LETHE_KAFKA_SASL_USERNAME"],
            environment(pod)["LETHE_REDIS_URL"].partition("//")[2].partition("@")[0],
            {
                volume["name"]: volume["secret"]["secretName"]
                for volume in pod["spec"]["volumes"]
                if volume["name"].endswith("-password")
            },
        )
        for name, pod in pods(named("secure"))
    }
    worker = {"kafka-password": "lethe-worker", "store-password": "valkey-worker"}
    refresh = {"kafka-password": "lethe-refresh", "store-password": "valkey-refresh"}
    operator = {**worker, "kafka-password": "lethe-operator"}
    erasures = {**worker, "kafka-password": "lethe-erasure"}
    server = {"kafka-password": "lethe-platform", "store-password": "valkey-reader"}
    assert users == {
        "lethe-deletions": ("lethe-worker", "lethe-worker", worker),
        "lethe-refresh": ("lethe-refresh", "lethe-refresh", refresh),
        "lethe-erasures": ("lethe-erasure", "lethe-worker", erasures),
        "lethe-refresh-due": ("lethe-operator", "lethe-worker", operator),
        "lethe-check": ("lethe-worker", "lethe-worker", worker),
        "lethe-server": ("lethe-platform", "lethe-reader", server),
    }


def test_each_process_gets_the_keys_that_it_needs_and_no_others() -> None:
    names = ("LETHE_SEAL_KEY_FILE", "LETHE_SIGNING_KEY", "LETHE_TRUSTED_KEYS",
             "LETHE_REQUEST_KEYS", "LETHE_REQUEST_SIGNING_KEY", "LETHE_ROW_KEYS_URL",
             "LETHE_SERVER_KEYS", "LETHE_SERVER_KEY_FILE", "LETHE_OPENDSR")  # fmt: skip
    keys = {
        name: {each for each in names if each in environment(pod)}
        for name, pod in pods(named("secure"))
    }
    checks = {"LETHE_SEAL_KEY_FILE", "LETHE_SIGNING_KEY", "LETHE_TRUSTED_KEYS"}
    assert keys == {
        "lethe-deletions": {*checks, "LETHE_REQUEST_KEYS", "LETHE_ROW_KEYS_URL"},
        "lethe-refresh": {"LETHE_ROW_KEYS_URL"},
        "lethe-erasures": {
            *checks,
            "LETHE_REQUEST_KEYS", "LETHE_REQUEST_SIGNING_KEY", "LETHE_ROW_KEYS_URL",
        },
        "lethe-server": {
            "LETHE_TRUSTED_KEYS", "LETHE_REQUEST_SIGNING_KEY", "LETHE_SIGNING_KEY",
            "LETHE_SERVER_KEYS", "LETHE_SERVER_KEY_FILE", "LETHE_OPENDSR", "LETHE_ROW_KEYS_URL",
        },
        "lethe-refresh-due": set(),
        "lethe-check": {*checks, "LETHE_ROW_KEYS_URL"},
    }  # fmt: skip


def test_processes_that_need_rows_reach_their_files() -> None:
    reach = {
        name: pod["spec"]["containers"][0].get("envFrom") for name, pod in pods(named("secure"))
    }
    secret = [{"secretRef": {"name": "lethe-row-files"}}]
    needed = ("deletions", "refresh", "erasures", "server", "check")
    assert reach == {**dict.fromkeys((f"lethe-{one}" for one in needed), secret),
                     "lethe-refresh-due": None}  # fmt: skip


def test_keda_follows_the_group_that_the_workers_are_in() -> None:
    resources = named("everything")
    [scaled] = of_kind(resources, "ScaledObject").values()
    target = of_kind(resources, "Deployment")[scaled["spec"]["scaleTargetRef"]["name"]]
    assert "replicas" not in target["spec"]  # or Helm and KEDA would undo each other's work
    triggers = [trigger["metadata"] for trigger in scaled["spec"]["triggers"]]
    assert {each["topic"] for each in triggers} == {topics.DELETIONS, topics.ROW_CHANGES}
    assert {each["consumerGroup"] for each in triggers} == {GROUP}
    assert {each["sasl"] for each in triggers} == {"scram_sha256"}
    authentications = of_kind(resources, "TriggerAuthentication")
    for trigger in scaled["spec"]["triggers"]:
        assert trigger["authenticationRef"]["name"] in authentications
    most = json.loads((CHART / "values.schema.json").read_text())["properties"]["autoscaling"]
    [deletions] = [spec for spec in topics.specs() if spec.name == topics.DELETIONS]
    assert most["properties"]["maxReplicas"]["maximum"] == deletions.partitions


def test_alerts_and_dashboard_are_those_of_the_files() -> None:
    resources = named("everything")
    [installed] = of_kind(resources, "PrometheusRule").values()
    alerts = (CHART / "files" / "alerts.yaml").read_text()
    published = alerts.replace("docs/runbooks.md", "https://docs.example/runbooks.html")
    assert installed["spec"] == yaml.safe_load(published)
    [dashboard] = of_kind(resources, "ConfigMap").values()
    shown = json.loads(dashboard["data"]["lethe.json"])
    assert shown == json.loads((CHART / "files" / "dashboard.json").read_text())


def test_no_alert_expects_a_worker_that_is_switched_off(tmp_path: Path) -> None:
    values = yaml.safe_load(
        Path(__file__).with_name("values").joinpath("everything.yaml").read_text()
    )
    off = {"erasures": {"enabled": False}, "refresh": {"enabled": False}}
    values["workers"] = {**values["workers"], **off}
    path = tmp_path / "off.yaml"
    path.write_text(yaml.safe_dump(values))

    [installed] = of_kind(rendered(path), "PrometheusRule").values()

    every = yaml.safe_load((CHART / "files" / "alerts.yaml").read_text())["groups"]
    kept = {rule["alert"] for group in installed["spec"]["groups"] for rule in group["rules"]}
    missing = {rule["alert"] for group in every for rule in group["rules"]} - kept
    assert missing == {"LetheNoErasureWorker", "LetheNoRefreshWorker"}


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"store": {"url": ""}}, "store.url is missing"),
        ({"server": {"keysSecret": {"name": ""}}}, "server.keysSecret.name is missing"),
        ({"server": {"ingress": {"enabled": True}}}, "server.ingress.host is missing"),
        ({"workers": {"intake": {"enabled": True}}}, "workers.intake.mapping.name is missing"),
        ({"store": {"url": "redis://:secret@valkey:6379/0"}}, "url"),
        ({"kafka": {"bootstrapServers": "k:1", "securityProtocol": "SASL_SSL"}}, "kafka.username"),
        ({"workers": {"deletions": {"replicas": 17}}}, "replicas"),
        ({"workers": {"deletion": {"replicas": 1}}}, "deletion"),
        ({"settings": {"LETHE_KAFKA_SASL_PASSWORD": "secret"}}, "LETHE_KAFKA_SASL_PASSWORD"),
        ({"settings": {"DEBUG": "1"}}, "DEBUG"),
        ({"image": {"digest": "latest"}}, "digest"),
        ({"autoscaling": {"enabled": True}}, "kafka.bootstrapServers"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_wrong_values_are_refused_with_their_name(
    wrong: Resource, message: str, tmp_path: Path
) -> None:
    values = yaml.safe_load((Path(__file__).with_name("values") / "smallest.yaml").read_text())
    values = {**values, **wrong, "server": {**values["server"], **wrong.get("server", {})}}
    file = tmp_path / "values.yaml"
    file.write_text(yaml.safe_dump(values))
    done = helm("template", "lethe", str(CHART), "--values", str(file))
    assert done.returncode != 0
    assert message in done.stderr


def test_the_notes_say_how_to_look() -> None:
    done = helm(
        "install", "lethe", str(CHART), "--namespace", "ml", "--values", str(VALUES[-1]),
        "--dry-run=client",
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    notes = done.stdout.partition("NOTES:")[2]
    assert "kubectl -n ml exec deploy/lethe-deletions -- lethe check" in notes
    assert "keys.seal.name is not set" in notes
