"""`study.py certificates`: a quick run fills every table, and the page says what was measured."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.servers import ROOT

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]


def _certificates(*options: str) -> str:
    command = [sys.executable, str(ROOT / "scripts" / "study.py"), "certificates", *options]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


@pytest.mark.parametrize(
    ("part", "line"),
    [("certificates", "| fresh |"), ("sentinels", "| all |")],
)
def test_a_quick_run_of_a_part_prints_its_tables(part: str, line: str) -> None:
    assert line in _certificates("--quick", "--only", part)


def test_the_page_in_the_docs_is_rendered_from_the_results(tmp_path: Path) -> None:
    page = tmp_path / "certificates.md"

    _certificates("--render", "--page", str(page))

    assert page.read_text() == (ROOT / "docs" / "certificates.md").read_text()
    assert (tmp_path / "images" / "certificates.png").stat().st_size > 5000
