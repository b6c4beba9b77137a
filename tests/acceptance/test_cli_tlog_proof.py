"""`lethe receipt --format tlog-proof`: what others' verifiers of transparency logs accept."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import closing
from http.client import HTTPConnection
from pathlib import Path

import pytest

from lethe.consumers.contract.tlog import MEDIA_TYPE
from tests.acceptance.test_console import serving
from tests.support import sumdb
from tests.support.audited import Made, real_run
from tests.support.command import Lethe, Within
from tests.support.witnesses import WITNESSES, cosigned

pytestmark = [pytest.mark.redis, pytest.mark.xdist_group("test_cli_tlog_proof")]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Made]:
    with real_run(tmp_path_factory.mktemp("audit")) as made:
        yield made


def test_gos_own_verifier_accepts_a_proof_and_refuses_it_with_any_line_changed(
    made: Made, tmp_path: Path
) -> None:
    program = sumdb.built(tmp_path)
    key = made.lethe("key", "show", "--log", "churn").out.strip()

    def verified(proof: str, key: str = key) -> str | None:
        done = subprocess.run(
            [program, key], input=proof.encode(), capture_output=True, check=False
        )
        assert done.returncode in (0, 1), done.stderr
        return done.stdout.decode() if done.returncode == 0 else None

    for request in ("r1", "r4", "r5", "r6"):  # r4 was rejected: that is an entry, too
        proof = made.lethe("receipt", request, "--format", "tlog-proof").out
        answer = verified(proof)
        assert answer is not None
        assert f'"request_id":"{request}"' in answer
        lines = proof.split("\n")
        for number, line in enumerate(lines[:-1]):
            other = ("B" if line[-3:-2] != "B" else "C") if len(line) > 3 else "7"
            changed = line[:-3] + other + line[-2:] if len(line) > 3 else line + other
            text = "\n".join([*lines[:number], changed, *lines[number + 1 :]])
            assert verified(text) is None, (number, line, changed)
        others = made.lethe("key", "show", "--log", "another").out.strip()
        assert verified(proof, others) is None


def head_of(made: Made, request: str) -> str:
    """Return the checkpoint in a proof: it follows the first empty line."""
    return made.lethe("receipt", request, "--format", "tlog-proof").out.partition("\n\n")[2]


def test_gos_own_verifier_accepts_the_cosignatures_of_witnesses_in_a_proof(
    made: Made, tmp_path: Path
) -> None:
    """And the proof is of the tree that they have seen, which may be a later one."""
    program = sumdb.built(tmp_path / "go")
    key = made.lethe("key", "show", "--log", "churn").out.strip()
    seen, file = cosigned(head_of(made, "r6"), 1, 3), tmp_path / "seen"
    file.write_text(seen)
    options = ("--format", "tlog-proof", "--cosigned", str(file))
    proof = made.lethe("receipt", "r1", *options).out

    def verified(*witnesses: int, text: str = proof) -> bool:
        keys = [WITNESSES[number - 1].vkey for number in witnesses]
        done = subprocess.run(
            [program, key, *keys], input=text.encode(), capture_output=True, check=False
        )
        assert done.returncode in (0, 1), done.stderr
        return done.returncode == 0

    assert proof.endswith(f"\n\n{seen}")
    assert verified(1, 3)
    assert verified(1)
    assert not verified(1, 2)
    assert not verified(1, text=proof.replace("index 0", "index 1"))
    early = cosigned(head_of(made, "r1"), 1, 3)
    file.write_text(early)
    assert "has a checkpoint of" in made.lethe("receipt", "r6", *options, code=2).err
    name, size, rest = early.split("\n", 2)
    file.write_text(f"{name}\n{int(size) - 1}\n{rest}")
    assert "does not match" in made.lethe("receipt", "r1", *options, code=1).err


def test_the_receipt_in_it_is_the_one_that_was_published(made: Made) -> None:
    document = made.lethe("receipt", "r5", "--format", "tlog-proof", "--json").document
    story = made.lethe("receipt", "r5", "--json").document
    header, _, index, *path = document["tlog_proof"].partition("\n\n")[0].split("\n")

    assert header == "c2sp.org/tlog-proof@v1"
    assert index == f"index {story['inclusion']['index']}"
    assert len(path) == len(story["inclusion"]["proof"])


def test_over_http_it_has_the_same_bytes_and_what_cannot_be_proved_is_refused(
    made: Made, tmp_path: Path
) -> None:
    def got(path: str) -> tuple[int, str, bytes]:
        with closing(HTTPConnection(url.removeprefix("http://"))) as connection:
            connection.request("GET", path, headers={"Accept": MEDIA_TYPE})
            answer = connection.getresponse()
            return answer.status, answer.headers["content-type"], answer.read()

    with serving(Lethe(made.lethe.data_dir), tmp_path / "log") as url:
        for request in ("r1", "r4", "r6"):
            printed = made.lethe("receipt", request, "--format", "tlog-proof").out
            status, kind, proof = got(f"/v1/models/churn/deletions/{request}")
            assert (status, kind, proof.decode()) == (200, MEDIA_TYPE, printed)
        problem = "application/problem+json"
        assert got("/v1/models/churn/deletions/never")[:2] == (404, problem)
        assert got("/v1/models/nothing/deletions/r1")[:2] == (404, problem)
        made.lethe("delete", "churn", "--row", "u51", "--request-id", "undecided")
        assert got("/v1/models/churn/deletions/undecided")[:2] == (406, problem)
        assert got("/v1/erasures/any")[:2] == (406, problem)


def test_a_head_that_no_trusted_key_signed_is_not_signed_again(made: Made, tmp_path: Path) -> None:
    """Whoever may write to the log could have made it."""
    made.lethe("key", "new", str(tmp_path / "other.pem"))
    other = Within(made.lethe.data_dir, LETHE_SIGNING_KEY=str(tmp_path / "other.pem"))

    answer = other("receipt", "r4", "--format", "tlog-proof", "--json", code=1)
    assert answer.document["error"]["code"] == "BROKEN_CHAIN"


def test_what_is_in_no_tree_head_has_no_proof(made: Made) -> None:
    made.lethe("delete", "churn", "--row", "u50", "--request-id", "pending")
    answer = made.lethe("receipt", "pending", "--format", "tlog-proof", "--json", code=1)
    assert answer.document["error"]["code"] == "UNKNOWN_REQUEST"
