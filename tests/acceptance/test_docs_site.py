"""The docs build as a site whose links lead somewhere, and which loads nothing from elsewhere."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

from tests.support.servers import ROOT


def test_the_docs_build_as_a_site_of_their_own(tmp_path: Path) -> None:
    shutil.copytree(ROOT / "docs", tmp_path / "docs")
    shutil.copy(ROOT / "docs" / "zensical.toml", tmp_path)
    build = [str(Path(sys.executable).with_name("zensical")), "build", "--strict"]

    done = subprocess.run(build, cwd=tmp_path, capture_output=True, text=True, check=False)

    assert done.returncode == 0, done.stdout + done.stderr
    pages = list((tmp_path / "site").rglob("*.html"))
    assert len(pages) > 30
    for page in pages:
        text = page.read_text(encoding="utf-8")
        loaded = re.findall(r"<(?:script|img|iframe|source)[^>]+src=\"?(https?:[^\"> ]+)", text)
        loaded += re.findall(r"<link[^>]+rel=\"?stylesheet\"?[^>]+href=\"?(https?:[^\"> ]+)", text)
        assert loaded == [], page.name


def test_every_page_is_in_the_navigation() -> None:
    navigation = (ROOT / "docs" / "zensical.toml").read_text(encoding="utf-8")
    for page in (ROOT / "docs").rglob("*.md"):
        assert f'"{page.relative_to(ROOT / "docs")}"' in navigation
