"""The console of `lethe serve` in a real browser, beside real workers."""

from __future__ import annotations

import json
import re
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import pytest

from lethe.consumers.service.embedded_valkey import EmbeddedValkey
from tests.support.browser import WIDTHS, Watched, browser, violations, watched
from tests.support.command import PROGRAM, Lethe, Within
from tests.support.training import write

# One worker runs the file: its tests share a browser and a server.
pytestmark = [pytest.mark.redis, pytest.mark.xdist_group("test_console")]

FIT = ("--id", "id", "--target", "y", "--subject", "household", "--ridge", "1")
HOSTILE = '<img src=x onerror="alert(1)">&<b>'
"""An id that would be a picture and bold text if a page took it for HTML."""

PAGE_BYTES = 200_000


@dataclass(frozen=True)
class Served:
    """A running console, and its data."""

    url: str
    lethe: Within
    log: Path

    def page(self, name: str, **query: str) -> str:
        return f"{self.url}/console/{name}" + (f"?{urlencode(query)}" if query else "")


@contextmanager
def serving(lethe: Lethe, log: Path, *options: str) -> Iterator[str]:
    """Have ``lethe serve`` run beside the test; yields its address."""
    with log.open("w") as errors:
        process = subprocess.Popen(
            [PROGRAM, "serve", "--port", "0", *options],
            env=lethe.environment, stdout=subprocess.PIPE, stderr=errors, text=True,
        )  # fmt: skip
        try:
            assert process.stdout is not None
            line = process.stdout.readline()
            assert line.startswith("serving on http://127.0.0.1:"), log.read_text()
            yield line.split()[2].rstrip(";")
        finally:
            process.terminate()
            process.communicate(timeout=120)


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    folder = tmp_path_factory.mktemp("console")
    store, log = folder / "store", folder / "serve.log"
    rows = write(folder / "rows.parquet", logistic=True)
    with EmbeddedValkey(store):
        lethe = Within(store)
        for model in ("churn", HOSTILE):
            lethe("register", model, "--data", str(rows), *FIT, "--kind", "logistic")
        lethe("delete", "churn", "--row", "u1", "u2", "--request-id", "first", "--reason", "asked")
        lethe("delete", HOSTILE, "--subject", "h5", "--request-id", HOSTILE)
        lethe("delete", "churn", "--row", "nobody", "--request-id", "stranger")
        lethe("erase", "h6", "--erasure-id", "ticket-6")
        lethe("work", "--until-idle")
        with serving(Lethe(store), log) as url:
            yield Served(url, lethe, log)


@pytest.fixture(scope="module")
def chromium() -> Iterator[Any]:
    with browser() as launched:
        yield launched


def every_page(served: Served) -> dict[str, str]:
    return {
        "requests": served.page("requests"),
        "requests, filtered": served.page("requests", status="REJECTED", model="churn"),
        "requests, none": served.page("requests", model="none"),
        "request": served.page("request", model=HOSTILE, id=HOSTILE),
        "request, unknown": served.page("request", model="churn", id="none"),
        "models": served.page("models"),
        "model": served.page("model", id="churn"),
        "model, hostile": served.page("model", id=HOSTILE),
        "waiting": served.page("waiting"),
        "delete": served.page("delete", model="churn"),
        "requests of a version": served.page("requests", model="churn", version="1"),
        "erasures": served.page("erasures"),
        "erasures, filtered": served.page("erasures", status="COMPLETE", days="0"),
        "erasures, none": served.page("erasures", id="none"),
        "erasure": served.page("erasure", id="ticket-6"),
        "erasure, unknown": served.page("erasure", id="none"),
        "answer": served.page("erasure/answer", id="ticket-6"),
        "erase": served.page("erase"),
        "lookup": served.page("lookup"),
        "audit": served.page("audit"),
    }


def settle(seen: Watched, address: str) -> None:
    """Open a page, and wait until its scripts have run and the index has caught up."""
    seen.page.goto(address)
    seen.page.wait_for_selector("footer:has-text('Up to date')")
    seen.page.wait_for_timeout(200)


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_every_page_is_accessible_and_fits_and_its_scripts_run_without_an_error(
    served: Served, chromium: Any, width: int, scheme: str
) -> None:
    faults: list[str] = []
    for name, address in every_page(served).items():
        with watched(chromium, width, color_scheme=scheme) as seen:
            settle(seen, address)
            complaints = [one for one in seen.complaints if "status of 404" not in one]
            wide = seen.page.evaluate("document.documentElement.scrollWidth - innerWidth")
            size = sum(seen.bytes_of.values())
            faults += [f"{name}: {one}" for one in complaints]
            faults += [f"{name}: {wide} pixels too wide"] * (wide > 0)
            faults += [f"{name}: {size} bytes"] * (not 1_000 < size < PAGE_BYTES)
        with watched(chromium, width, color_scheme=scheme, bypass_csp=True) as seen:
            settle(seen, address)
            faults += [f"{name}: {one}" for one in violations(seen.page)]

    assert not faults, "\n".join(faults)


@pytest.mark.parametrize("width", WIDTHS)
def test_the_pages_that_forms_lead_to_are_accessible_and_fit(
    served: Served, chromium: Any, width: int
) -> None:
    with watched(chromium, width, bypass_csp=True) as seen:
        page = seen.page

        def check(heading: str) -> None:
            page.wait_for_selector(f"h1:has-text('{heading}'), h2:has-text('{heading}')")
            assert not violations(page), heading
            assert page.evaluate("document.documentElement.scrollWidth <= innerWidth"), heading

        page.goto(served.page("delete", model="churn"))
        page.get_by_label("rows by their ids").check()
        page.get_by_label("Subject id, or row ids").fill("u3\nnobody\n")
        page.get_by_role("button", name="Continue").click()
        check("Send this request?")
        assert page.locator("dt:has-text('Never the model') + dd").text_content() == "1"
        page.goto(served.page("erase"))
        page.get_by_label("Subject id").fill("h9")
        page.get_by_role("button", name="Continue").click()
        check("Erase this person?")
        page.goto(served.page("lookup"))
        page.get_by_label("Its id").fill("h9")
        page.get_by_role("button", name="Look up").click()
        check("2 models of 2")
        page.goto(served.page("erasures"))
        page.get_by_label("Subject id (a person)").fill("h6")
        page.get_by_role("button", name="Find the person").click()
        check("1 erasure of this person")
        page.goto(served.page("erasure", id="ticket-6"))
        assert page.locator("tbody a[href*='/console/request?']:visible").count() == 2


def test_ids_are_shown_as_text_whatever_they_hold(served: Served, chromium: Any) -> None:
    with watched(chromium) as seen:
        settle(seen, served.page("requests"))
        assert seen.page.locator("main img, main b").count() == 0
        seen.page.get_by_role("link", name=HOSTILE, exact=True).click()
        assert seen.page.locator("h1").text_content() == HOSTILE
        assert seen.page.locator("main img, main b").count() == 0
        seen.page.locator("p.lead a").click()
        assert seen.page.locator("h1").text_content() == HOSTILE
        seen.page.wait_for_selector(".chart canvas")
        figures = seen.page.locator(".u-legend .u-value").all_inner_texts()
        assert [float(figure) > 0 for figure in figures] == [True] * 3  # version, error, budget
        assert not seen.complaints


def test_a_key_is_asked_for_where_there_are_keys(
    served: Served, chromium: Any, tmp_path: Path
) -> None:
    keys, store = tmp_path / "api.keys", served.lethe.data_dir
    issued = served.lethe("key", "issue", str(keys), "--name", "crm", "--model", "churn", "--json")
    with (
        serving(Lethe(store), tmp_path / "log", "--keys", str(keys)) as url,
        watched(chromium, bypass_csp=True) as seen,
    ):
        seen.page.goto(f"{url}/console/requests?status=APPLIED")
        assert not violations(seen.page)
        seen.page.get_by_label("Key").fill(issued.document["key"])
        seen.page.get_by_role("button", name="Sign in").click()
        seen.page.wait_for_selector("h1:has-text('Requests')")
        assert seen.page.url.endswith("/console/requests?status=APPLIED")
        assert HOSTILE not in seen.page.locator("main").inner_text()
        assert issued.document["key"] not in (tmp_path / "log").read_text()
        seen.page.get_by_role("button", name="Sign out").click()
        seen.page.wait_for_selector("h1:has-text('Sign in')")


def press_until(page: Any, name: str, *, key: str = "Tab", most: int = 40) -> None:
    """Press a key until the element with this accessible name has the focus."""
    for _ in range(most):
        page.keyboard.press(key)
        focused = page.evaluate(
            "(document.activeElement.labels?.[0] ?? document.activeElement).textContent.trim()"
        )
        if focused == name or focused.startswith(f"{name} "):
            return
    raise AssertionError(f"{name!r} does not get the focus within {most} presses")


@pytest.mark.parametrize("width", WIDTHS)
def test_a_person_is_deleted_with_the_keyboard_alone_and_the_page_says_so_itself(
    served: Served, chromium: Any, width: int
) -> None:
    subject = {1280: "h7", 390: "h8"}[width]
    with watched(chromium, width) as seen, served.lethe.working():
        page = seen.page
        settle(seen, served.page("requests"))
        page.keyboard.press("Tab")
        assert page.evaluate("document.activeElement.textContent") == "Skip to the content"
        press_until(page, "Delete")
        page.keyboard.press("Enter")
        page.wait_for_selector("h1:has-text('Delete')")
        press_until(page, "Model", most=60)
        page.keyboard.type("churn")
        press_until(page, "all rows of a subject (a person)")
        press_until(page, "Subject id, or row ids")
        page.keyboard.type(subject)
        press_until(page, "Reason")
        page.keyboard.type("withdrawn")
        press_until(page, "Continue")
        page.keyboard.press("Enter")
        page.wait_for_selector("h1:has-text('Send this request?')")
        rows = int(page.locator("dt:has-text('In the model now') + dd").text_content())
        assert rows > 0
        press_until(page, f"Delete {rows}", most=60)
        page.keyboard.press("Enter")
        # No reload: the server says that something has changed.
        page.wait_for_selector("ol.timeline li:has-text('Applied')", timeout=60_000)
        assert f"{rows} row" in page.locator("ol.timeline li:has-text('Applied')").text_content()
        assert "This page has changed" in page.locator("#announce").text_content()
        assert subject not in page.url
        assert not seen.complaints


@pytest.mark.parametrize("width", WIDTHS)
def test_a_person_is_erased_found_again_and_answered_in_the_console_and_verified_offline(
    served: Served, chromium: Any, tmp_path: Path, width: int
) -> None:
    subject, ticket = {1280: ("h11", "ticket-11"), 390: ("h12", "ticket-12")}[width]
    with watched(chromium, width) as seen, served.lethe.working():
        page, addresses = seen.page, list[str]()
        page.on("request", lambda request: addresses.append(request.url))
        settle(seen, served.page("erasures"))
        page.get_by_role("link", name="Erase a person").click()
        page.get_by_label("Subject id").fill(subject)
        page.get_by_label("Erasure id").fill(ticket)
        page.get_by_role("button", name="Continue").click()
        page.wait_for_selector("h2:has-text('2 models know the person now')")
        assert page.locator("dt:text-is('Subject') + dd").text_content() == subject
        assert page.locator("dt:text-is('Erasure id') + dd").text_content() == ticket
        send = page.get_by_role("button", name=f"Erase {subject}")
        send.click()  # the browser asks for what was not typed
        page.get_by_label("Type the subject id again").fill("h1")
        send.click()
        page.wait_for_selector("text=Nothing has been sent. >> visible=true")
        page.get_by_label("Type the subject id again").fill(subject)
        send.click()
        page.wait_for_selector("text=no model holds a row of the person", timeout=60_000)
        assert page.locator("tbody tr:has-text('applied')").count() == 2
        assert subject not in page.url + page.locator("main").inner_text()

        page.goto(served.page("erasures"))  # days later, somebody asks about the person
        page.get_by_label("Subject id (a person)").fill(subject)
        page.get_by_role("button", name="Find the person").click()
        page.locator("section:has-text('1 erasure of this person')").get_by_role(
            "link", name=ticket
        ).click()
        page.get_by_role("link", name="Answer for the person").click()
        page.wait_for_selector("button:has-text('Print')")
        with page.expect_download() as download:
            page.get_by_role("link", name="Save as a file").click()
        saved = tmp_path / download.value.suggested_filename
        download.value.save_as(saved)
        assert not [one for one in seen.complaints if "status of 400" not in one]
        assert not [one for one in addresses if re.search(rf"\b{subject}\b", one)]
    with watched(chromium, width) as seen:
        seen.page.context.set_offline(True)
        seen.page.goto(saved.as_uri())
        published = seen.page.locator("#receipt").text_content()
        receipt = json.loads(published)
        assert (receipt["erasure_id"], receipt["complete"]) == (ticket, True)
        (tmp_path / "receipt.json").write_text(published)
        key = served.lethe("key", "show", str(served.lethe.data_dir / "signing-key.pem")).out
        check = seen.page.locator("#check").text_content().replace("KEY", key.split()[0])
        done = subprocess.run(
            ["bash", "-c", check], cwd=tmp_path, capture_output=True, text=True, check=True
        )
        assert "Signature Verified Successfully" in done.stdout
        assert seen.page.locator("main img, main b").count() == 0
        assert seen.page.evaluate("document.documentElement.scrollWidth <= innerWidth")
        assert subject not in seen.page.locator("main").inner_text()
        assert not seen.complaints
    path, trust = tmp_path / "audit.html", tmp_path / "trusted.pub"
    served.lethe("audit", "--page", str(path))
    shown = served.lethe("key", "show", str(served.lethe.data_dir / "signing-key.pem"))
    trust.write_text(shown.out)
    for model in ("churn", HOSTILE):
        served.lethe("audit", model, "--export", str(tmp_path / "exported"))
        with watched(chromium) as seen:
            seen.page.context.set_offline(True)
            seen.page.goto(path.as_uri())
            seen.page.get_by_label("Exported file").set_input_files(tmp_path / "exported")
            seen.page.get_by_label("Public keys that you trust").fill(trust.read_text())
            seen.page.get_by_role("button", name="Check").click()
            seen.page.wait_for_selector("text=No check failed")
            assert seen.page.locator("#result img, #result b").count() == 0
            assert not seen.complaints


def test_what_is_looked_up_is_in_no_address_and_in_no_log(served: Served, chromium: Any) -> None:
    with watched(chromium) as seen:
        addresses: list[str] = []
        seen.page.on("request", lambda request: addresses.append(request.url))
        settle(seen, served.page("lookup"))
        seen.page.get_by_label("a row").check()
        seen.page.get_by_label("Its id").fill("u1")
        seen.page.get_by_role("button", name="Look up").click()
        table = seen.page.locator("table").first.inner_text()
        seen.page.get_by_label("a subject (a person)").check()
        seen.page.get_by_label("Its id").fill("h5")
        seen.page.get_by_role("button", name="Look up").click()
        subjects = seen.page.locator("table").first.inner_text()

    assert "churn" in table
    assert HOSTILE in table
    assert "churn" in subjects
    assert not [one for one in addresses if "u1" in one.rpartition("/")[2] or "h5" in one]
    assert "u1" not in served.log.read_text()


def test_a_request_is_sent_again_and_takes_no_second_effect(served: Served, chromium: Any) -> None:
    served.lethe("delete", "churn", "--row", "u50", "--request-id", "twice")
    with watched(chromium) as seen:
        settle(seen, served.page("request", model="churn", id="twice"))
        seen.page.wait_for_selector("text=for a deletion worker")
        seen.page.get_by_role("button", name="Send again").click()
        seen.page.wait_for_selector("text=Sent again, with the same id")
        served.lethe("work", "--until-idle")
        seen.page.wait_for_selector("ol.timeline li:has-text('Applied')")
        assert seen.page.locator("ol.timeline li:has-text('Applied')").count() == 1
    receipt = served.lethe("receipt", "twice", "--model", "churn", "--json").document
    assert len(receipt["receipts"]) == 1


def test_what_has_changed_while_a_page_was_opening_is_shown(served: Served, chromium: Any) -> None:
    """The change came after the page was made, and before the page listened for changes."""

    def late(route: Any) -> None:
        served.lethe("delete", "churn", "--row", "u52", "--request-id", "meanwhile")
        time.sleep(3.0)  # the index has read it
        route.continue_()

    with watched(chromium) as seen:
        seen.page.route("**/console/live", late)
        seen.page.goto(served.page("requests"))
        seen.page.wait_for_selector("text=meanwhile")


def test_without_scripts_the_pages_and_forms_work(served: Served, chromium: Any) -> None:
    with watched(chromium, java_script_enabled=False) as seen:
        page = seen.page
        page.goto(served.page("requests", code="UNKNOWN_ROWS"))
        page.get_by_role("link", name="stranger").click()
        assert "UNKNOWN_ROWS" in page.locator("main").inner_text()
        page.goto(served.page("lookup"))
        page.get_by_label("Its id").fill("h5")
        page.get_by_role("button", name="Look up").click()
        assert "churn" in page.locator("table").first.inner_text()
