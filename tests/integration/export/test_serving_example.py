"""The example of serving swaps versions between requests, and never within one."""

from __future__ import annotations

import importlib.util
import sys
import threading
from collections.abc import Callable
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from fastapi.testclient import TestClient

from lethe.consumers import ModelSubscriber
from lethe.consumers.contract import topics
from lethe.consumers.log.base import Message
from lethe.engine.preprocess.input.columns import Columns, Date, Numeric, OneHot
from tests.support.pipelines import Rows
from tests.support.platform import Platform
from tests.support.prepared import PreparedTable
from tests.support.servers import ROOT
from tests.support.waiting import until

VERSIONS = 6


@pytest.fixture
def example(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The file as it is shipped."""
    spec = importlib.util.spec_from_file_location(
        "serving_example", ROOT / "deploy" / "serving" / "app.py"
    )
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, "serving_example", module)  # its annotations are looked up
    spec.loader.exec_module(module)
    return module


def test_requests_that_flow_while_versions_do_each_get_one_whole_version(
    example: ModuleType, platform_on: Callable[..., Platform]
) -> None:
    platform = platform_on("memory")
    platform.register("m", budget=10.0)
    rows = platform.data["m"].X[:3]
    answers: list[dict[str, Any]] = []
    done = threading.Event()
    with ModelSubscriber(platform.log, platform.store.client) as models:
        with TestClient(example.application(models, "m")) as client:

            def ask() -> None:
                while not done.is_set():
                    answer = client.post("/predict", json={"rows": rows.tolist()})
                    assert answer.status_code == 200, answer.text
                    answers.append(answer.json())

            until(lambda: client.get("/readyz").status_code == 200, 30)
            threads = [threading.Thread(target=ask) for _ in range(3)]
            for thread in threads:
                thread.start()
            for number in range(1, VERSIONS):
                platform.send_index("m", number)
                platform.drain()
                newest = platform.load("m").version
                until(lambda: client.get("/readyz").json() == {"version": newest}, 30)  # noqa: B023
                asked = len(answers)
                until(lambda: len(answers) > asked + 5, 30)  # noqa: B023
            done.set()
            for thread in threads:
                thread.join()
        expected = {
            version.digest: version.predict(rows)
            for version in models.follow("m", from_version=0, timeout=0.0)
        }
    seen = {answer["digest"] for answer in answers}
    assert len(seen) == len(expected) == VERSIONS
    for answer in answers:
        np.testing.assert_array_equal(answer["predictions"], expected[answer["digest"]])
    numbers = [answer["version"] for answer in answers]
    assert numbers[-1] == VERSIONS - 1


def test_a_model_without_a_version_and_rows_that_do_not_fit_are_refused(
    example: ModuleType, platform_on: Callable[..., Platform]
) -> None:
    platform = platform_on("memory")
    with (
        ModelSubscriber(platform.log) as models,
        TestClient(example.application(models, "m")) as client,
    ):
        early = client.post("/predict", json={"rows": [[0.0]]})
        assert (early.status_code, early.headers["retry-after"]) == (503, "1")
        platform.register("m", budget=10.0)
        until(lambda: client.get("/readyz").status_code == 200, 30)
        for body in ({"rows": [[1.0]]}, {}, {"columns": {"x0": [1.0]}}, {"rows": "x"}):
            assert client.post("/predict", json=body).status_code == 422


def test_rows_before_preprocessing_are_predicted_as_they_are_spelled_in_json(
    example: ModuleType, platform_on: Callable[..., Platform]
) -> None:
    platform = platform_on("memory")
    given: dict[str, list[Any]] = {
        "age": [34.5, None, 51.0, 28.0],
        "floor": [2, 10, None, 2],
        "flag": [True, False, True, None],
        "town": ["Ulm", None, "Bonn", "Ulm"],
        "joined": ["2021-03-01", "2020-07-15", None, "2022-01-10"],
    }
    columns: Columns = {
        "age": Numeric(), "floor": OneHot(), "flag": OneHot(), "town": OneHot(), "joined": Date()
    }  # fmt: skip
    rows: Rows = {name: np.array(values, dtype=object) for name, values in given.items()}
    PreparedTable(platform, columns, rows=rows, y=np.array([1.0, 2.5, 0.5, 2.0])).register()
    with (
        ModelSubscriber(platform.log, platform.store.client) as models,
        TestClient(example.application(models, "m")) as client,
    ):
        until(lambda: client.get("/readyz").status_code == 200, 30)
        [version] = models.follow("m", from_version=0, timeout=0.0)
        expected = version.predict(rows)
        listed = list(zip(*given.values(), strict=True))
        other = {**given, "floor": ["2", "10.0", "", 2], "flag": ["True", "false", 1, None]}
        for body in ({"columns": given}, {"rows": listed}, {"columns": other}):
            answer = client.post("/predict", json=body)
            assert answer.status_code == 200, answer.text
            np.testing.assert_array_equal(answer.json()["predictions"], expected)


def test_a_history_that_does_not_link_ends_the_readiness_and_not_the_service(
    example: ModuleType, platform_on: Callable[..., Platform]
) -> None:
    platform = platform_on("memory")
    platform.register("m", budget=10.0)
    rows = platform.data["m"].X[:1].tolist()
    with (
        ModelSubscriber(platform.log) as models,
        TestClient(example.application(models, "m")) as client,
    ):
        until(lambda: client.get("/readyz").status_code == 200, 30)
        platform.producer.publish([Message(topics.VERSIONS, b"m", b'{"forged": true}')])
        until(lambda: client.get("/readyz").json().get("error") == "BROKEN_CHAIN", 30)
        assert client.post("/predict", json={"rows": rows}).json()["version"] == 0
