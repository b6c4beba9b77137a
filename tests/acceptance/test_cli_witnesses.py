"""Witnesses: a reader who names them requires a quorum, and refuses another history than theirs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from tests.support.audited import Made, real_run
from tests.support.command import Within
from tests.support.erased import erased_run
from tests.support.witnesses import cosigned, policy

# One worker runs the file: its tests share servers and files.
pytestmark = [pytest.mark.redis, pytest.mark.xdist_group("test_cli_witnesses")]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Made]:
    with real_run(tmp_path_factory.mktemp("audit")) as made:
        yield made


@pytest.fixture(scope="module")
def erased(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Made]:
    with erased_run(tmp_path_factory.mktemp("erased")) as made:
        yield made


def head_of(lethe: Within, request: str, model: str) -> str:
    """Return the first tree head with a receipt, as witnesses are sent it."""
    ask = ("receipt", request, "--model", model, "--format", "tlog-proof")
    return lethe(*ask).out.partition("\n\n")[2]


def witnesses(
    made: Made, bundle: str, folder: Path, notes: Sequence[str], least: int = 2, code: int = 1
) -> tuple[str, str]:
    """Return what an audit says of the witnesses: nothing else is wrong."""
    files = [folder / f"note-{number}" for number in range(len(notes))]
    for file, note in zip(files, notes, strict=True):
        file.write_text(note)
    (folder / "policy").write_text(policy(least))
    given = [word for file in files for word in ("--cosigned", str(file))]
    trust = ("--trust", made.path("trusted.pub"), "--policy", str(folder / "policy"))
    answer = made.lethe("audit", "--bundle", bundle, *trust, *given, "--json", code=code)
    [found] = [one for one in answer.document["checks"] if one["check"] == "witnesses"]
    others = {one["result"] for one in answer.document["checks"]} - {"OK", "NOT CHECKED"}
    assert others <= {found["result"]}
    return found["result"], found["detail"]


def test_a_quorum_is_required_of_the_newest_tree_head(made: Made, tmp_path: Path) -> None:
    newest, older = (head_of(made.lethe, request, "churn") for request in ("r6", "r1"))
    for notes, least, expected in (
        ([], 2, "NOT PROVED"),
        ([newest], 2, "NOT PROVED"),
        ([cosigned(newest, 1)], 2, "NOT PROVED"),
        ([cosigned(newest, 1), cosigned(newest, 3)], 2, "NOT PROVED"),
        ([cosigned(newest, 1, 3)], 2, "OK"),
        ([cosigned(newest, 1, 3)], 3, "NOT PROVED"),
        ([cosigned(older, 1, 2, 3)], 3, "NOT PROVED"),
        ([cosigned(older, 1, 2), cosigned(newest, 2, 3)], 2, "OK"),
    ):
        code = int(expected != "OK")
        found = witnesses(made, made.path("late"), tmp_path, notes, least, code)
        assert found[0] == expected, (notes, least, found)


def test_a_fork_and_a_rollback_that_the_operator_signed_are_refused(
    made: Made, tmp_path: Path
) -> None:
    seen = cosigned(head_of(made.lethe, "r6", "churn"), 1, 2)
    damaged = seen[:-8] + ("AAAA" if seen[-8:-4] != "AAAA" else "BBBB") + seen[-4:]
    for bundle, note, said in (
        ("early", seen, "it was cut off"),
        ("fork", seen, "it was forked"),
        ("late", other_root(seen), "it was forked"),
        ("late", damaged, "does not match"),
    ):
        result, detail = witnesses(made, made.path(bundle), tmp_path, [note])
        assert result == "FAILED"
        assert said in detail


def other_root(note: str) -> str:
    """Return a checkpoint of another tree of the same size, which two witnesses have cosigned."""
    name, size, *_ = note.split("\n")
    return cosigned(f"{name}\n{size}\n{'A' * 43}=\n\n", 1, 2)


def test_an_export_carries_what_witnesses_have_cosigned(made: Made, tmp_path: Path) -> None:
    note, export = tmp_path / "seen", str(tmp_path / "export")
    note.write_text(cosigned(head_of(made.lethe, "r6", "churn"), 1, 3))
    (tmp_path / "policy").write_text(policy())
    told = ("--policy", str(tmp_path / "policy"))
    answer = made.lethe("audit", "churn", "--export", export, "--cosigned", str(note), *told)
    assert "witnesses " in answer.out
    assert witnesses(made, export, tmp_path, [], code=0)[0] == "OK"
    bare = ("audit", "--bundle", export, "--trust", made.path("trusted.pub"))
    assert "witnesses" not in made.lethe(*bare).out  # nobody is asked for them


def test_the_evidence_of_an_erasure_is_of_trees_that_witnesses_have_seen(
    erased: Made, tmp_path: Path
) -> None:
    """Here, of the tree heads of later versions than those that the erasure made."""
    shown = erased.lethe("erasures", "again", "--json").document["receipt"]["models"]
    given: list[str] = []
    for one in shown:
        model, file = one["model_id"], tmp_path / one["model_id"]
        file.write_text(cosigned(head_of(erased.lethe, one["request_ids"][0], model), 1, 2))
        given += ["--cosigned", str(file)]
    export = str(tmp_path / "export")
    erased.lethe("erasures", "gone", "--bundle", export, *given)

    assert witnesses(erased, export, tmp_path, [], code=0)[0] == "OK"
    assert witnesses(erased, export, tmp_path, [], 3)[0] == "NOT PROVED"
    assert witnesses(erased, erased.path("gone"), tmp_path, [])[0] == "NOT PROVED"
    forged = other_root((tmp_path / "linear").read_text())
    result, detail = witnesses(erased, export, tmp_path, [forged])
    assert result == "FAILED"
    assert detail.startswith("linear: ")
    assert "forked" in detail


def test_a_file_that_is_no_checkpoint_or_no_policy_is_a_usage_error(
    made: Made, tmp_path: Path
) -> None:
    (tmp_path / "bad").write_text("x\n")
    for option in ("--cosigned", "--policy"):
        ask = ("audit", "--bundle", made.path("late"), option, str(tmp_path / "bad"))
        answer = made.lethe(*ask, code=2)
        assert str(tmp_path / "bad") in answer.err
    assert made.lethe("receipt", "r1", "--cosigned", str(tmp_path / "bad"), code=2)
    assert made.lethe("erasures", "any", "--cosigned", str(tmp_path / "bad"), code=2)
