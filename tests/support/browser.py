"""A real browser for tests, and what it complains about: Debian's Chromium and Playwright."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

_ARGUMENTS = (
    "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking",
    "--disable-component-update", "--disable-sync",
)  # fmt: skip
_AXE = Path(sys.prefix) / "share" / "axe" / "axe.min.js"  # scripts/axe_core puts it there
WIDTHS = (1280, 390)
"""Of a desk, and of a phone."""


def chromium() -> str:
    """Return where Chromium is; without it, its driver or axe-core, skip (on CI: fail)."""
    path = shutil.which("chromium") or shutil.which("chromium-browser")
    if path is not None and find_spec("playwright") is not None and _AXE.exists():
        return path
    reason = "no Chromium, no Playwright or no axe-core: make setup-all"
    if os.environ.get("CI") == "true":
        pytest.fail(reason)
    pytest.skip(reason)


@contextlib.contextmanager
def browser() -> Iterator[Any]:
    """Yield a browser; it ends with the block."""
    path = chromium()
    from playwright.sync_api import sync_playwright

    with sync_playwright() as driver:
        launched = driver.chromium.launch(executable_path=path, args=list(_ARGUMENTS))
        try:
            yield launched
        finally:
            launched.close()


@dataclass
class Watched:
    """A page, what its scripts and policies complained about, and the bytes that it took."""

    page: Any
    complaints: list[str] = field(default_factory=list)
    bytes_of: dict[str, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.page.on("console", self._console)
        self.page.on("pageerror", lambda error: self.complaints.append(str(error)))
        self.page.on("requestfinished", self._finished)

    def _console(self, message: Any) -> None:
        if message.type in ("error", "warning"):
            self.complaints.append(message.text)

    def _finished(self, request: Any) -> None:
        with contextlib.suppress(Exception):  # a stream of events has no size yet
            self.bytes_of[request.url] = request.sizes()["responseBodySize"]


@contextlib.contextmanager
def watched(launched: Any, width: int = WIDTHS[0], **options: Any) -> Iterator[Watched]:
    """Yield a page of a browser, in a context of its own."""
    context = launched.new_context(viewport={"width": width, "height": 900}, **options)
    try:
        yield Watched(context.new_page())
    finally:
        context.close()


def violations(page: Any) -> list[str]:
    """Return what axe-core finds wrong with a page, a line each; the page's policy must be off."""
    page.evaluate(_AXE.read_text(encoding="utf-8"))
    found = json.loads(page.evaluate("axe.run().then((all) => JSON.stringify(all.violations))"))
    return [
        f"{one['id']}: {one['help']}: {[node['html'] for node in one['nodes'][:3]]}"
        for one in found
    ]
