"""`scripts/last_layer.py`: a quick run deletes from heads, and the page says what was measured."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from harness.results import where
from heads.features import EXTRACTORS, split
from heads.page import tables
from last_layer import QUICK, measure
from tests.support.servers import ROOT

pytestmark = [
    pytest.mark.slow,
    pytest.mark.redis,
    pytest.mark.timeout(300),
    pytest.mark.xdist_group("last_layer"),  # what is measured serves them all
]
SEED = 7


@pytest.fixture(scope="module")
def run() -> dict[str, Any]:
    return measure(QUICK, SEED)


def test_deletion_brings_every_head_nearer_to_its_retraining(run: dict[str, Any]) -> None:
    assert len(run["heads"]) == 4
    for record in run["heads"]:
        assert record["distance_after"] < record["distance_before"] / 3
        assert record["distance_refreshed"] <= max(record["distance_after"], 1e-6)
        assert record["distance_refreshed"] < 0.01


def test_the_commands_bring_the_head_within_its_bound_of_retraining(run: dict[str, Any]) -> None:
    (record,) = run["service"]
    assert record["within_bound"]
    assert record["rows_live"] == QUICK.training - QUICK.deleted
    assert record["distance"] < 0.01


def test_random_features_keep_nothing_of_a_row_and_trained_ones_do(run: dict[str, Any]) -> None:
    drawn, trained = (where(run["heads"], features=kind) for kind in ("random", "hidden"))
    for record in drawn:
        assert record["loss_deleted_head"] == record["loss_deleted_all"]
        assert record["same_answers"] == 1
    kept, retrained = (
        np.mean([record[f"loss_deleted_{which}"] for record in trained])
        for which in ("head", "all")
    )
    assert kept < 0.9 * retrained


def test_the_random_layer_is_drawn_without_looking_at_images() -> None:
    train, held_out = split(QUICK.training, SEED)
    one, other = (EXTRACTORS["random"](images, 10, SEED) for images in (train, held_out))
    assert np.array_equal(one(held_out.pixels), other(held_out.pixels))


def test_a_run_fills_every_table(run: dict[str, Any]) -> None:
    made = tables(run)
    assert list(made) == ["left", "head", "service"]
    assert "nan" not in "".join(made.values())


def test_the_tables_of_the_page_in_the_docs_are_rendered_from_the_results(tmp_path: Path) -> None:
    page, docs = tmp_path / "last-layer.md", ROOT / "docs" / "last-layer.md"
    marked = re.compile(r"(<!-- table: \w+ -->\n).*?(<!-- end of table -->)", re.DOTALL)
    emptied, tables_of_page = marked.subn(r"\1\2", docs.read_text(encoding="utf-8"))
    page.write_text(emptied, encoding="utf-8")

    command = [sys.executable, str(ROOT / "scripts" / "last_layer.py")]
    subprocess.run([*command, "--render", "--page", str(page)], check=True, capture_output=True)

    assert tables_of_page == 3
    assert page.read_text(encoding="utf-8") == docs.read_text(encoding="utf-8")
