"""The lines that docs/scikit-learn.md shows: they end with a deletion that a refit confirms."""

from __future__ import annotations

import runpy
from pathlib import Path

from tests.support.servers import ROOT


def test_the_lines_of_the_page_run(tmp_path: Path) -> None:
    text = (ROOT / "docs" / "scikit-learn.md").read_text(encoding="utf-8")
    lines = [line[4:] for line in text.splitlines() if line.startswith("    ")]
    script = tmp_path / "page.py"
    script.write_text("\n".join(lines))
    names = runpy.run_path(str(script))
    assert len(names["model"].live_ids) == 440
