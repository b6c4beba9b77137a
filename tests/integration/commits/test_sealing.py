"""Keys that commits are sealed with: a file of them, or one in the store; never the wrong one."""

from __future__ import annotations

import base64
from pathlib import Path

import pytest
import redis

from lethe.consumers.contract.sealing import (
    KeyUnknown,
    SealKeys,
    name_of,
    read_seal_keys,
    stored_seal_keys,
)
from lethe.engine.errors import CorruptState, InvalidData
from lethe.engine.store.layout import keys
from lethe.engine.store.server.barrier import NoBarrier
from lethe.engine.store.store import ModelStore

OLD, NEW = bytes(32), bytes(range(32))


def file_of(tmp_path: Path, *lines: str) -> Path:
    path = tmp_path / "seals"
    path.write_text("\n".join(lines))
    path.chmod(0o600)
    return path


def encoded(secret: bytes) -> str:
    return base64.b64encode(secret).decode()


def test_the_first_key_seals_and_all_of_them_open() -> None:
    old, both = SealKeys([OLD]), SealKeys([NEW, OLD])
    sealed = old.seal("m", b"plain", b"open")
    assert both.open(old.current, "m", sealed, b"open") == b"plain"
    assert both.current == name_of(NEW)
    again = both.seal("m", b"plain", b"open")
    with pytest.raises(KeyUnknown, match=f"key {both.current}.*LETHE_SEAL_KEY_FILE"):
        old.open(both.current, "m", again, b"open")


def test_what_is_sealed_is_bound_to_model_key_and_open_part() -> None:
    seals = SealKeys([NEW, OLD])
    sealed = seals.seal("m", b"plain", b"open")
    assert sealed != seals.seal("m", b"plain", b"open"), "a nonce came twice"
    cases = [
        (seals.current, "other", sealed, b"open"),
        (name_of(OLD), "m", sealed, b"open"),
        (seals.current, "m", sealed, b"another"),
        (seals.current, "m", b"", b"open"),
        (seals.current, "m", sealed[:11], b"open"),
    ]
    for name, model, data, associated in cases:
        with pytest.raises(KeyUnknown):
            seals.open(name, model, data, associated)
    for at in range(len(sealed)):
        spoilt = sealed[:at] + bytes([sealed[at] ^ 1]) + sealed[at + 1 :]
        with pytest.raises(KeyUnknown, match="does not open"):
            seals.open(seals.current, "m", spoilt, b"open")


def test_no_secret_is_shown() -> None:
    shown = repr(SealKeys([NEW, OLD]))
    assert NEW.hex() not in shown
    assert encoded(NEW) not in shown
    assert NEW.hex()[:8] not in name_of(NEW)


def test_a_file_of_keys(tmp_path: Path) -> None:
    path = file_of(tmp_path, "# the newest first", encoded(NEW) + "  # of May", "", encoded(OLD))
    found = read_seal_keys(path)
    assert found.current == name_of(NEW)
    assert name_of(OLD) in found


@pytest.mark.parametrize(
    "line", ["", "# nothing", "nonsense!", encoded(bytes(31)), encoded(bytes(33)), "ä" * 44]
)
def test_a_file_without_a_key_is_refused_and_not_repeated(tmp_path: Path, line: str) -> None:
    with pytest.raises(InvalidData) as refused:
        read_seal_keys(file_of(tmp_path, line))
    assert not line.strip("# ") or line not in str(refused.value)


def test_a_file_that_others_can_read_is_refused(tmp_path: Path) -> None:
    path = file_of(tmp_path, encoded(NEW))
    path.chmod(0o644)
    with pytest.raises(InvalidData, match="chmod"):
        read_seal_keys(path)


@pytest.mark.redis
def test_the_store_makes_one_and_keeps_it(redis_client: redis.Redis) -> None:
    store = ModelStore(redis_client, NoBarrier())
    assert stored_seal_keys(store, make=False) is None
    made = stored_seal_keys(store, make=True)
    again = stored_seal_keys(store, make=True)
    assert made is not None
    assert again is not None
    assert again.current == made.current
    assert redis_client.hlen(keys.SEALS) == 2


@pytest.mark.redis
def test_a_damaged_one_in_the_store_is_said(redis_client: redis.Redis) -> None:
    store = ModelStore(redis_client, NoBarrier())
    made = stored_seal_keys(store, make=True)
    assert made is not None
    redis_client.hset(keys.SEALS, made.current, b"short")
    with pytest.raises(CorruptState, match="LETHE_SEAL_KEY_FILE"):
        stored_seal_keys(store, make=True)
