"""`lethe audit` on a real run: everything holds, and every forgery of it is refused."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from consumers.cli.main import run
from consumers.embedded import EmbeddedValkey
from tests.acceptance.lethe import Lethe
from tests.acceptance.training import write
from tests.support.bundles import Bundle, Forgery
from tests.support.forgeries import SEEN, SIGNED, SIGNED_OR_NOT, UNREADABLE

# One worker runs the file: its tests share servers and files.
pytestmark = [pytest.mark.redis, pytest.mark.xdist_group("test_cli_audit")]

FIT = ("--id", "id", "--target", "y", "--subject", "household", "--ridge", "1")


@dataclass(frozen=True)
class Made:
    """What a real run left: bundles of it, early and late, and of what a copy of it became."""

    lethe: Lethe
    folder: Path
    rows: Path

    def path(self, name: str) -> str:
        return str(self.folder / name)


def decide(lethe: Lethe, *requests: tuple[str, ...]) -> None:
    for request in requests:
        lethe("delete", "churn", *request)
    lethe("work", "--until-idle")


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Made]:
    folder = tmp_path_factory.mktemp("audit")
    rows = write(folder / "rows.parquet", logistic=True)
    store, copy = folder / "store", folder / "copy"
    with EmbeddedValkey(store):
        lethe = Lethe(store)
        lethe("register", "churn", "--data", str(rows), *FIT, "--kind", "logistic")
        decide(
            lethe,
            ("--row", "u1", "u2", "--request-id", "r1"),
            ("--subject", "h5", "--request-id", "r2"),
            ("--row", "u1", "--request-id", "r3"),
            ("--row", "nobody", "--request-id", "r4"),
        )
        decide(lethe, ("--row", "u30", "u31", "--request-id", "r5"))
        early = ("audit", "churn", "--export", str(folder / "early"))
        lethe(*early, "--checkpoint", str(folder / "early.seen"))
    shutil.copytree(store, copy, ignore=shutil.ignore_patterns("*.sock"))
    with EmbeddedValkey(copy):
        other = Lethe(copy)
        decide(other, ("--row", "u60", "--request-id", "other"))
        other("audit", "churn", "--export", str(folder / "fork"))
    with EmbeddedValkey(store):
        decide(
            lethe,
            ("--row", "u1", "u2", "--request-id", "r1"),
            ("--row", "u70", "--request-id", "r1"),
            ("--row", "u40", "--request-id", "r6"),
        )
        lethe("refresh", "churn", "--size", "polish")
        lethe("work", "--until-idle")
        late = ("audit", "churn", "--export", str(folder / "late"))
        lethe(*late, "--checkpoint", str(folder / "late.seen"))
        (folder / "gone.txt").write_text("\n".join(GONE))
        trusted = tuple(store.glob("*.pub"))
        shutil.copy(trusted[0], folder / "trusted.pub")
        yield Made(lethe, folder, rows)


GONE = ("u1", "u2", "u15", "u16", "u17", "u30", "u31", "u40")


def audited(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, Any, str]:
    """Run the command within this process; return its exit code, document, and errors."""
    code = run(["audit", *arguments, "--json"])
    captured = capsys.readouterr()
    return code, json.loads(captured.out), captured.err


def failed(document: Any) -> set[str]:
    return {one["check"] for one in document["checks"] if one["result"] == "FAILED"}


def test_a_sound_model_passes_every_check(made: Made) -> None:
    answer = made.lethe("audit", "churn", "--strict", "--json")

    results = {one["check"]: one["result"] for one in answer.document["checks"]}
    assert set(results.values()) == {"OK"}, answer.out
    assert results.keys() >= {
        "records", "chain", "signatures", "parameters", "receipts", "rows deleted", "receipt log",
        "state: head", "state: deletions", "state: offsets", "state: receipts", "bound",
    }  # fmt: skip
    assert answer.document["version"] == 5


def test_an_exported_file_passes_every_check_without_a_server(
    made: Made, tmp_path: Path
) -> None:
    nowhere = Lethe(tmp_path / "nothing", LETHE_TRUSTED_KEYS=made.path("trusted.pub"))
    offline = ("audit", "--bundle", made.path("late"), "--strict", "--data", str(made.rows),
               "--id", "id", "--deleted", made.path("gone.txt"), "--checkpoint")  # fmt: skip
    answer = nowhere(*offline, made.path("early.seen"))

    assert "FAILED" not in answer.out
    assert "NOT CHECKED" not in answer.out
    assert "no check failed: 9 checks, 0 failed" in answer.out
    assert all(len(line) <= 80 for line in answer.out.splitlines())
    assert not (tmp_path / "nothing").exists()
    assert json.loads(Path(made.path("early.seen")).read_text())["version"] == 5


def test_the_rows_of_another_list_do_not_pass(
    made: Made, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    (tmp_path / "gone").write_text("\n".join(["u0", *GONE[1:]]))
    code, document, _ = audited(
        capsys, "--bundle", made.path("late"), "--data", str(made.rows), "--id", "id",
        "--deleted", str(tmp_path / "gone"),
    )  # fmt: skip

    assert code == 1
    assert failed(document) == {"bound"}


def tried(
    made: Made, capsys: pytest.CaptureFixture[str], path: Path, forgery: Forgery, *more: str
) -> None:
    bundle = Bundle.read(Path(made.path("late")))
    sound = bundle.copy()
    forgery.forge(bundle)
    assert bundle.lines != sound.lines, f"{forgery.name}: nothing was forged"
    bundle.write(path)
    code, document, errors = audited(capsys, "--bundle", str(path), *more)
    assert code == 1, forgery.name
    assert errors == "", forgery.name
    assert forgery.check in failed(document), f"{forgery.name}: {document['checks']}"


def test_every_forgery_is_refused(
    made: Made, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    trust = ("--trust", made.path("trusted.pub"))
    seen = ("--checkpoint", made.path("late.seen"))
    refused = 0
    for forgery in SIGNED_OR_NOT:
        tried(made, capsys, tmp_path / "forged", forgery)
        tried(made, capsys, tmp_path / "forged", forgery, *trust)
        refused += 2
    for forgery in SIGNED:
        tried(made, capsys, tmp_path / "forged", forgery, *trust)
        refused += 1
    for forgery in SEEN:
        tried(made, capsys, tmp_path / "forged", forgery, *seen)
        refused += 1

    print(f"{refused} forgeries, all refused")
    assert refused == 2 * len(SIGNED_OR_NOT) + len(SIGNED) + len(SEEN) >= 80


def test_every_damaged_file_is_refused_in_one_line(
    made: Made, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    loose, path = tmp_path / "loose", tmp_path / "damaged"
    Bundle.read(Path(made.path("late"))).write(loose)
    for name, damage in UNREADABLE:
        path.write_bytes(damage(loose.read_bytes()))
        assert path.read_bytes() != loose.read_bytes(), f"{name}: nothing was damaged"
        code, document, errors = audited(capsys, "--bundle", str(path))
        assert code == 2, name
        assert len(errors.splitlines()) == 1, name
        assert document["error"]["code"] == "INVALID_DATA", name


def test_a_line_of_a_billion_bytes_is_not_read(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    path = tmp_path / "sparse"
    with path.open("wb") as file:
        file.truncate(10**9)
    code, document, _ = audited(capsys, "--bundle", str(path))

    assert code == 2
    assert "is longer than 4194304 bytes" in document["error"]["message"]


def test_a_rollback_and_a_fork_that_are_signed_well_are_seen_by_who_remembers(
    made: Made, capsys: pytest.CaptureFixture[str]
) -> None:
    """Both are real: a copy of the store went another way, with the same key."""
    trust = ("--trust", made.path("trusted.pub"))
    for name in ("early", "fork"):
        code, document, _ = audited(capsys, "--bundle", made.path(name), *trust)
        assert (code, failed(document)) == (0, set()), name
        digest = document["digest"]
        seen = ("--checkpoint", made.path("late.seen"))
        code, document, _ = audited(capsys, "--bundle", made.path(name), *trust, *seen)
        assert (code, failed(document)) == (1, {"checkpoint"}), name

    since = ("--since", f"3:{digest}")
    code, document, _ = audited(capsys, "--bundle", made.path("late"), *since)
    assert (code, failed(document)) == (1, {"checkpoint"})


def test_keys_that_only_the_file_names_prove_nothing(
    made: Made, capsys: pytest.CaptureFixture[str]
) -> None:
    code, document, _ = audited(capsys, "--bundle", made.path("late"))

    results = {one["check"]: one for one in document["checks"]}
    assert code == 0
    assert results["signatures"]["result"] == "NOT CHECKED"
    assert "name those that you trust" in results["signatures"]["detail"]
