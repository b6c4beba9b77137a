"""`scripts/evaluate.py`: a quick run attacks deletions, and the rivals do what their papers say."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import evaluate
from evaluate import QUICK, measure
from evaluation.attacks import klom, u_lira
from evaluation.data import DATA
from evaluation.figures import draw
from evaluation.page import tables, verdicts
from evaluation.rivals.descent import Descent
from evaluation.rivals.hf_ocu import HessianFree
from evaluation.rivals.priu import Provenance
from evaluation.rivals.sisa import Sharded
from harness.results import Unfinished, where
from tests.support.servers import ROOT

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(300),
    pytest.mark.xdist_group("evaluate"),  # what is measured serves them all
]
SEED = 7


@pytest.fixture(scope="module")
def records() -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = measure(QUICK, SEED)["records"]
    return found


def test_u_lira_is_a_coin_for_equal_models_and_certain_for_models_far_apart() -> None:
    rng = np.random.default_rng(SEED)
    margins, others = rng.standard_normal((2, 400, 3))
    assert u_lira(margins, margins, rng).value == 0.5
    same = u_lira(margins, others, rng)
    assert same.low <= 0.5 <= same.high
    assert u_lira(margins + 20, others, rng).value == 1.0


def test_u_lira_finds_the_accuracy_of_the_best_test_between_two_normals() -> None:
    rng = np.random.default_rng(SEED)
    one, other = rng.standard_normal((2, 20_000, 1))
    found = u_lira(one + 1, other, rng)
    assert found.value == pytest.approx(0.6915, abs=0.01)  # Phi(1/2)


def test_klom_is_the_divergence_of_two_normals() -> None:
    rng = np.random.default_rng(SEED)
    one, other = rng.standard_normal((2, 200_000, 1))
    assert klom(one, one)[0] == 0
    assert klom(one + 1, other)[0] == pytest.approx(0.5, abs=0.05)


def test_only_the_polished_model_passes_for_a_retrained_one(records: list[dict[str, Any]]) -> None:
    paired = [line for line in verdicts(records) if "paired" in line]
    assert len(paired) == 4
    assert all(line.startswith("met") for line in paired)
    for method in ("none", "influence", "pru", "exact"):
        (found,) = where(
            records, part="shadows", data="breast cancer", rows="deleted", method=method
        )
        assert found["paired_low"] > 0.55


def test_a_linear_row_is_read_off_two_versions_and_priced_noise_hides_it(
    records: list[dict[str, Any]],
) -> None:
    found = where(records, part="reconstruction", data="diabetes", k=1)
    cosines = {one["noise"]: one["cosine"] for one in found}
    assert cosines["none"] > 0.999
    assert cosines["output"] > 0.999  # it covers the error left, not the deletion
    assert cosines["priced"] < 0.9


def test_an_owner_of_as_many_rows_as_columns_learns_the_gram_matrix(
    records: list[dict[str, Any]],
) -> None:
    for one in where(records, part="owner", method="retrain"):
        learned = one["owned"] >= one["columns"]
        assert (one["gram_error"] < 1e-6) == learned
        assert (one["cosine_of_a_stranger"] > 0.9999) == learned


@pytest.mark.parametrize("k", [1, 10])
def test_the_published_methods_come_near_their_own_retraining(k: int) -> None:
    table = DATA["breast cancer"](np.random.default_rng(SEED))
    rows, gone = np.arange(len(table.y)), np.arange(k)
    descent = Descent.of(table, rows, 20, 64, SEED)
    goal, before = descent.train(table, gone), descent.train(table)
    free, priu = HessianFree.train(table, descent), Provenance.train(table, descent)
    assert np.allclose(free.theta, before, rtol=0, atol=1e-12)
    none = np.arange(0)
    assert np.allclose(priu.delete(none), before, rtol=0, atol=1e-9)
    distance = np.linalg.norm(before - goal)
    assert np.linalg.norm(free.delete(gone) - goal) < 0.2 * distance
    assert np.linalg.norm(priu.delete(gone) - goal) < 0.2 * distance


def test_sisa_is_its_own_retraining() -> None:
    table = DATA["breast cancer"](np.random.default_rng(SEED))
    sharded = Sharded.train(table, np.arange(len(table.y)), SEED)
    gone = np.arange(3)
    assert np.allclose(sharded.delete(gone).thetas, sharded.retrained(gone).thetas, atol=1e-6)


def test_an_interrupted_run_goes_on_where_it_was(tmp_path: Path) -> None:
    file = tmp_path / "unfinished.jsonl"
    plan = replace(QUICK, attacked=("diabetes",), compared={})
    kept = Unfinished(file, "plan")
    kept.add("shadows diabetes", [{"part": "shadows", "data": "kept"}])
    found = measure(plan, SEED, Unfinished(file, "plan"))["records"]
    assert where(found, part="shadows") == [{"part": "shadows", "data": "kept"}]
    assert Unfinished(file, "plan").get("owner diabetes") == where(found, part="owner")


def test_a_run_fills_the_tables_and_the_picture(
    records: list[dict[str, Any]], tmp_path: Path
) -> None:
    made = tables(records)
    assert list(made) == ["attacks", "compared"]
    assert "nan" not in "".join(made.values())
    draw(records, tmp_path / "evaluation.png")
    assert (tmp_path / "evaluation.png").stat().st_size > 0


def test_the_page_in_the_docs_is_rendered_from_the_results(tmp_path: Path) -> None:
    page, docs = tmp_path / "evaluation.md", ROOT / "docs" / "evaluation.md"
    text = docs.read_text(encoding="utf-8")
    page.write_text(text.replace("| polished |", "| stale |"), encoding="utf-8")
    command = [sys.executable, str(ROOT / "scripts" / "evaluate.py"), "--render"]
    places = ["--page", str(page), "--images", str(tmp_path)]
    subprocess.run([*command, *places], check=True, capture_output=True)
    assert page.read_text(encoding="utf-8") == text


def test_a_quick_run_writes_nothing(
    records: list[dict[str, Any]],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(evaluate, "measure", lambda *_: {"records": records})
    options = ["--quick", "--results", str(tmp_path / "results.json")]
    assert evaluate.main([*options, "--page", str(tmp_path / "page.md")]) == 0
    assert "met: U-LiRA" in capsys.readouterr().out
    assert list(tmp_path.iterdir()) == []
