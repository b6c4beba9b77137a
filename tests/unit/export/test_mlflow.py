"""A registry of MLflow has the newest version of each model, and nothing of those before it."""

from __future__ import annotations

import os
import signal
import threading
import warnings
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from lethe.consumers.contract import topics
from lethe.consumers.export.mirror import Mirror, mirror_version, newest_known
from lethe.consumers.export.mlflow_registry import (
    ARTIFACTS,
    DIGEST,
    MlflowRegistry,
    load_mlflow,
    registered_name,
)
from lethe.consumers.subscriber.model_version import ModelVersion
from lethe.consumers.subscriber.subscriber import ModelSubscriber
from lethe.engine.errors import BrokenChain, InvalidData, RegistryUnavailable
from lethe.engine.store.layout.columns import FittedColumn
from tests.support.extras import need
from tests.support.memory_log import MemoryLog
from tests.support.published import Release, publish_all, releases
from tests.support.waiting import until

ROWS = np.random.default_rng(3).normal(size=(5, 2))


@pytest.fixture(autouse=True)
def _file_store(monkeypatch: pytest.MonkeyPatch) -> None:
    """The registry that mlflow-skinny has without a server, which MLflow no longer extends."""
    need("mlflow", "skops")
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")


@pytest.fixture
def where(tmp_path: Path) -> Path:
    return tmp_path / "mlruns"


def client_of(where: Path) -> Any:
    return load_mlflow().MlflowClient(tracking_uri=where.as_uri(), registry_uri=where.as_uri())


def registry_at(where: Path, client: Any = None) -> MlflowRegistry:
    return MlflowRegistry(where.as_uri(), alias="champion", client=client or client_of(where))


def log_with(*histories: list[Release]) -> MemoryLog:
    log = MemoryLog()
    log.ensure_topics(topics.specs(2))
    for history in histories:
        publish_all(log, history)
    return log


def versions_of(history: list[Release]) -> list[ModelVersion]:
    model_id = history[0].version.model_id
    with ModelSubscriber(log_with(history)) as models:
        return list(models.follow(model_id, from_version=0, timeout=0.0))


def state_of(where: Path, model_id: str = "churn") -> dict[str, Any]:
    """Return what a registry holds of a model: what must be the same after a crash as without."""
    client = client_of(where)
    name = registered_name(model_id)
    found = client.search_model_versions(f"name='{name}'")
    experiment = client.get_experiment_by_name("lethe")
    runs = client.search_runs([experiment.experiment_id])
    return {
        "versions": [(one.tags[DIGEST], one.aliases, one.status) for one in found],
        "runs": [(run.data.tags[DIGEST], run.info.status) for run in runs],
        "artifacts": len(list(where.rglob("*.skops"))),
    }


def predicted(where: Path, model_id: str = "churn", columns: Any = None) -> Any:
    """Return what a program that serves the alias predicts."""
    mlflow = load_mlflow()
    mlflow.set_tracking_uri(where.as_uri())
    mlflow.set_registry_uri(where.as_uri())
    served = mlflow.pyfunc.load_model(f"models:/{registered_name(model_id)}@champion")
    columns = {"age": ROWS[:, 0], "visits": ROWS[:, 1]} if columns is None else columns
    return served.predict(pd.DataFrame(columns))


def test_the_alias_follows_the_versions_and_nothing_of_those_before_is_left(where: Path) -> None:
    registry = registry_at(where)
    for version in versions_of(releases(3)):
        mirror_version(registry, version)

        [entry] = registry.entries("churn")
        assert (entry.number, entry.digest) == version.known
        assert state_of(where) == {
            "versions": [(version.digest, ["champion"], "READY")],
            "runs": [(version.digest, "FINISHED")],
            "artifacts": 1,
        }
        np.testing.assert_allclose(predicted(where), version.predict(ROWS), rtol=1e-12)
    tags = client_of(where).get_model_version_by_alias("churn", "champion").tags
    assert tags["lethe.prev_digest"] == version.event.prev_digest
    assert tags["lethe.error"] == "2.5e-10"
    names = ("version", "generation", "commit", "rows_live", "rows_deleted", "error_kind")
    assert [tags[f"lethe.{name}"] for name in names] == ["2", "0", "2", "98", "2", "estimate"]


class Deadly:
    """A client that kills its process before or after its n-th call, as kill -9 does."""

    def __init__(self, client: Any, at: float) -> None:
        self._client, self._at = client, at
        self.calls = 0

    def __getattr__(self, name: str) -> Callable[..., Any]:
        def call(*arguments: Any, **named: Any) -> Any:
            self._die_at(self.calls)
            answer = getattr(self._client, name)(*arguments, **named)
            self._die_at(self.calls + 0.5)
            self.calls += 1
            return answer

        return call

    def _die_at(self, moment: float) -> None:
        if moment == self._at:
            os.kill(os.getpid(), signal.SIGKILL)


def in_a_process(act: Callable[[], object]) -> int:
    """Run in a process of its own; return its status."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of threads that this process may have
        child = os.fork()
    if child == 0:
        try:
            act()
        finally:
            os._exit(0)
    return os.waitpid(child, 0)[1]


def test_killed_at_any_call_and_started_again_it_ends_in_the_same_state(tmp_path: Path) -> None:
    first, second, third = versions_of(releases(3))
    whole = tmp_path / "whole"
    mirror_version(registry_at(whole), first)
    counting = Deadly(client_of(whole), -1)
    mirror_version(registry_at(whole, counting), second)
    expected = state_of(whole)
    assert counting.calls > 12
    mirror_version(registry_at(whole), third)
    expected_later = state_of(whole)

    for half in range(2 * counting.calls):
        where = tmp_path / f"killed-{half}"
        mirror_version(registry_at(where), first)
        deadly = Deadly(client_of(where), half / 2)
        status = in_a_process(partial(mirror_version, registry_at(where, deadly), second))
        assert status == signal.SIGKILL, half
        # Until the next one stands, the one before does.
        [champion] = client_of(where).get_registered_model("churn").aliases.values()
        assert client_of(where).get_model_version("churn", champion).status == "READY"
        assert predicted(where) is not None

        if half % 2:  # started again at once, or with a later version
            mirror_version(registry_at(where), second)
            assert state_of(where) == expected, half
        else:
            mirror_version(registry_at(where), third)
            assert state_of(where) == expected_later, half


def test_versions_that_lethe_did_not_register_are_left_alone(where: Path) -> None:
    client = client_of(where)
    client.create_registered_model("churn")
    made = client.create_model_version("churn", "file:///elsewhere", None, {"owner": "a person"})

    for version in versions_of(releases(2)):
        mirror_version(registry_at(where), version)

    found = client.search_model_versions("name='churn'")
    assert {int(one.version) for one in found} == {int(made.version), 3}


def test_a_version_older_than_the_registrys_changes_nothing(where: Path) -> None:
    first, second = versions_of(releases(2))
    registry = registry_at(where)
    mirror_version(registry, second)
    before = state_of(where)
    assert mirror_version(registry, first) == 0
    assert state_of(where) == before


def test_a_history_without_the_registrys_version_is_refused_and_deletes_nothing(
    where: Path,
) -> None:
    registry = registry_at(where)
    mirror_version(registry, versions_of(releases(2, seed=1))[-1])
    before = state_of(where)
    with ModelSubscriber(log_with(releases(5, seed=2))) as models:
        mirror = Mirror(models, registry, lambda: ["churn"])
        with pytest.raises(BrokenChain, match="version 1 is known"):
            mirror.run_once()
    assert state_of(where) == before


COLUMNS = (
    FittedColumn(name="age", step="numeric", impute=0.25, mean=0.5, deviation=2.0),
    FittedColumn(name="visits", step="numeric"),
)


def test_a_model_with_preprocessing_is_a_pipeline_there(where: Path) -> None:
    version = replace(versions_of(releases(2))[-1], columns=COLUMNS)
    mirror_version(registry_at(where), version)
    np.testing.assert_allclose(predicted(where), version.predict(ROWS), rtol=1e-12)


@pytest.mark.parametrize(
    ("categories", "given"),
    [
        ((2, 10, None), [10.0, np.nan]),
        ((False, True, None), [True, None]),
        (("a", None), ["a", None]),
    ],
)
def test_a_missing_category_is_given_there_as_pandas_has_it(
    where: Path, categories: tuple[Any, ...], given: list[Any]
) -> None:
    values = tuple(float(i) for i in range(len(categories)))
    coded = FittedColumn(
        name="visits", step="target-encode", categories=categories, values=values, otherwise=0.5
    )
    version = replace(versions_of(releases(2))[-1], columns=(COLUMNS[0], coded))
    mirror_version(registry_at(where), version)
    columns = {"age": [0.25, 0.5], "visits": given}
    expected = version.predict(pd.DataFrame(columns))
    np.testing.assert_allclose(predicted(where, columns=columns), expected, rtol=1e-12)


def test_a_column_of_dates_is_refused_and_the_version_before_it_stays(where: Path) -> None:
    first, second = versions_of(releases(2))
    registry = registry_at(where)
    mirror_version(registry, first)
    dated = replace(second, columns=(FittedColumn(name="age", step="date"), COLUMNS[1]))
    with pytest.raises(InvalidData, match="column 'age' holds dates"):
        mirror_version(registry, dated)
    assert [entry.digest for entry in registry.entries("churn")] == [first.digest]


def test_a_store_of_artifacts_that_does_not_delete_is_said_so(
    where: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from mlflow.store.artifact.local_artifact_repo import LocalArtifactRepository

    registry = registry_at(where)
    first, second = versions_of(releases(2))
    mirror_version(registry, first)
    monkeypatch.setattr(LocalArtifactRepository, "delete_artifacts", lambda *_: None)
    with pytest.raises(InvalidData, match="cannot delete; delete model there by hand"):
        mirror_version(registry, second)
    monkeypatch.undo()
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    assert len(registry.entries("churn")) == 2
    mirror_version(registry, second)
    assert [entry.number for entry in registry.entries("churn")] == [1]


def test_artifacts_that_somebody_deleted_are_registered_again(where: Path) -> None:
    import shutil

    registry = registry_at(where)
    [version] = versions_of(releases(1))
    mirror_version(registry, version)
    for folder in where.rglob(ARTIFACTS):
        shutil.rmtree(folder)
    mirror_version(registry, version)
    assert len(registry.entries("churn")) == 1
    np.testing.assert_allclose(predicted(where), version.predict(ROWS), rtol=1e-12)


@pytest.mark.parametrize("model_id", ["team/churn:1", "it's 100 %", "größe", ".", "churn\n"])
def test_any_model_id_has_a_name_in_the_registry(where: Path, model_id: str) -> None:
    registry = registry_at(where)
    for version in versions_of(releases(2, model_id)):
        mirror_version(registry, version)
    assert newest_known(registry, model_id) == version.known
    np.testing.assert_allclose(predicted(where, model_id), version.predict(ROWS), rtol=1e-12)


def test_names_of_different_models_differ() -> None:
    names = [registered_name(model_id) for model_id in ("a/b", "a:b", "a_b", "é" * 128)]
    assert names[2] == "a_b"
    assert len(set(names)) == 4
    assert max(map(len, names)) <= 256  # as MLflow's databases have it


def test_a_registry_that_is_not_there_is_said_to_be_away() -> None:
    registry = MlflowRegistry("http://127.0.0.1:9", alias="champion")
    with pytest.raises(RegistryUnavailable, match="cannot be reached"):
        registry.entries("churn")


class Away:
    """A client of a registry that is away until somebody brings it back."""

    def __init__(self, client: Any) -> None:
        self._client = client
        self.away = threading.Event()
        self.refused = 0

    def __getattr__(self, name: str) -> Any:
        if self.away.is_set():
            self.refused += 1
            raise ConnectionRefusedError("nobody listens")
        return getattr(self._client, name)


@pytest.fixture
def running() -> Iterator[Callable[[Mirror], None]]:
    """Run mirrors in threads that end with the test."""
    started: list[tuple[Mirror, threading.Thread]] = []

    def run(mirror: Mirror) -> None:
        thread = threading.Thread(target=mirror.run)
        thread.start()
        started.append((mirror, thread))

    yield run
    for mirror, thread in started:
        mirror.stop.set()
        thread.join(60)
        assert not thread.is_alive()


def test_while_the_registry_is_away_nothing_is_deleted_and_then_the_newest_is_registered(
    where: Path, running: Callable[[Mirror], None]
) -> None:
    histories = releases(4), releases(4, "fraud", seed=9)
    log = log_with(*(history[:1] for history in histories))
    client = Away(client_of(where))
    registry = registry_at(where, client)
    assert registry.entries("churn") == []  # MLflow's stores are registered by the first thread
    with ModelSubscriber(log) as models:
        running(Mirror(models, registry, lambda: ["churn", "fraud"]))
        until(lambda: all(newest_known(registry, name) for name in ("churn", "fraud")), 60)
        client.away.set()
        for history in histories:
            publish_all(log, history[1:])
        refused = client.refused
        until(lambda: client.refused > refused + 1, 60)
        assert state_of(where)["versions"][0][0] == histories[0][0].version.digest
        client.away.clear()
        for history in histories:
            version = history[-1].version
            name = version.model_id
            until(lambda: newest_known(registry, name) == (3, version.digest), 60)  # noqa: B023
        until(lambda: len(registry.entries("churn")) == len(registry.entries("fraud")) == 1, 60)
    # Those in between were never registered: the registry counts on from 1.
    found = client_of(where).search_model_versions("name='churn'")
    assert [int(one.version) for one in found] == [2]
