"""Each role does its work with the rights of deploy/, over TLS, and is refused what is not its."""

from __future__ import annotations

import contextlib
import json
import signal
import subprocess
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest
import redis

from lethe.consumers import ModelSubscriber
from lethe.consumers.contract import topics
from lethe.consumers.log.base import Message
from lethe.engine.errors import LogUnavailable
from lethe.engine.store.layout.keys import SEALS, ModelKeys
from tests.integration.security.conftest import STORE_ROLES, Secure
from tests.support.command import Lethe

pytestmark = [pytest.mark.kafka, pytest.mark.redis, pytest.mark.xdist_group("secure")]

TOPICS = (
    topics.DELETIONS, topics.COMMITS, topics.MODELS, topics.RECEIPTS, topics.VERSIONS,
    topics.REFRESH_JOBS, topics.DEAD_LETTERS, topics.ERASURES, topics.ERASURE_RECEIPTS,
    topics.SUPPRESSIONS,
)  # fmt: skip
# Who may write what: everything else of the table roles x topics is refused.
WRITES = {
    "worker": set(TOPICS)
    - {topics.DELETIONS, topics.ERASURES, topics.ERASURE_RECEIPTS, topics.SUPPRESSIONS},
    "refresh": {topics.DELETIONS},
    "erasure": {
        topics.DELETIONS,
        topics.SUPPRESSIONS,
        topics.ERASURE_RECEIPTS,
        topics.DEAD_LETTERS,
    },
    "platform": {topics.DELETIONS, topics.ERASURES},
    "subscriber": set(),
}


@pytest.fixture(scope="module")
def rows(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Training rows of a linear model."""
    path = tmp_path_factory.mktemp("rows") / "rows.csv"
    draw = np.random.default_rng(3)
    X = draw.normal(size=(120, 3))
    y = X @ [1.0, -2.0, 0.5] + draw.normal(size=120)
    lines = [f"r{i},{y[i]},{','.join(map(str, X[i]))}" for i in range(120)]
    path.write_text("\n".join(["id,y,a,b,c", *lines]) + "\n")
    return path


@contextlib.contextmanager
def _running(secure: Secure, tmp_path: Path) -> Iterator[None]:
    """Run the two workers, each as its own role."""
    processes = [
        secure.lethe(role, tmp_path).start("work", which)
        for role, which in (("worker", "deletions"), ("refresh", "refresh"))
    ]
    failure: BaseException | None = None
    try:
        yield
    except BaseException as error:
        failure = error
    for process in processes:
        process.send_signal(signal.SIGTERM)
    said = [process.communicate(timeout=120) for process in processes]
    if failure is not None:
        failure.add_note("\n".join(err for _, err in said))
        raise failure
    for process, (_, err) in zip(processes, said, strict=True):
        assert process.returncode == 0, err
        assert "refused" not in err
        assert "halt" not in err


def test_every_role_does_its_work_over_tls(
    secure: Secure, tmp_path: Path, rows: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Given a model that the operator registered, and workers that are only what they are
    operator = secure.lethe("operator", tmp_path)
    operator(
        *("register", "scores", "--data", str(rows), "--id", "id", "--target", "y"),
        *("--kind", "linear", "--ridge", "1"),
    )
    with _running(secure, tmp_path):
        # When the platform asks for a deletion, with nothing but Kafka
        request = {"request_id": "q1", "model_id": "scores", "row_ids": ["r5"]}
        log = secure.log("platform")
        with closing(log.producer()) as producer:
            producer.publish([Message(topics.DELETIONS, b"scores", json.dumps(request).encode())])
        # Then it reads the receipt
        with closing(log.reader()) as reader:
            partition = reader.partition_for(topics.RECEIPTS, b"scores")
            records, _ = reader.read(partition, 0, 120.0, 10)
        assert [json.loads(record.value or b"")["status"] for record in records] == ["APPLIED"]
        # And the refresh worker rebuilds what the operator orders
        operator("refresh", "scores", "--size", "rebuild", "--wait=120")
        # And a subscriber reads the versions, with rights to read alone
        for name, value in (
            secure.kafka_settings("subscriber") | secure.store_settings("subscriber")
        ).items():
            monkeypatch.setenv(name, value)
        with ModelSubscriber.connect() as models:
            assert next(models.follow("scores", timeout=120)).version == 2
    # And the command looks at all of it: as the operator, and as one who may only look
    assert operator("verify", "scores").code == 0
    assert operator("check", "--json").document["ok"]
    reader_only = secure.kafka_settings("operator") | secure.store_settings("reader")
    looking = secure.lethe("operator", tmp_path, **reader_only)
    assert looking("status", "scores", "--json").document["version"] == 2


def test_single_node_mode_works_over_tls_as_the_worker(
    secure: Secure, tmp_path: Path, rows: Path
) -> None:
    settings = secure.store_settings("worker")
    settings["LETHE_REDIS_URL"] = settings["LETHE_REDIS_URL"].removesuffix("/0") + "/1"
    lethe = Lethe(tmp_path / "data", **settings)
    lethe(
        *("register", "scores", "--data", str(rows), "--id", "id", "--target", "y"),
        *("--kind", "linear", "--ridge", "1"),
    )
    lethe("delete", "scores", "--row", "r1")
    lethe("work", "deletions", "--until-idle")
    assert lethe("status", "scores", "--json").document["version"] == 1


@pytest.mark.parametrize("role", WRITES)
def test_a_role_writes_only_its_topics(secure: Secure, role: str) -> None:
    for topic in TOPICS:
        # A key of its own and no value that a worker could read: it is decided as garbage.
        message = [Message(topic, f"from-{role}".encode(), b"not for anybody")]
        with closing(secure.log(role).producer()) as producer:
            if topic in WRITES[role]:
                producer.publish(message, timeout=60.0)
                continue
            with pytest.raises(LogUnavailable, match=f"does not let user lethe-{role}") as caught:
                producer.publish(message, timeout=60.0)
            assert secure.password(f"lethe-{role}") not in str(caught.value)


@pytest.mark.parametrize(
    ("role", "topic"),
    [
        ("platform", topics.DELETIONS),  # other people's requests
        ("platform", topics.MODELS),
        ("platform", topics.COMMITS),
        ("subscriber", topics.COMMITS),
        ("subscriber", topics.RECEIPTS),
        ("subscriber", topics.DELETIONS),
        ("refresh", topics.RECEIPTS),
        ("refresh", topics.COMMITS),
    ],
)
def test_a_role_reads_only_its_topics(secure: Secure, role: str, topic: str) -> None:
    with closing(secure.log("operator").reader()) as reader:
        partition = reader.partitions(topic)[0]
    with (
        closing(secure.log(role).reader()) as reader,
        pytest.raises(LogUnavailable, match="grant the rights of its role"),
    ):
        reader.read(partition, 0, 60.0, 10)


def _refused(client: redis.Redis, *command: str | bytes | int) -> bool:
    try:
        client.execute_command(*command)  # type: ignore[no-untyped-call]  # redis-py's gap
    except redis.exceptions.NoPermissionError:
        return True
    except redis.ResponseError:
        return False  # it was let in, and failed for another reason
    return False


def test_no_role_but_the_writers_can_run_the_commit(secure: Secure) -> None:
    keys = ModelKeys("victim")
    script = "return redis.call('HSET', KEYS[1], 'version', '7')"
    # Keys that the script does not declare are no way around it either.
    hidden = f"return redis.call('HSET', '{keys.head}', 'version', '7')"
    for role in STORE_ROLES:
        with secure.store(role) as client:
            writes = role in ("worker", "operator")
            for command in (
                ("EVAL", script, 1, keys.head),
                ("HSET", keys.head, "version", "7"),
                ("HSET", keys.ledger, "row", "1"),
                ("HSET", keys.requests, "q", "F{}"),
                ("HSET", keys.partition.cursors, "forged", "7"),
                ("SADD", keys.partition.models, "forged"),
                ("HSET", SEALS, "forged", "7"),
                ("SET", "lethe:bound-log", "kafka"),
            ):
                assert _refused(client, *command) is not writes, (role, command)
                if writes:
                    client.unlink(keys.head, keys.ledger, keys.requests)
                    client.hdel(keys.partition.cursors, "forged")
                    client.hdel(SEALS, "forged")
                    client.srem(keys.partition.models, "forged")
            if not writes:
                with pytest.raises(redis.ResponseError, match=r"(?i)acl|permission"):
                    client.eval(hidden, 0)


def test_nobody_can_do_what_only_an_administrator_needs(secure: Secure) -> None:
    for role in STORE_ROLES:
        with secure.store(role) as client:
            for command in (
                ("FLUSHALL",), ("CONFIG", "GET", "*"), ("CONFIG", "SET", "appendonly", "no"),
                ("ACL", "LIST"), ("KEYS", "*"), ("MONITOR",),
                ("SHUTDOWN",), ("GET", "another-program"), ("REPLICAOF", "127.0.0.1", "1"),
            ):  # fmt: skip
                assert _refused(client, *command), (role, command)


def test_readers_never_see_rows_and_the_refresh_worker_never_writes_live_state(
    secure: Secure,
) -> None:
    keys = ModelKeys("scores")
    rows, head = keys.generation("x").rows(0), keys.head
    with secure.store("reader") as reader, secure.store("subscriber") as subscriber:
        for client in (reader, subscriber):
            assert not _refused(client, "HGET", head, "version")
            assert _refused(client, "HGETALL", rows)
            assert _refused(client, "HSET", rows, "r", "x")
            assert _refused(client, "HSET", head, "version", "9")
            assert _refused(client, "HGETALL", SEALS)  # what opens commits
    with secure.store("refresh") as refresh:
        assert not _refused(refresh, "HGETALL", rows)  # it rebuilds from them
        assert _refused(refresh, "HGETALL", SEALS)
        assert not _refused(refresh, "HSET", keys.job("j"), "result", "{}")
        assert _refused(refresh, "HSET", head, "version", "9")
        refresh.delete(keys.job("j"))
        # What key patterns cannot tell apart, and docs/threat-model.md says: a staged
        # generation from the live one.
        assert not _refused(refresh, "HSET", rows, "probe", "x")
        refresh.delete(rows)


def test_printed_rights_are_the_granted_ones() -> None:
    import kafka_acls

    printed = [right.command() for right in kafka_acls.rights({"platform": "CN=crm"})]
    assert (
        "kafka-acls.sh --add --allow-principal 'User:CN=crm' --operation Write "
        "--topic 'lethe.deletions'"
    ) in printed
    assert not any("lethe.versions" in one and "Write" in one and "crm" in one for one in printed)
    done = subprocess.run(["scripts/kafka_acls.py"], capture_output=True, text=True, check=True)
    assert len(done.stdout.splitlines()) == len(printed)
