"""scripts/kafka resolves its jars once, whole and checked, or not at all (with a false Maven)."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.servers import KAFKA_SCRIPT

JAR = b"not really a jar"
ENSURE = """
import sys
from importlib.machinery import SourceFileLoader
from importlib.util import module_from_spec, spec_from_loader
from pathlib import Path
loader = SourceFileLoader("kafka_script", sys.argv[1])
module = module_from_spec(spec_from_loader("kafka_script", loader))
sys.path.insert(0, str(Path(sys.argv[1]).parent))
loader.exec_module(module)
try:
    print(module.JARS.ensure())
except module.Problem as problem:
    sys.exit(str(problem))
"""


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A checkout with scripts/kafka, its pom, and a Maven that takes a while for one small jar.

    It is not done with it while there is a file ``hold``.
    """
    (tmp_path / "scripts").mkdir()
    (tmp_path / "deploy" / "kafka").mkdir(parents=True)
    for name in ("kafka", "local_servers.py"):
        shutil.copy(KAFKA_SCRIPT.with_name(name), tmp_path / "scripts")
    shutil.copy(
        KAFKA_SCRIPT.parent.parent / "deploy" / "kafka" / "pom.xml", tmp_path / "deploy" / "kafka"
    )
    (tmp_path / "deploy" / "kafka" / "libs.sha256").write_text(
        f"{hashlib.sha256(JAR).hexdigest()}  a.jar\n"
    )
    programs = tmp_path / "bin"
    programs.mkdir()
    maven = f"""#!/bin/sh
echo call >> {tmp_path}/calls
for argument; do target=${{argument#-DoutputDirectory=}}; done
mkdir -p "$target"; printf 'not ' > "$target/a.jar"; sleep 0.5
while test -e {tmp_path}/hold; do sleep 0.05; done
test ! -e {tmp_path}/broken || exit 1
printf 'really a jar' >> "$target/a.jar"
"""
    for name, text in (("mvn", maven), ("java", "#!/bin/sh\nexit 1\n")):
        (programs / name).write_text(text)
        (programs / name).chmod(0o755)
    return tmp_path


def _start(checkout: Path) -> subprocess.Popen[str]:
    path = f"{checkout / 'bin'}{os.pathsep}{os.environ['PATH']}"
    return subprocess.Popen(
        [sys.executable, "-c", ENSURE, str(checkout / "scripts" / "kafka")],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={"PATH": path},
    )


def _outcome(process: subprocess.Popen[str]) -> tuple[int, str, str]:
    out, err = process.communicate(timeout=120)
    return process.returncode, out.strip(), err


def test_first_starts_at_the_same_time_resolve_once_and_all_get_whole_jars(checkout: Path) -> None:
    outcomes = [_outcome(process) for process in [_start(checkout) for _ in range(4)]]
    assert [code for code, _, _ in outcomes] == [0, 0, 0, 0]
    assert len({libs for _, libs, _ in outcomes}) == 1
    assert (Path(outcomes[0][1]) / "a.jar").read_bytes() == JAR
    assert (checkout / "calls").read_text() == "call\n"


def test_a_resolution_that_fails_leaves_nothing_and_the_next_one_works(checkout: Path) -> None:
    (checkout / "broken").touch()
    code, _, err = _outcome(_start(checkout))
    assert code == 1
    assert "Maven could not resolve" in err
    assert list((checkout / "deploy" / "kafka" / "run").rglob("*.jar")) == []

    (checkout / "broken").unlink()
    code, libs, _ = _outcome(_start(checkout))
    assert code == 0
    assert (Path(libs) / "a.jar").read_bytes() == JAR


def test_jars_with_another_digest_are_not_used(checkout: Path) -> None:
    (checkout / "deploy" / "kafka" / "libs.sha256").write_text(f"{'0' * 64}  a.jar\n")
    code, _, err = _outcome(_start(checkout))
    assert code == 1
    assert "do not trust" in err
    assert list((checkout / "deploy" / "kafka" / "run").rglob("*.jar")) == []


def test_a_resolution_killed_halfway_leaves_no_part_under_the_name(checkout: Path) -> None:
    (checkout / "hold").touch()
    process = _start(checkout)
    while not (checkout / "calls").exists():
        assert process.poll() is None
    process.kill()
    (checkout / "hold").unlink()  # its Maven lives on for a moment
    process.communicate()
    assert list((checkout / "deploy" / "kafka" / "run" / "libs").iterdir()) == []
    code, libs, _ = _outcome(_start(checkout))
    assert code == 0
    assert (Path(libs) / "a.jar").read_bytes() == JAR
