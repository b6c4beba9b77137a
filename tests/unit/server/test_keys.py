"""Keys of the HTTP API: only hashes are stored, and what the file says counts within a second."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from lethe.consumers.cli import main
from lethe.consumers.server import keys
from lethe.consumers.server.access import access_of
from lethe.consumers.server.keys import Keys, issue_key, read_keys
from lethe.consumers.service.configuration.settings import load_settings
from lethe.engine.errors import InvalidData, Unauthenticated


def test_the_file_holds_the_hash_and_not_the_key(tmp_path: Path) -> None:
    path = tmp_path / "api.keys"

    key = issue_key(path, "crm", ["churn*"], None)

    assert key.removeprefix("lethe_") not in path.read_text()
    assert path.stat().st_mode & 0o077 == 0
    caller = Keys(path).caller(key)
    assert (caller.name, caller.allows("churn-eu"), caller.allows("other")) == (
        "crm",
        True,
        False,
    )
    assert not caller.allows_all


def test_a_key_that_is_expired_or_unknown_does_not_count(tmp_path: Path) -> None:
    path = tmp_path / "api.keys"
    old = issue_key(path, "old", ["*"], datetime.now(UTC) - timedelta(seconds=1))

    for key, said in ((old, "expired"), ("lethe_another", "not known"), ("", "not known")):
        with pytest.raises(Unauthenticated, match=said):
            Keys(path).caller(key)


def test_a_line_that_is_removed_ends_its_key(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(keys, "LOOK_SECONDS", 0.0)
    path = tmp_path / "api.keys"
    first, second = (issue_key(path, name, ["*"], None) for name in ("first", "second"))
    ring = Keys(path)

    path.write_text(path.read_text().splitlines()[1] + "\n")

    assert ring.caller(second).name == "second"
    with pytest.raises(Unauthenticated):
        ring.caller(first)


def test_while_the_file_cannot_be_read_no_key_counts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(keys, "LOOK_SECONDS", 0.0)
    path = tmp_path / "api.keys"
    key = issue_key(path, "crm", ["*"], None)
    ring = Keys(path)
    path.write_text("this is no key\n")

    for _ in range(2):
        with pytest.raises(InvalidData, match="line 1"):
            ring.caller(key)


def test_a_file_that_is_too_long_is_refused_and_never_cut(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Given a limit that falls within a pattern, no key gets another pattern."""
    path, content = tmp_path / "api.keys", f"# clé\n{'a' * 64} crm - churn*".encode()
    path.write_bytes(content)
    monkeypatch.setattr(keys, "MAX_FILE_BYTES", len(content) - 2)

    with pytest.raises(InvalidData, match="more than"):
        read_keys(path)


@pytest.mark.parametrize(
    "line", ["nonsense", "ab crm - *", f"{'a' * 64} crm soon *", f"{'a' * 64} crm -", f"{'a' * 64}"]
)
def test_a_line_that_is_no_key_is_named(tmp_path: Path, line: str) -> None:
    path = tmp_path / "api.keys"
    path.write_text(f"# keys\n{line}\n")

    with pytest.raises(InvalidData, match="line 2"):
        read_keys(path)


@pytest.mark.parametrize(
    ("name", "model"), [("two words", "*"), ("crm", "a b"), ("crm", "#"), ("", "*")]
)
def test_what_the_file_cannot_hold_is_refused(tmp_path: Path, name: str, model: str) -> None:
    with pytest.raises(InvalidData):
        issue_key(tmp_path / "api.keys", name, [model], None)


def test_the_command_prints_the_key_once(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "api.keys"
    arguments = [
        "key",
        "issue",
        str(path),
        "--name",
        "crm",
        "--model",
        "churn*",
        "--expires",
        "90d",
    ]

    assert main.run([*arguments, "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    again = main.run(arguments)

    caller = Keys(path).caller(document["key"])
    assert caller.models == ("churn*",)
    assert caller.expires is not None
    assert timedelta(days=89) < caller.expires - datetime.now(UTC) < timedelta(days=91)
    assert again == 2
    assert "has a key 'crm'" in capsys.readouterr().err


def test_without_keys_only_this_machine_may_call(tmp_path: Path) -> None:
    with pytest.raises(InvalidData, match="lethe key issue"):
        access_of(load_settings({"server_host": "0.0.0.0"}))  # noqa: S104 - it is refused

    assert access_of(load_settings({"server_host": "::1"})).hosts is not None
    issue_key(tmp_path / "api.keys", "crm", ["*"], None)
    open_to_all = {"server_host": "0.0.0.0", "server_keys": tmp_path / "api.keys"}  # noqa: S104
    assert access_of(load_settings(open_to_all)).hosts is None
