"""A store belongs to one log and has one set of keys, and odd addresses are one clear line."""

import base64
import itertools
from pathlib import Path

import pytest
from pydantic import SecretStr
from threadpoolctl import threadpool_info

from lethe.consumers.contract.sealing import KeyUnknown, handover, new_seal_file, rotate_seal_file
from lethe.consumers.contract.signed_log import SignedLog
from lethe.consumers.service.configuration.settings import Settings
from lethe.consumers.service.connect import open_runtime
from lethe.consumers.workers.supervisor import Supervisor
from lethe.engine.errors import FormatTooOld, InvalidData, LogUnavailable
from lethe.engine.store.layout.keys import BOUND_LOG, FORMER_MODELS, SEALS, ModelKeys
from lethe.engine.store.server.connection import connect
from lethe.engine.store.store import ModelStore


@pytest.mark.redis
def test_a_store_whose_models_are_on_another_log_is_refused(tmp_path: Path) -> None:
    """Given a data directory that was used with Kafka, without --kafka nothing may be sent."""
    with open_runtime(Settings(data_dir=tmp_path)) as runtime:
        runtime.ensure_topics()
        store = runtime.store()
        assert store.client.get(BOUND_LOG) == b"streams"
        store.client.set(BOUND_LOG, "kafka")

        with pytest.raises(InvalidData, match=r"log is Kafka, not Redis Streams; give --kafka"):
            runtime.store()
        with pytest.raises(InvalidData, match="--data-dir"):
            runtime.ensure_topics()


@pytest.mark.redis
def test_a_store_of_an_older_lethe_is_refused(tmp_path: Path) -> None:
    with open_runtime(Settings(data_dir=tmp_path)) as runtime:
        runtime.store().client.sadd(FORMER_MODELS, "churn")

        with pytest.raises(FormatTooOld, match=r"older Lethe, before format 8.*an empty store"):
            runtime.store()
        with pytest.raises(FormatTooOld):
            runtime.ensure_topics()


def test_a_password_in_the_address_is_never_shown() -> None:
    url = SecretStr("redis://lethe:hunter2@127.0.0.1:1")
    with open_runtime(Settings(redis_url=url)) as runtime:
        assert "hunter2" not in repr(runtime)


@pytest.mark.redis
def test_waiting_for_the_log_leaves_no_connection_to_the_store_open(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Given a log that is down for hours, workers try on: the store has no end of clients."""
    supervisor, tries = Supervisor(["deletions"]), itertools.count(1)

    def unreachable(*_: object) -> None:
        if next(tries) == 4:
            supervisor.stop.set()
        raise LogUnavailable("it is down")

    with open_runtime(Settings(data_dir=tmp_path)) as runtime:
        runtime.ensure_topics()
        client = runtime.store().client
        open_before = len(client.client_list())
        with monkeypatch.context() as down:
            down.setattr(SignedLog, "ensure_topics", unreachable)
            for _ in range(2):
                with pytest.raises(LogUnavailable):
                    runtime.ensure_topics()
        assert len(client.client_list()) == open_before
        monkeypatch.setattr(SignedLog, "consumer", unreachable)
        with supervisor.running(runtime):
            assert supervisor.stop.wait(60)
        assert next(tries) == 5
        assert len(client.client_list()) <= open_before + 1, "the worker's own store"


@pytest.mark.redis
def test_keys_that_do_not_open_the_newest_commits_are_refused(tmp_path: Path) -> None:
    first, other = tmp_path / "first.keys", tmp_path / "other.keys"
    new_seal_file(first)
    new_seal_file(other)
    with open_runtime(Settings(data_dir=tmp_path, seal_key_file=first)) as runtime:
        store = runtime.store()
        used = runtime.seals(store)
        assert not store.client.exists(SEALS)  # a file, and no other secret in the store
        _commit_with(store, "churn", used.current)
        _commit_with(store, "spend", used.current)
        assert rotate_seal_file(first).current != used.current
        rotated = runtime.seals(store)
        assert used.current in rotated
        assert rotated.current != used.current
    with open_runtime(Settings(data_dir=tmp_path, seal_key_file=other)) as runtime:
        store = runtime.store()
        with pytest.raises(KeyUnknown, match=r"'churn' and 1 other models .*LETHE_SEAL_KEY_FILE"):
            runtime.seals(store)
        # Of a head that is no hash, whoever works on that model says what is wrong.
        for model in ("churn", "spend"):
            store.client.delete(ModelKeys(model).head)
            store.client.set(ModelKeys(model).head, "no hash")
        runtime.seals(store)


@pytest.mark.redis
def test_a_file_of_keys_opens_what_the_store_s_own_secret_has_sealed(tmp_path: Path) -> None:
    with open_runtime(Settings(data_dir=tmp_path)) as runtime:
        store = runtime.store()
        own = runtime.seals(store).current
        _commit_with(store, "churn", own)
    file = tmp_path / "seal.keys"
    new = new_seal_file(file).current
    with open_runtime(Settings(data_dir=tmp_path, seal_key_file=file)) as runtime:
        store = runtime.store()
        seals = runtime.seals(store)
        assert list(seals) == [new, own]
        assert handover(store, seals, file) == (
            f"commits will be sealed with key {new} from {file}; until now they were sealed "
            f"with {own}. Give this file to every worker and keep a copy"
        )
        _commit_with(store, "churn", new)
        assert handover(store, seals, file) is None


def _commit_with(store: ModelStore, model: str, key: str) -> None:
    """Leave of a model what says which key sealed its newest commit."""
    keys = ModelKeys(model)
    store.client.sadd(keys.partition.models, model)
    store.client.hset(keys.head, "seal", key)


def test_a_file_of_secrets_is_made_for_its_owner_alone(tmp_path: Path) -> None:
    file = tmp_path / "seal.keys"
    made = new_seal_file(file)
    assert file.stat().st_mode & 0o777 == 0o600
    with pytest.raises(InvalidData, match="never overwritten"):
        new_seal_file(file)
    rotated = rotate_seal_file(file)
    assert list(rotated) == [rotated.current, made.current]
    assert file.stat().st_mode & 0o777 == 0o600
    assert [path.name for path in tmp_path.iterdir()] == ["seal.keys"]
    file.chmod(0o644)
    with pytest.raises(InvalidData, match="others can read"):
        rotate_seal_file(file)
    file.chmod(0o600)
    file.write_bytes(base64.b64encode(bytes(31)) + b"\n")
    with pytest.raises(InvalidData, match="line 1: no secret of 32 bytes"):
        rotate_seal_file(file)


@pytest.mark.redis
def test_workers_compute_with_one_blas_thread(tmp_path: Path) -> None:
    with open_runtime(Settings(data_dir=tmp_path)) as runtime:
        runtime.store()
        pools = [pool for pool in threadpool_info() if pool["user_api"] == "blas"]
    assert pools
    assert {pool["num_threads"] for pool in pools} == {1}


def test_a_refresh_worker_of_its_own_computes_with_the_threads_that_it_is_given(
    tmp_path: Path,
) -> None:
    with open_runtime(Settings(data_dir=tmp_path), blas_threads=2) as runtime:
        runtime.store()
        pools = [pool for pool in threadpool_info() if pool["user_api"] == "blas"]
    assert {pool["num_threads"] for pool in pools} == {2}


@pytest.mark.parametrize(
    "url", ["redis://localhost:6379/0?bogus=canary-secret", "http://localhost", "redis://h:port"]
)
def test_an_address_that_cannot_be_used_is_one_clear_line(url: str) -> None:
    with pytest.raises(InvalidData, match="not a usable address") as raised:
        connect(url)

    assert "canary-secret" not in str(raised.value)
