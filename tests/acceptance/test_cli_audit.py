"""`lethe audit` on a real run: everything holds, and every forgery of it is refused."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.audited import GONE, NEWEST, Made, real_run
from tests.support.bundles import Bundle, Forgery
from tests.support.command import Lethe, Within
from tests.support.forgeries import (
    FORGERIES,
    SEEN,
    SIGNED,
    SIGNED_OR_NOT,
    UNPROVED,
    UNREADABLE,
)

# One worker runs the file: its tests share servers and files.
pytestmark = [pytest.mark.redis, pytest.mark.xdist_group("test_cli_audit")]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Made]:
    with real_run(tmp_path_factory.mktemp("audit")) as made:
        yield made


@pytest.fixture
def nowhere(tmp_path: Path) -> Within:
    """The command where there is no server and no data."""
    return Within(tmp_path / "nothing")


def audited(nowhere: Within, *arguments: str, code: int) -> Any:
    """Return the document of an audit, which must end with this code and say no more."""
    answer = nowhere("audit", *arguments, "--json", code=code)
    assert len(answer.err.splitlines()) == (code == 2), answer.err
    return answer.document


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
    assert answer.document["version"] == NEWEST


def test_an_exported_file_passes_every_check_without_a_server(made: Made, tmp_path: Path) -> None:
    lethe = Lethe(tmp_path / "nothing", LETHE_TRUSTED_KEYS=made.path("trusted.pub"))
    held = ("--data", made.path("rows.parquet"), "--id", "id", "--deleted", made.path("gone.txt"))
    seen = ("--checkpoint", made.path("early.seen"))
    answer = lethe("audit", "--bundle", made.path("late"), "--strict", *held, *seen)

    assert "FAILED" not in answer.out
    assert "NOT CHECKED" not in answer.out
    assert "no check failed: 9 checks, 0 failed" in answer.out
    assert all(len(line) <= 80 for line in answer.out.splitlines())
    assert not (tmp_path / "nothing").exists()
    assert json.loads(Path(made.path("early.seen")).read_text())["version"] == NEWEST


def test_the_rows_of_another_list_do_not_pass(made: Made, nowhere: Within, tmp_path: Path) -> None:
    (tmp_path / "gone").write_text("\n".join(["u0", *GONE[1:]]))
    held = ("--data", made.path("rows.parquet"), "--id", "id", "--deleted", str(tmp_path / "gone"))
    document = audited(nowhere, "--bundle", made.path("late"), *held, code=1)

    assert failed(document) == {"bound"}


def tried(made: Made, nowhere: Within, path: Path, forgery: Forgery, *more: str) -> Any:
    bundle = Bundle.read(Path(made.path("late")))
    sound = bundle.copy()
    forgery.forge(bundle)
    assert bundle.lines != sound.lines, f"{forgery.name}: nothing was forged"
    bundle.write(path)
    return audited(nowhere, "--bundle", str(path), *more, code=1)


def test_every_forgery_is_refused(made: Made, nowhere: Within, tmp_path: Path) -> None:
    trust = ("--trust", made.path("trusted.pub"))
    seen = ("--checkpoint", made.path("late.seen"))
    forged: list[tuple[Forgery, tuple[str, ...]]] = [(forgery, ()) for forgery in SIGNED_OR_NOT]
    forged += [(forgery, trust) for forgery in (*SIGNED_OR_NOT, *SIGNED)]
    forged += [(forgery, seen) for forgery in SEEN]
    for forgery, known in forged:
        document = tried(made, nowhere, tmp_path / "forged", forgery, *known)
        assert forgery.check in failed(document), f"{forgery.name}: {document['checks']}"
        assert document["verdict"] == "REFUSED"

    assert len(forged) == FORGERIES  # docs/console.md has the figure


def test_what_no_trusted_key_vouches_for_is_not_proved_in_headline_and_exit_code(
    made: Made, nowhere: Within, tmp_path: Path
) -> None:
    trust, path = ("--trust", made.path("trusted.pub")), tmp_path / "forged"
    for forgery in UNPROVED:
        document = tried(made, nowhere, path, forgery, *trust)
        results = {one["check"]: one["result"] for one in document["checks"]}
        assert results[forgery.check] == "NOT PROVED", forgery.name
        assert (document["verdict"], document["ok"]) == ("NOT PROVED", False), forgery.name
        text = nowhere("audit", "--bundle", str(path), *trust, code=1).out
        assert text.splitlines()[-1].startswith("NOT PROVED: 8 checks, 0 failed, "), forgery.name


def test_every_damaged_file_is_refused_in_one_line(
    made: Made, nowhere: Within, tmp_path: Path
) -> None:
    loose, path = tmp_path / "loose", tmp_path / "damaged"
    Bundle.read(Path(made.path("late"))).write(loose)
    for name, damage in UNREADABLE:
        path.write_bytes(damage(loose.read_bytes()))
        assert path.read_bytes() != loose.read_bytes(), f"{name}: nothing was damaged"
        document = audited(nowhere, "--bundle", str(path), code=2)
        assert document["error"]["code"] == "INVALID_DATA", name


def test_a_line_of_a_billion_bytes_is_not_read(nowhere: Within, tmp_path: Path) -> None:
    path = tmp_path / "sparse"
    with path.open("wb") as file:
        file.truncate(10**9)
    document = audited(nowhere, "--bundle", str(path), code=2)

    assert "is longer than 4194304 bytes" in document["error"]["message"]


def test_a_rollback_and_a_fork_with_the_right_key_are_seen_by_who_remembers(
    made: Made, nowhere: Within
) -> None:
    """Both are real: a copy of the store went another way, and signed it."""
    trust = ("--trust", made.path("trusted.pub"))
    seen = ("--checkpoint", made.path("late.seen"))
    digest = ""
    for name in ("early", "fork"):
        document = audited(nowhere, "--bundle", made.path(name), *trust, code=0)
        assert failed(document) == set(), name
        digest = document["digest"]
        document = audited(nowhere, "--bundle", made.path(name), *trust, *seen, code=1)
        assert failed(document) == {"checkpoint"}, name

    since = ("--since", f"3:{digest}")
    document = audited(nowhere, "--bundle", made.path("late"), *since, code=1)
    assert failed(document) == {"checkpoint"}


def test_keys_that_only_the_file_names_prove_nothing(made: Made, nowhere: Within) -> None:
    document = audited(nowhere, "--bundle", made.path("late"), code=1)

    results = {one["check"]: one for one in document["checks"]}
    assert results["signatures"]["result"] == document["verdict"] == "NOT PROVED"
    assert "name those that you trust" in results["signatures"]["detail"]
