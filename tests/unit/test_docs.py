"""The docs point at what exists."""

from __future__ import annotations

import re
from pathlib import Path
from typing import get_args

import pytest

from lethe.consumers.contract import codes
from lethe.consumers.contract.receipt import ReceiptStatus

ROOT = Path(__file__).parents[2]
STATUSES = set(get_args(ReceiptStatus))
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\(([^)#]+)", page.read_text()):
        if not re.match(r"[a-z]+:", target):
            assert (page.parent / target).exists(), target


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_to_a_heading_lead_to_one(page: Path) -> None:
    """Where the pages are read as files, as on GitHub; `make docs` checks those of the site."""
    for target, anchor in re.findall(r"\]\(([^):#]*)#([^)]+)\)", page.read_text()):
        linked = page.parent / target if target else page
        assert anchor in anchors(linked), f"{target}#{anchor}"


def anchors(page: Path) -> set[str]:
    """Return the anchors of a page's headings, as GitHub makes them."""
    headings = re.findall(r"^#+ (.*)", page.read_text(), re.MULTILINE)
    shown = [re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading) for heading in headings]
    return {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in shown}


def present(page: Path) -> str:
    """Return a page without the sentences about a former commit: what they name is gone."""
    sentences = re.split(r"(?<=[.])\s+", page.read_text())
    return "\n".join(one for one in sentences if not re.search(r"\bcommit\s+[0-9a-f]{8}\b", one))


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_files_of_the_project_that_are_named_exist(page: Path) -> None:
    named = re.findall(
        r"`((?:engine|consumers|tests|scripts|deploy|docs|results)/[\w./-]*\w)`", present(page)
    )
    for name in named:
        assert (ROOT / name).exists(), name


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_a_constant_is_in_the_file_that_is_named_with_it(page: Path) -> None:
    named = re.findall(r"`([A-Z][A-Z_]{4,})`(?:,| in) `([\w/]+\.py)`", page.read_text())
    for constant, file in named:
        assert re.search(rf"^{constant}\b", (ROOT / file).read_text(), re.MULTILINE), constant


@pytest.mark.parametrize("page", ["guarantees", "guards"])
def test_every_test_that_proves_a_promise_exists(page: str) -> None:
    named = re.findall(r"`(tests/[\w/]+\.py)::(\w+)`", (ROOT / f"docs/{page}.md").read_text())
    assert len(named) > 10
    for file, test in named:
        assert re.search(rf"def {test}\b", (ROOT / file).read_text()), f"{file}::{test}"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_make_target_that_is_named_exists(page: Path) -> None:
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    named = re.findall(r"(?:`|^    )make ([a-z-]+)", present(page), re.MULTILINE)
    assert set(named) <= targets


def test_what_the_code_refers_to_exists() -> None:
    """Names in backticks that begin with a package of ours: docstrings outlive what they name."""
    missing = []
    for path in sorted(
        path for top in ("engine", "consumers") for path in (ROOT / top).rglob("*.py")
    ):
        named = re.findall(r"`((?:engine|consumers|tests)\.[\w.]*\w)`", path.read_text())
        missing += [f"{path.relative_to(ROOT)}: {name}" for name in named if not defined(name)]
    assert missing == []


def defined(name: str) -> bool:
    """Return whether a dotted name is a package, a module, or something that a module defines."""
    parts = name.split(".")
    for length in range(len(parts), 0, -1):
        base, rest = ROOT.joinpath(*parts[:length]), parts[length:]
        for file in (base.with_suffix(".py"), base / "__init__.py"):
            if file.is_file():
                text = file.read_text()
                return all(re.search(rf"^\s*(?:def |class )?{one}\b", text, re.M) for one in rest)
    return False


def test_the_page_of_events_names_every_code_of_a_receipt_and_no_other() -> None:
    named = {name for name, value in vars(codes).items() if value == name}
    page = (ROOT / "docs/events.md").read_text()
    section = page[page.index("## A receipt") : page.index("## A version")]
    assert named <= set(re.findall(r"`([A-Z_]+)`", section))
    rejected = re.findall(r"^\| (`[A-Z_`, ]+`) \|", section, re.MULTILINE)
    assert {one for cell in rejected for one in re.findall(r"[A-Z_]+", cell)} <= named | STATUSES
