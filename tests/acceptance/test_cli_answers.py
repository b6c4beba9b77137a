"""What the command says when the answer is no: exit codes, one line, and no secrets."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from lethe.consumers.service.embedded_valkey import EmbeddedValkey
from tests.support.command import PROGRAM, Answer, Lethe
from tests.support.training import write

# One worker runs the file: its tests share servers, and some build on those before.
pytestmark = [pytest.mark.redis, pytest.mark.xdist_group("test_cli_answers")]

FIT = ("--id", "id", "--target", "y", "--kind", "logistic")


@pytest.fixture(scope="module")
def lethe(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lethe]:
    with EmbeddedValkey(tmp_path_factory.mktemp("answers")) as server:
        yield Lethe(server.data_dir)


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(write(tmp_path_factory.mktemp("files") / "rows.parquet", logistic=True))


def one_line(answer: Answer) -> str:
    """Return the message, which must be the only line."""
    # On a busy machine a stage takes over a second, and is logged.
    lines = [line for line in answer.err.splitlines() if "action=progress" not in line]
    assert len(lines) == 1, answer.err
    assert lines[0].startswith("lethe: ")
    return lines[0]


def test_help_answers_at_once() -> None:
    """It waits for neither NumPy nor the servers' clients."""
    done = subprocess.run([PROGRAM, "--help"], capture_output=True, text=True, check=True)
    assert re.search(r"register +Fit a model from a file and publish it\.", done.stdout)
    look = "import sys, lethe.consumers.cli.main; print(*(m for m in sys.modules if '.' not in m))"
    loaded = subprocess.run(
        [sys.executable, "-c", look], capture_output=True, text=True, check=True
    )
    slow = {"numpy", "scipy", "kafka", "redis", "pydantic", "cryptography"}
    assert not slow & set(loaded.stdout.split())


def test_wrong_usage_is_2_and_says_how(lethe: Lethe) -> None:
    answer = lethe("refresh", "--json", code=2)

    assert one_line(answer) == "lethe: give a MODEL, or --due; see `lethe refresh --help`"
    assert answer.document == {"error": {"code": "USAGE", "message": "give a MODEL, or --due"}}


def test_an_unknown_model_is_2(lethe: Lethe) -> None:
    answer = lethe("status", "nobody", "--json", code=2)

    assert "model 'nobody' is not registered" in one_line(answer)
    assert answer.document["error"]["code"] == "UNKNOWN_MODEL"


def test_a_model_exists_once_and_replace_publishes_its_next_version(
    lethe: Lethe, data: str
) -> None:
    register = ("register", "twice", "--data", data, *FIT, "--error-budget", "0.5")
    lethe(*register, "--ridge", "1")
    again = lethe(*register, "--ridge", "1", code=2)
    lethe("delete", "twice", "--row", "u1", "u2")
    lethe("work", "--until-idle")
    replaced = lethe(*register, "--ridge", "2", "--replace", "--json").document

    assert "--replace" in one_line(again)
    assert (replaced["version"], replaced["generation"]) == (2, 1)
    assert (replaced["rows_live"], replaced["rows_left_out"]) == (238, 2)


def test_a_bad_line_of_the_file_is_named(lethe: Lethe, tmp_path: Path) -> None:
    path = write(tmp_path / "rows.csv", logistic=True)
    lines = path.read_text().splitlines()
    lines[100] = lines[100].replace(",", ",x", 3)
    path.write_text("\n".join(lines))

    answer = lethe("register", "bad", "--data", str(path), *FIT, "--ridge", "1", code=2)

    assert "2 columns cannot be used: 'a': 1 value is text" in one_line(answer)
    assert "(first: line 101)" in one_line(answer)


def test_a_receipt_that_does_not_come_is_1(lethe: Lethe) -> None:
    answer = lethe("delete", "nobody", "--row", "u1", "--wait", "0.2", "--json", code=1)

    assert answer.document["error"]["code"] == "NO_RECEIPT"
    assert "lethe work" in one_line(answer)


def test_a_server_that_is_not_there_is_3_and_its_password_is_not_printed(lethe: Lethe) -> None:
    answer = lethe("status", "--redis", "redis://user:secret@127.0.0.1:1/0", "--json", code=3)

    assert "127.0.0.1:1 cannot be reached" in one_line(answer)
    assert answer.document["error"]["code"] == "STORE_UNAVAILABLE"
    assert "secret" not in answer.err + answer.out


def test_check_names_the_server_that_is_not_there(lethe: Lethe) -> None:
    answer = lethe("check", "--redis", "redis://user:secret@127.0.0.1:1/0", code=1)

    assert "FAIL  store: the store at 127.0.0.1:1 cannot be reached" in answer.out
    assert "secret" not in answer.err + answer.out


def test_a_reader_that_leaves_early_is_no_error(lethe: Lethe) -> None:
    command = f"set -o pipefail; {PROGRAM} check | head -c 1; echo ' left with' $?"
    done = subprocess.run(
        ["bash", "-c", command], env=lethe.environment, capture_output=True, text=True, check=True
    )

    assert done.stderr == ""
    assert done.stdout.startswith("O")


def test_targets_that_are_all_equal_are_a_warning_on_stderr(lethe: Lethe, tmp_path: Path) -> None:
    rows = tmp_path / "equal.csv"
    rows.write_text("\n".join(["id,x,y", *(f"r{i},{i},1" for i in range(20))]))
    done = lethe("register", "flat", "--data", str(rows), "--id", "id", "--target", "y",
                 "--kind", "logistic", "--ridge", "1")  # fmt: skip
    warning = "all targets are equal: the intercept is penalised like the features"
    assert f"lethe: warning: {warning}" in one_line(done)
    assert warning not in done.out


def test_a_fit_at_its_limits_is_a_warning_and_one_past_them_is_2(
    lethe: Lethe, tmp_path: Path
) -> None:
    rng = np.random.default_rng(0)
    income, rate, noise = rng.lognormal(11, 0.5, 300), 0.01 * rng.random(300), rng.random(300)
    lines = [f"r{i},{income[i]},{rate[i]},{income[i] / 1e4 + noise[i]}" for i in range(300)]
    rows = tmp_path / "unscaled.csv"
    rows.write_text("\n".join(["id,income,rate,y", *lines]))
    fit = ("register", "steep", "--data", str(rows), "--id", "id", "--target", "y",
           "--kind", "linear", "--ridge", "1", "--no-exact-sums", "--json")  # fmt: skip

    # The fit is correctly rounded: half a unit in the last place is what no budget can undercut.
    refused = lethe(*fit, "--error-budget", "1e-17", code=2)
    assert "bring the features to a similar scale, raise the ridge" in one_line(refused)
    assert refused.document["error"]["code"] == "INVALID_DATA"
    accepted = lethe(*fit)
    assert one_line(accepted).startswith("lethe: warning: the data's condition number")
    assert accepted.document["version"] == 0
