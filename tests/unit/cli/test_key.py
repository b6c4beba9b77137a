"""``lethe key``: a key is made once, and only its public half is shown."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from lethe.consumers.cli import main
from lethe.consumers.contract.signatures import parse_trusted, read_signer


def test_a_key_is_made_and_its_public_half_is_a_line_for_trusted_keys(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "signing.pem"
    assert main.run(["key", "new", str(path)]) == 0
    made = capsys.readouterr().out
    assert main.run(["key", "show", str(path)]) == 0
    assert capsys.readouterr().out == made
    assert set(parse_trusted(made, "line").keys) == {read_signer(path).key_id}
    assert main.run(["key", "show", str(path), "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document == {
        "key_id": read_signer(path).key_id,
        "public_key": read_signer(path).public_text,
    }
    secret = path.read_text().splitlines()[1]
    assert secret not in made


def test_without_a_file_the_key_that_signs_here_is_shown(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LETHE_DATA_DIR", str(tmp_path / "data"))
    assert main.run(["key", "show"]) == 2
    assert "no key signs events here" in capsys.readouterr().err
    main.run(["key", "new", str(tmp_path / "signing.pem")])
    made = capsys.readouterr().out
    monkeypatch.setenv("LETHE_SIGNING_KEY", str(tmp_path / "signing.pem"))
    assert main.run(["key", "show"]) == 0
    assert capsys.readouterr().out == made


def test_a_key_that_is_there_is_never_overwritten(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "signing.pem"
    main.run(["key", "new", str(path)])
    before = path.read_bytes()
    assert main.run(["key", "new", str(path)]) == 2
    assert "never overwritten" in capsys.readouterr().err
    assert path.read_bytes() == before


def test_secrets_that_seal_commits_are_made_and_rotated_and_never_shown(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "seal.keys"
    assert main.run(["key", "new", "--seal", str(path), "--json"]) == 0
    made = json.loads(capsys.readouterr().out)
    assert main.run(["key", "rotate", "--seal", str(path), "--json"]) == 0
    rotated = json.loads(capsys.readouterr().out)
    assert rotated["opens"] == [rotated["seals"], made["seals"]]
    assert main.run(["key", "rotate", "--seal", str(path)]) == 0
    said = capsys.readouterr().out
    assert "3 keys in all" in said
    assert not any(line.partition(" ")[0] in said for line in path.read_text().splitlines())
    assert main.run(["key", "rotate", str(path)]) == 2
    assert "--seal" in capsys.readouterr().err
