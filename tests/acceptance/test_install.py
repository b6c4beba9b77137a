"""What is installed: one package, `lethe`, beside whatever else a project calls engine."""

from __future__ import annotations

import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from tests.support.servers import ROOT

pytestmark = pytest.mark.slow


def run(*command: str, cwd: Path, path: Path | None = None) -> str:
    environment = dict(os.environ) if path is None else {**os.environ, "PYTHONPATH": str(path)}
    done = subprocess.run(
        [sys.executable, *command],
        cwd=cwd,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def build(source: Path, kind: str, out: Path) -> Path:
    run("-m", "hatchling", "build", "--target", kind, "--directory", str(out), cwd=source)
    [found] = out.glob("*.whl" if kind == "wheel" else "*.tar.gz")
    return found


def modules(wheel: Path) -> set[str]:
    with zipfile.ZipFile(wheel) as archive:
        return {name for name in archive.namelist() if ".dist-info/" not in name}


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(ROOT, "wheel", tmp_path_factory.mktemp("wheel"))


def test_a_wheel_is_one_package_with_all_of_it(wheel: Path) -> None:
    there = {
        f"lethe/{path.relative_to(ROOT)}"
        for top in ("engine", "consumers")
        for path in (ROOT / top).rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    assert modules(wheel) >= there | {"lethe/__init__.py", "lethe/py.typed"}
    assert all(name.startswith("lethe/") for name in modules(wheel))


def test_a_wheel_that_is_made_of_the_sdist_is_the_same(wheel: Path, tmp_path: Path) -> None:
    # Not tarfile: its `filter` is younger than Debian's Python 3.11.2, and newer ones ask for it.
    sdist, unpacked = build(ROOT, "sdist", tmp_path / "sdist"), tmp_path / "unpacked"
    unpacked.mkdir()
    subprocess.run(["tar", "-xzf", str(sdist), "-C", str(unpacked)], check=True)
    [source] = unpacked.iterdir()
    assert modules(build(source, "wheel", tmp_path / "again")) == modules(wheel)


def test_a_project_with_an_engine_of_its_own_is_no_trouble(wheel: Path, tmp_path: Path) -> None:
    installed, project = tmp_path / "installed", tmp_path / "project"
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(installed)
    for name in ("engine", "consumers"):
        (project / name).mkdir(parents=True)
        (project / name / "__init__.py").write_text(f"WHOSE = 'the {name} of the project'\n")
    code = (
        "import engine, consumers, lethe; "
        "from lethe import LinearModel, LogisticModel, ModelSubscriber; "
        "print(lethe.__file__, engine.WHOSE, consumers.WHOSE, LinearModel.__module__, sep='|')"
    )
    assert run("-W", "ignore", "-c", code, cwd=project, path=installed).split("|") == [
        str(installed / "lethe" / "__init__.py"),
        "the engine of the project",
        "the consumers of the project",
        "lethe.engine.models",
    ]


def test_a_checkout_hands_out_the_same_classes_by_either_name() -> None:
    code = (
        "import engine, consumers, lethe; "
        "assert engine.LinearModel is lethe.LinearModel; "
        "assert consumers.ModelSubscriber is lethe.ModelSubscriber"
    )
    run("-W", "ignore", "-c", code, cwd=ROOT)
