"""``lethe insert`` and ``lethe correct`` with rows that a model has no place for, as processes."""

from __future__ import annotations

from pathlib import Path

import pytest

from lethe.consumers.service.embedded_valkey import EmbeddedValkey
from tests.support.command import Within

pytestmark = [pytest.mark.redis, pytest.mark.xdist_group("test_cli_unplaced")]

COLUMNS = (
    '[columns.age]\nstep = "numeric"\n[columns.town]\nstep = "one-hot"\n'
    '[columns.log_age]\nstep = "numeric"\nof = "log1p(age)"\n'
)


def test_a_row_without_a_place_is_named_and_the_others_are_sent(tmp_path: Path) -> None:
    rows = [f"u{i},{30 + i % 11},{('Ulm', 'Bonn')[i % 2]},{i % 5}" for i in range(40)]
    files = {
        "rows.csv": rows,
        "new.csv": ["n0,41,Ulm,1.5", "n1,40,Kiel,1", "n2,,Bonn,1", "n3,50,Bonn,2.5"],
        "none.csv": ["n1,40,Kiel,1"],
        "better.csv": ["u1,33,Ulm,2", "u2,33,Kiel,2"],
    }
    for name, lines in files.items():
        (tmp_path / name).write_text("\n".join(["id,age,town,y", *lines, ""]))
    (tmp_path / "columns.toml").write_text(COLUMNS)
    fit = ("--target", "y", "--kind", "linear", "--ridge", "1", "--preprocess")
    with EmbeddedValkey(tmp_path / "valkey") as server:
        lethe = Within(server.data_dir)
        data = ("m", "--id", "id", "--data")
        lethe("register", *data, str(tmp_path / "rows.csv"), *fit, str(tmp_path / "columns.toml"))
        strict = lethe("insert", *data, str(tmp_path / "new.csv"), "--strict", code=2)
        nobody = lethe("insert", *data, str(tmp_path / "none.csv"), code=2)
        sent = lethe("insert", *data, str(tmp_path / "new.csv"), "--json", code=1)
        better = lethe("correct", *data, str(tmp_path / "better.csv"), code=1)
        lethe("work", "--until-idle")
        lethe("verify", "m")
        rows_live = lethe("status", "m", "--json").document["rows_live"]
    kiel = "row 'n1', column 'town': no row had 'Kiel' when the model was registered"
    assert kiel in strict.err
    assert "(2 rows in all); nothing was sent (--strict)" in strict.err
    assert kiel in nobody.err
    assert nobody.err.rstrip().endswith("; nothing was sent")
    assert kiel in sent.err
    assert "row 'n2', column 'age': no row had a missing value" in sent.err
    assert "2 rows of" in sent.err
    assert len(sent.document["request_ids"]) == 1
    assert "row 'u2', column 'town': no row had 'Kiel'" in better.err
    assert rows_live == 42
