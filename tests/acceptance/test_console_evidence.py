"""A privacy officer in the browser alone: erase, find again, hand over one file, verify offline."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from lethe.consumers.service.embedded_valkey import EmbeddedValkey
from tests.acceptance.test_console import Served, serving
from tests.support.audited import FIT
from tests.support.browser import Watched, browser, violations, watched
from tests.support.command import Lethe, Within
from tests.support.training import write

# One worker runs the file: its tests share a browser and a server.
pytestmark = [pytest.mark.redis, pytest.mark.xdist_group("test_console_evidence")]


@pytest.fixture(scope="module")
def chromium() -> Iterator[Any]:
    with browser() as launched:
        yield launched


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    folder = tmp_path_factory.mktemp("evidence")
    store, log = folder / "store", folder / "serve.log"
    with EmbeddedValkey(store):
        lethe = Within(store)
        for kind in ("linear", "logistic"):
            rows = write(folder / f"{kind}.parquet", logistic=kind == "logistic")
            lethe("register", kind, "--data", str(rows), *FIT, "--kind", kind)
        lethe("audit", "--page", str(folder / "audit.html"))
        (folder / "trusted.pub").write_text(
            lethe("key", "show", str(store / "signing-key.pem")).out
        )
        with serving(Lethe(store), log) as url:
            yield Served(url, lethe, log)


class Officer:
    """Somebody who clicks and types in the console; ``look`` sees each page that is reached."""

    def __init__(self, served: Served, seen: Watched, folder: Path) -> None:
        self.served = served
        self.page = seen.page
        self.folder = folder

    def look(self) -> None:
        self.page.wait_for_load_state("load")  # without its style sheet, any page is too wide
        wide = self.page.evaluate("document.documentElement.scrollWidth - innerWidth")
        assert wide <= 0, f"{self.page.url}: {wide} pixels too wide"
        assert not violations(self.page), self.page.url

    def press(self, name: str) -> None:
        self.page.get_by_role("button", name=name, exact=True).click()

    def erase(self, subject: str) -> None:
        self.page.goto(self.served.page("erase"))
        self.page.get_by_label("Subject id").fill(subject)
        self.press("Continue")
        self.page.get_by_label("Type the subject id again").fill(subject)
        self.press(f"Erase {subject} from every model")
        self.page.wait_for_selector("text=Waiting")

    def find(self, subject: str) -> None:
        """Find the erasure again by the person, and open its page once it is complete."""
        self.page.goto(self.served.page("erasures"))
        self.page.get_by_label("Subject id (a person)").fill(subject)
        self.press("Find the person")
        self.page.locator("section:has(#h-erasures) a.id").first.click()
        self.page.wait_for_selector("text=Complete:")

    def saved(self, name: str, trigger: Any) -> Path:
        with self.page.expect_download() as download:
            trigger.click()
        download.value.save_as(self.folder / name)
        return self.folder / name

    def own_copy(self, subject: str) -> Path:
        self.page.get_by_label("Subject id of the person").fill(subject)
        button = self.page.get_by_role("button", name="Download the person’s own copy")
        return self.saved(f"{subject}.bundle", button)


def verified(chromium: Any, served: Served, path: Path, width: int) -> tuple[str, dict[str, str]]:
    """Return what the page says of a file, on a machine that is on no network."""
    folder = served.log.parent
    with watched(chromium, width, bypass_csp=True) as seen:
        page = seen.page
        page.context.set_offline(True)
        page.goto((folder / "audit.html").as_uri())
        page.get_by_label("Exported file").set_input_files(path)
        page.get_by_label("Public keys that you trust").fill((folder / "trusted.pub").read_text())
        page.get_by_role("button", name="Check").click()
        page.wait_for_selector("#result .verdict")
        rows = page.evaluate(
            "[...document.querySelectorAll('[data-check]')].map((r) =>"
            " [r.dataset.check, r.dataset.result])"
        )
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
        assert not violations(page)
        assert not seen.complaints
        return page.locator("#result").inner_text(), dict(rows)


@pytest.mark.parametrize(("width", "subject"), [(1280, "h5"), (400, "h6")])
def test_a_person_is_erased_found_again_and_given_one_file_that_is_verified_offline(
    served: Served, chromium: Any, tmp_path: Path, width: int, subject: str
) -> None:
    with watched(chromium, width, bypass_csp=True, accept_downloads=True) as seen:
        officer = Officer(served, seen, tmp_path)
        officer.erase(subject)
        served.lethe("work", "--until-idle")
        officer.find(subject)
        officer.look()
        own = officer.own_copy(subject)
        link = officer.page.locator("#evidence").get_by_role("link", name="Download", exact=True)
        anonymous = officer.saved("anonymous.bundle", link)
        officer.page.get_by_role("link", name="Answer for the person").click()
        officer.page.wait_for_url("**/erasure/answer?*", wait_until="commit")
        officer.look()
        again = officer.own_copy(subject)
        assert not seen.complaints
    assert again == own
    assert f'"subject_id":"{subject}"' in own.read_text()
    assert f'"{subject}"' not in anonymous.read_text()

    said, results = verified(chromium, served, own, width)
    assert said.startswith("No check failed")
    assert set(results.values()) == {"OK"}
    assert "COMPLETE: 6 rows deleted in 2 models" in said
    assert f"the erasure is of {subject}" in said
    said, results = verified(chromium, served, anonymous, width)
    assert said.startswith("No check failed")
    assert results["subject"] == "NOT CHECKED"
    assert subject not in said

    forged = own.read_text().replace(f'"{subject}"', '"h9"')
    (tmp_path / "forged").write_text(forged)
    assert verified(chromium, served, tmp_path / "forged", width)[0].startswith("Refused")


def test_nobody_elses_copy_is_made(served: Served, chromium: Any, tmp_path: Path) -> None:
    with watched(chromium) as seen:
        officer = Officer(served, seen, tmp_path)
        officer.erase("h8")
        served.lethe("work", "--until-idle")
        officer.find("h8")
        officer.page.get_by_label("Subject id of the person").fill("h9")
        officer.press("Download the person’s own copy")
        officer.page.wait_for_selector("h1:has-text('Not this person')")
        assert "does not concern this subject" in officer.page.locator("main").inner_text()
