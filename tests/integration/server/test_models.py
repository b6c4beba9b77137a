"""Models, versions and parameters over HTTP are what subscribers read from the topics."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import pytest
from fastapi.testclient import TestClient

from lethe.consumers.contract import version_chain
from lethe.consumers.contract.events import Parameters, Version
from tests.support.platform import Platform

ClientOf = Callable[[Platform], TestClient]
_SECONDS = 120.0


def versions_of(client: TestClient, path: str, count: int) -> list[Any]:
    """Return the versions on a page, once the index has as many."""
    end = time.monotonic() + _SECONDS
    while len(found := client.get(path).json()["versions"]) < count and time.monotonic() < end:
        time.sleep(0.05)
    return list(found)


@pytest.fixture
def client(memory: Platform, client_of: ClientOf) -> TestClient:
    """Given two models, one of them with three versions."""
    memory.register("a")
    memory.register("b/c")
    for i in range(2):
        memory.send_index("a", i)
        memory.drain()
    return client_of(memory)


def test_models_are_listed_with_their_newest_versions_in_pages(client: TestClient) -> None:
    first = client.get("/v1/models", params={"limit": 1}).json()
    second = client.get("/v1/models", params={"limit": 1, "after": first["next"]}).json()

    assert [one["model_id"] for one in (*first["models"], *second["models"])] == ["a", "b/c"]
    assert first["models"][0]["newest"]["version"] == 2
    assert second["next"] is None
    assert client.get("/v1/models/b%2Fc").json() == second["models"][0]
    assert client.get("/v1/models/nobody").status_code == 404


def test_versions_come_in_pages_and_keep_their_digests(client: TestClient) -> None:
    found = versions_of(client, "/v1/models/a/versions", 3)

    assert [one["version"] for one in found] == [0, 1, 2]
    for one, before in zip(found, [None, *found], strict=False):
        version_chain.check_link(
            Version.model_validate(one), before and Version.model_validate(before)
        )
    page = client.get("/v1/models/a/versions", params={"after": 0, "limit": 1}).json()
    assert ([one["version"] for one in page["versions"]], page["next"]) == ([1], 1)
    assert client.get("/v1/models/nobody/versions").status_code == 404
    refused = client.get("/v1/models/a/versions", params={"after": -2})
    assert (refused.status_code, refused.json()["code"]) == (400, "INVALID_REQUEST")


def test_parameters_are_those_of_the_newest_version(client: TestClient) -> None:
    answer = client.get("/v1/models/a/parameters")
    parameters, newest = (
        Parameters.read(answer.content),
        client.get("/v1/models/a").json()["newest"],
    )

    version_chain.check_parameters(
        parameters, Version.model_validate(newest), version_chain.theta_of(parameters)
    )
    tag = answer.headers["etag"]
    again = client.get("/v1/models/a/parameters", headers={"If-None-Match": tag})
    assert (again.status_code, again.content) == (304, b"")
    assert client.get("/v1/models/nobody/parameters").status_code == 404


def test_a_model_that_was_unregistered_is_gone(memory: Platform, client: TestClient) -> None:
    memory.registrar().unregister("a")
    time.sleep(1.1)  # as long as the list of models may be old

    assert client.get("/v1/models/a").status_code == 404
    assert [one["model_id"] for one in client.get("/v1/models").json()["models"]] == ["b/c"]
