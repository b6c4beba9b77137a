"""The lines of Python that pages show: they end with a deletion that a refit confirms."""

from __future__ import annotations

import re
import runpy
from pathlib import Path

import pytest

from tests.support.servers import ROOT


@pytest.mark.parametrize(
    ("page", "begins", "live"),
    [("docs/scikit-learn.md", "", 440), ("README.md", "import numpy", 998)],
)
def test_the_lines_of_the_page_run(tmp_path: Path, page: str, begins: str, live: int) -> None:
    text = (ROOT / page).read_text(encoding="utf-8")
    blocks = text[text.index(f"    {begins}") :]
    if begins:  # the page has commands as well: this block alone, which has an empty line
        blocks = re.split(r"\n\n(?! {4})", blocks)[0]
    lines = [line[4:] for line in blocks.splitlines() if line.startswith("    ")]
    script = tmp_path / "page.py"
    script.write_text("\n".join(lines))
    names = runpy.run_path(str(script))
    assert len(names["model"].live_ids) == live
