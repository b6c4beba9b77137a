"""The README, typed and clicked: a person erased from two models, seen, and checked offline."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.browser import browser, watched
from tests.support.servers import ROOT
from tests.support.typed import commands_of, shell

pytestmark = [pytest.mark.redis, pytest.mark.slow]

_STARTED_SECONDS = 120.0


@pytest.fixture
def chromium() -> Iterator[Any]:
    with browser() as launched:
        yield launched


def _console(log: Path) -> str:
    """Return the console's address, once the server has printed it."""
    end = time.monotonic() + _STARTED_SECONDS
    while time.monotonic() < end:
        found = re.search(r"console is at (\S+)", log.read_text() if log.exists() else "")
        if found:
            return found[1]
        time.sleep(0.1)
    raise AssertionError(f"the server did not start: {log.read_text()}")


def _erase(page: Any, subject: str) -> None:
    page.get_by_role("navigation").get_by_role("link", name="Erasures").click()
    page.get_by_role("link", name="Erase a person").click()
    page.get_by_label("Subject id").fill(subject)
    page.get_by_role("button", name="Continue").click()
    page.get_by_text("2 models know the person now").wait_for()
    page.get_by_label("Type the subject id again").fill(subject)
    page.get_by_role("button", name=f"Erase {subject} from every model").click()


def test_a_person_is_erased_in_the_browser_and_verified_offline(
    chromium: Any, tmp_path: Path
) -> None:
    """Given somebody with the README, a shell and a browser, as the README says it."""
    commands = commands_of((ROOT / "README.md").read_text(encoding="utf-8"))
    with shell(tmp_path) as type_in, watched(chromium) as console, watched(chromium) as offline:
        for command in commands:
            type_in(command)
            assert command.agrees, f"{command.command} printed\n{command.printed}"
            if command.command.startswith("lethe serve"):
                console.page.goto(_console(tmp_path / "serve.log"))
                _erase(console.page, "h7")
                done = console.page.get_by_text("no model holds a row of the person")
                done.wait_for(timeout=60_000)
                assert console.page.locator("tbody tr:has-text('applied')").count() == 2
                assert console.complaints == []
        page = offline.page
        page.context.set_offline(True)
        page.goto((tmp_path / "audit.html").as_uri())
        page.get_by_label("Exported file").set_input_files(tmp_path / "churn.bundle")
        page.get_by_label("Public keys").fill((tmp_path / "public-keys").read_text())
        page.get_by_role("button", name="Check").click()
        page.get_by_text("no check failed").first.wait_for()
        assert offline.complaints == []
