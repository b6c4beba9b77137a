"""A first day with the command: register, delete, work, look, export, verify, refresh, check."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors import safe_open
from sklearn.linear_model import Ridge

from lethe.consumers.contract import topics
from lethe.consumers.log.base import Message
from lethe.consumers.log.streams.log import StreamsLog
from lethe.consumers.service.embedded_valkey import EmbeddedValkey
from lethe.consumers.subscriber.history import history
from lethe.engine.store.layout.keys import ModelKeys
from lethe.engine.store.server.connection import connect
from tests.support.command import Lethe, Within
from tests.support.training import FEATURES, ROWS, table, write

# One worker runs the file: its tests share servers, and some build on those before.
pytestmark = [pytest.mark.redis, pytest.mark.xdist_group("test_cli_main_job")]

NAMES = ("--id", "id", "--target", "y", "--subject", "household")


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedValkey]:
    with EmbeddedValkey(tmp_path_factory.mktemp("main-job")) as server:
        yield server


@pytest.fixture(scope="module")
def lethe(server: EmbeddedValkey, tmp_path_factory: pytest.TempPathFactory) -> Lethe:
    """Given a linear and a logistic model, when three requests have been decided.

    These are processes, as a user starts them; what follows runs within this one.
    """
    lethe = Lethe(server.data_dir)
    files = tmp_path_factory.mktemp("files")
    linear = write(files / "rows.csv", logistic=False)
    logistic = write(files / "rows.parquet", logistic=True)
    lethe("register", "lin", "--data", str(linear), *NAMES, "--kind", "linear", "--ridge", "0.5",
          "--method", "exact", "--refresh-every", "1s")  # fmt: skip
    lethe("register", "log", "--data", str(logistic), *NAMES, "--kind", "logistic", "--ridge", "1",
          "--error-budget", "0.5")  # fmt: skip
    lethe("delete", "lin", "--row", "u1", "u2", "--row", "u3", "--request-id", "first")
    lethe("delete", "lin", "--subject", "h10")
    lethe("delete", "log", "--rows-file", "-", stdin="u5\n\nu6\r\n")
    idle = lethe("work", "--until-idle", "--json").document
    assert idle["state"] == "idle"
    assert idle["requests"] == {"APPLIED": 3}
    return Within(server.data_dir)


def live_theta(gone: set[str]) -> np.ndarray:
    """Return scikit-learn's answer on the rows that remain, the intercept last."""
    rows = table(logistic=False).to_pydict()
    keep = [i for i in range(ROWS) if rows["id"][i] not in gone]
    X = np.column_stack([rows[name] for name in FEATURES])[keep]
    fitted = Ridge(alpha=0.5).fit(X, np.array(rows["y"])[keep])
    return np.append(fitted.coef_, fitted.intercept_)


def test_status_shows_every_model_and_the_lag(lethe: Lethe) -> None:
    found = lethe("status", "--json").document
    models = {model["model_id"]: model for model in found["models"]}

    assert list(models) == ["lin", "log"]
    assert (models["lin"]["rows_live"], models["lin"]["rows_deleted"]) == (ROWS - 6, 6)
    assert (models["log"]["rows_live"], models["log"]["rows_deleted"]) == (ROWS - 2, 2)
    assert found["lag"] == 0


def test_rows_that_never_were_there_are_named_to_whoever_asks(lethe: Lethe, tmp_path: Path) -> None:
    """A receipt only counts them; with --strict, nothing is sent."""
    rows = tmp_path / "rows.txt"
    rows.write_text("id\n u7 \n")

    refused = lethe("delete", "lin", "--rows-file", str(rows), "--strict", code=2)
    sent = lethe("delete", "lin", "--row", "u1", "nobody", "nothing")

    assert "'id'; is the first line of the file a header?; nothing was sent" in refused.err
    warning = "model 'lin' never had these rows: 'nobody', 'nothing'; the request is sent anyway"
    assert warning in sent.err
    known = lethe("delete", "lin", "--row", "u1", "--row", "u2", "--strict")
    assert known.err == ""
    lethe("work", "--until-idle")
    found = lethe(
        "receipt", "first", "--row", "u1", "--row", "u9", "--row", "nobody", "--json", code=1
    ).document
    assert found["rows"] == {"u1": True, "u9": False, "nobody": False}
    assert found["rows_never_members"] == ["nobody"]


def test_global_options_stand_before_the_command_as_well(lethe: Lethe, tmp_path: Path) -> None:
    elsewhere = Within(tmp_path / "elsewhere")

    found = elsewhere("--json", "--data-dir", str(lethe.data_dir), "status", "lin")

    assert found.document["version"] == 1
    assert not (tmp_path / "elsewhere").exists()


def test_versions_are_shown_as_a_subscriber_sees_them(lethe: Lethe) -> None:
    found = lethe("versions", "log", "--json").document["versions"]

    assert [version["version"] for version in found] == list(range(len(found)))
    assert found[0]["prev_digest"] == ""
    assert found[1]["prev_digest"] == found[0]["digest"]


def test_exports_hold_the_published_parameters(lethe: Lethe, tmp_path: Path) -> None:
    for form in ("json", "npz", "safetensors"):
        lethe("export", "lin", "--out", str(tmp_path / f"lin.{form}"))

    whole = json.loads((tmp_path / "lin.json").read_text())
    assert whole["version"] == 1
    assert whole["feature_names"] == list(FEATURES)
    theta = np.append(whole["theta"], whole["intercept"])
    expected = live_theta({"u1", "u2", "u3", "u30", "u31", "u32"})
    np.testing.assert_allclose(theta, expected, rtol=1e-8)
    with np.load(tmp_path / "lin.npz", allow_pickle=False) as arrays:
        np.testing.assert_array_equal(whole["theta"], arrays["theta"])
        assert whole["intercept"] == float(arrays["intercept"])
        assert str(arrays["digest"]) == whole["digest"]
    with safe_open(tmp_path / "lin.safetensors", framework="np") as tensors:
        np.testing.assert_array_equal(whole["theta"], tensors.get_tensor("theta"))
        assert json.loads(tensors.metadata()["feature_names"]) == list(FEATURES)
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "lin.json", "lin.npz", "lin.safetensors",
    ]  # fmt: skip


@pytest.mark.parametrize(("model", "bound_from"), [("lin", "version"), ("log", "audit")])
def test_verify_compares_with_retraining(lethe: Lethe, model: str, bound_from: str) -> None:
    found = lethe("verify", model, "--json").document

    assert found["verified"] is True
    assert found["bound_from"] == bound_from
    assert found["distance"] <= found["bound"] + found["refit"]["residual"]
    assert 0 < found["bound"] < 0.1
    assert found["refit"]["residual"] < 1e-10


def test_check_finds_nothing_wrong(lethe: Lethe) -> None:
    found = lethe("check", "--json").document

    assert found["ok"] is True
    subjects = {check["subject"] for check in found["checks"]}
    assert {"store durability", "topics", "model lin, drift", "model log, dual rows"} <= subjects


def test_a_refresh_is_done_when_it_is_due_and_ordered_only_once(lethe: Lethe) -> None:
    first = lethe("refresh", "--due", "--json").document["ordered"]
    again = lethe("refresh", "--due", "--json").document["ordered"]
    lethe("refresh", "log", "--size", "polish")
    done = lethe("work", "--until-idle", "--json").document

    assert [(job["model_id"], job["reason"]) for job in first] == [("lin", "scheduled")]
    assert again == []
    assert done["refreshes"] == {"rebuild": 1, "polish": 1}


class TestDamage:
    """These come last in the file: they damage the stored model ``log``, and mend it again."""

    @pytest.fixture
    def client(self, server: EmbeddedValkey) -> Iterator[Any]:  # its replies have no types
        with connect(server.url) as client:
            yield client

    def test_verify_says_no_when_the_model_is_not_what_its_bound_says(
        self, lethe: Lethe, client: Any
    ) -> None:
        lethe("refresh", "log", "--size", "rebuild")  # the newest version carries a bound
        lethe("work", "--until-idle")
        keys = ModelKeys("log")
        meta = json.loads(client.hget(keys.head, "meta"))
        assert meta["error"]["bound"] is not None
        fixed = keys.generation(meta["generation_key"]).fixed
        penalty = client.hget(fixed, "penalty")
        changed = np.frombuffer(penalty).copy() * 2
        client.hset(fixed, "penalty", changed.tobytes())

        try:
            found = lethe("verify", "log", "--json", code=1).document
        finally:
            client.hset(fixed, "penalty", penalty)

        assert found["bound_from"] == "version"
        assert found["verified"] is False
        assert found["distance"] > found["bound"]

    def test_a_damaged_factor_is_found_by_check(self, lethe: Lethe, client: Any) -> None:
        keys = ModelKeys("log")
        meta = json.loads(client.hget(keys.head, "meta"))
        factor = keys.generation(meta["generation_key"]).factor
        stored = client.get(factor)
        damaged = np.frombuffer(stored).copy()
        damaged[0] *= 1 + 1e-6
        client.set(factor, damaged.tobytes())

        try:
            found = lethe("check", code=1)
        finally:
            client.set(factor, stored)

        failed = [line for line in found.out.splitlines() if line.startswith("FAIL")]
        assert len(failed) == 1
        assert "model log, dual rows" in failed[0]
        assert "lethe refresh --size rebuild" in failed[0]

    def test_altered_parameters_are_not_exported(
        self, lethe: Lethe, client: Any, tmp_path: Path
    ) -> None:
        head = ModelKeys("log").head
        stored = client.hget(head, "published")
        altered = bytearray(stored)
        altered[0] ^= 1
        client.hset(head, "published", bytes(altered))

        try:
            found = lethe("export", "log", "--out", str(tmp_path / "log.json"), "--json", code=2)
        finally:
            client.hset(head, "published", stored)

        assert found.document["error"]["code"] == "CORRUPT_STATE"
        assert list(tmp_path.iterdir()) == []

    def test_an_altered_history_is_not_shown(self, lethe: Lethe, client: Any) -> None:
        log = StreamsLog(client)
        *_, newest = history(log.reader(), "log")
        forged = {**newest.model_dump(mode="json"), "version": newest.version + 1}
        producer = log.producer()
        producer.publish([Message(topics.VERSIONS, b"log", json.dumps(forged).encode())])
        producer.close()

        found = lethe("versions", "log", code=1)

        assert "digest does not match" in found.err
        assert found.out == ""
