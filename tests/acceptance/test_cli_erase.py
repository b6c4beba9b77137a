"""``lethe erase`` as a process: a person leaves two models, stays out, and may come back."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from lethe.consumers.service.embedded_valkey import EmbeddedValkey
from tests.support.command import Lethe
from tests.support.training import table

pytestmark = [pytest.mark.redis, pytest.mark.xdist_group("test_cli_erase")]

FIT = ("--id", "id", "--target", "y", "--kind", "linear", "--ridge", "1")


@pytest.fixture(scope="module")
def rows(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str, int]:
    """Return a file, a household in it, and how many rows that has."""
    made: pa.Table = table(logistic=False)
    path = tmp_path_factory.mktemp("rows") / "rows.parquet"
    pq.write_table(made, path)
    counts: dict[str, int] = {}
    for household in made["household"].to_pylist():
        counts[household] = counts.get(household, 0) + 1
    household = max(counts, key=lambda name: counts[name])
    return path, str(household), counts[household]


@pytest.fixture
def lethe(tmp_path: Path) -> Iterator[Lethe]:
    with EmbeddedValkey(tmp_path / "valkey") as server:
        yield Lethe(server.data_dir)


def test_a_person_leaves_every_model_and_stays_out_until_it_is_lifted(
    lethe: Lethe, rows: tuple[Path, str, int]
) -> None:
    path, household, count = rows
    file = ("--data", str(path), *FIT)
    new = path.with_name("new.parquet")
    theirs = pq.read_table(path, filters=[("household", "=", household)]).slice(0, 1)
    pq.write_table(theirs.set_column(0, "id", pa.array(["new"])), new)
    whose = ("--id", "id", "--subject", "household")
    insert = ("insert", "churn", "--data", str(new), *whose, "--wait=120", "--json")
    for model in ("churn", "risk"):
        lethe("register", model, *file, "--subject", "household")
    with lethe.working() as worker:
        told = lethe("erase", household, "--wait", "120", "--erasure-id", "e-1", "--json").document
        again = lethe("erase", household, "--wait", "120", "--erasure-id", "e-1", "--json").document
        nobody = lethe("erase", "nobody", "--wait=120")
        later = lethe("register", "later", *file, "--subject", "household")
        refused = lethe(*insert, code=1).document
        lifted = lethe("erase", household, "--lift", "--wait=120")
        back = lethe("register", "back", *file, "--subject", "household", "--json").document
        inserted = lethe(*insert).document
        worker.terminate()
        worker.communicate(timeout=120)
    assert (told["status"], told["complete"], told["rows_deleted"]) == ("COMPLETE", True, 2 * count)
    assert [model["model_id"] for model in told["models"]] == ["churn", "risk"]
    assert again == told
    assert "no model knows this subject: is it spelt as in the training data?" in nobody.out
    assert f"left out: {count} rows of erased subjects" in later.out
    assert f"\n{back['subjects'] - 1} subjects\n" in later.out
    assert "may be registered and inserted again" in lifted.out
    assert [receipt["code"] for receipt in refused] == ["SUBJECT_ERASED"]
    assert [receipt["rows_inserted"] for receipt in inserted] == [1]
    assert back["rows_of_erased_subjects"] == 0
    for model in ("churn", "risk", "back"):
        lethe("verify", model)
        lethe("audit", model)
    lethe("check")


def test_a_model_without_subjects_makes_it_a_negative_answer(
    lethe: Lethe, rows: tuple[Path, str, int]
) -> None:
    path, household, _ = rows
    lethe("register", "blind", "--data", str(path), *FIT)
    lethe("erase", household)
    lethe("work", "--until-idle")
    with lethe.working() as worker:
        answer = lethe("erase", household, "--wait=120", code=1)
        worker.terminate()
        worker.communicate(timeout=120)
    assert "INCOMPLETE" in answer.out
    assert "blind: NOT_COVERED; registered without --subject" in answer.out


def test_rows_that_no_erasure_would_reach_are_counted_or_refused(
    lethe: Lethe, tmp_path: Path
) -> None:
    """Rows without a subject at registration; an insert that does not say whose its rows are."""
    made = table(logistic=False)
    at = made.column_names.index("household")
    households = made["household"].to_pylist()
    made = made.set_column(at, "household", pa.array(["", *households[1:]]))
    path = tmp_path / "rows.parquet"
    pq.write_table(made, path)
    registered = lethe("register", "m", "--data", str(path), *FIT, "--subject", "household")
    assert "1 row without a subject: no erasure of a person deletes them" in registered.out
    refused = lethe("insert", "m", "--data", str(path), "--id", "id", code=2)
    assert "name the column of subjects with --subject" in refused.err


def test_mistakes_are_said_in_a_line(lethe: Lethe, rows: tuple[Path, str, int]) -> None:
    path, household, _ = rows
    file = ("--data", str(path), *FIT)
    assert "--namespace requires --subject" in (
        lethe("register", "m", *file, "--namespace", "crm", code=2).err
    )
    assert "topics lethe.erasures" in lethe("erase", household, code=2).err
    lethe("register", "m", *file, "--subject", "household", "--namespace", "crm")
    assert "subject_id" in lethe("erase", "", code=2).err
    assert "erasure_id" in lethe("erase", household, "--erasure-id", "x" * 129, code=2).err
    assert "no final receipt of erasure" in lethe("erase", household, "--wait", "1", code=1).err


def test_a_file_of_persons_is_erased_by_one_command(
    lethe: Lethe, rows: tuple[Path, str, int], tmp_path: Path
) -> None:
    """As quick as over HTTP: one process and one batch of messages, whatever their number."""
    path, _, _ = rows
    lethe("register", "churn", "--data", str(path), *FIT, "--subject", "household")
    persons = tmp_path / "closed.txt"
    persons.write_text("h1\nh2\tticket-7\n\nh1\nnobody\n", encoding="utf-8")

    sent = lethe("erase", "--file", str(persons), "--erasure-id", "batch").out.splitlines()
    lethe("work", "--until-idle")
    with lethe.working() as worker:
        many = tmp_path / "many.txt"
        many.write_text("".join(f"h{i}\n" for i in range(3, 63)), encoding="utf-8")
        told = lethe("erase", "--file", str(many), "--wait=120", "--json").document
        worker.terminate()
        worker.communicate(timeout=120)

    assert sent == [
        "erasure batch-1 sent: h1",
        "erasure ticket-7 sent: h2",
        "erasure batch-3 sent: nobody",
    ]
    listed = lethe("erasures", "--limit", "100", "--json").document["erasures"]
    assert len(listed) == 63
    assert {one["status"] for one in listed} == {"COMPLETE"}
    assert {one["erasure_id"] for one in told} < {one["erasure_id"] for one in listed}
    assert [one["rows_deleted"] for one in told] == [3] * 60


def test_a_file_with_a_bad_line_sends_nothing(
    lethe: Lethe, rows: tuple[Path, str, int], tmp_path: Path
) -> None:
    path, _, _ = rows
    lethe("register", "churn", "--data", str(path), *FIT, "--subject", "household")
    persons = tmp_path / "closed.txt"
    persons.write_text("h1\n" + "x" * 129 + "\n", encoding="utf-8")
    assert "closed.txt, subject 2: subject_id" in lethe("erase", "--file", str(persons), code=2).err
    persons.write_text("\n", encoding="utf-8")
    assert "names no subject" in lethe("erase", "--file", str(persons), code=2).err
    assert "give a SUBJECT, or --file" in lethe("erase", code=2).err
    assert "no erasure" in lethe("erasures").out
