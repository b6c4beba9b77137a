"""The audit in the browser: what `lethe audit --bundle` refuses is refused there, too, offline."""

from __future__ import annotations

import base64
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from lethe.consumers.service.embedded_valkey import EmbeddedValkey
from lethe.engine.store.layout.columns import FittedColumn
from tests.support import long_history
from tests.support.audited import FIT, Made, real_run
from tests.support.browser import WIDTHS, Watched, browser, violations, watched
from tests.support.bundles import Bundle, Forgery
from tests.support.command import Within
from tests.support.forgeries import (
    FORGERIES,
    SEEN,
    SIGNED,
    SIGNED_OR_NOT,
    UNPROVED,
    UNREADABLE,
)
from tests.support.training import write

# One worker runs the file: its tests share a browser and files.
pytestmark = [pytest.mark.redis, pytest.mark.xdist_group("test_console_audit")]

NOT_READ = "Not read"


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Made]:
    with real_run(tmp_path_factory.mktemp("audit")) as made:
        yield made


@pytest.fixture(scope="module")
def chromium() -> Iterator[Any]:
    with browser() as launched:
        yield launched


@pytest.fixture(scope="module")
def page_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("page")
    path = folder / "audit.html"
    Within(folder / "nothing")("audit", "--page", str(path))
    return path


@pytest.fixture
def offline(chromium: Any, page_file: Path) -> Iterator[Watched]:
    """The page as one file, in a browser that is on no network."""
    with watched(chromium) as seen:
        seen.page.context.set_offline(True)
        seen.page.goto(page_file.as_uri())
        yield seen


class Auditor:
    """Somebody who fills in the page."""

    def __init__(self, seen: Watched) -> None:
        self.page = seen.page

    def check(self, path: Path, *, trust: str = "", seen: str = "") -> dict[str, str]:
        """Return results by check; of a file that is not read, only `NOT_READ`."""
        self.page.evaluate("document.getElementById('result').replaceChildren()")
        self.page.get_by_label("Exported file").set_input_files(path)
        self.page.get_by_label("Public keys that you trust").fill(trust)
        self.page.get_by_label("Seen before").fill(seen)
        self.page.get_by_role("button", name="Check").click()
        self.page.wait_for_selector("#result .verdict", timeout=60_000)
        verdict = self.page.locator("#result .verdict").text_content()
        rows: list[list[str]] = self.page.evaluate(
            "[...document.querySelectorAll('[data-check]')].map((r) =>"
            " [r.dataset.check, r.dataset.result])"
        )
        results = dict(rows)
        refused = "FAILED" in results.values()
        if verdict == NOT_READ:
            assert not results
            return {NOT_READ: self.page.locator("#result .notice").inner_text()}
        assert (verdict == "Refused") == refused, (verdict, results)
        return results


def fits(seen: Watched) -> bool:
    """Return whether nothing is cut off at the right."""
    script = "[document.documentElement, document.querySelector('.card.table')].every((one) =>"
    return bool(seen.page.evaluate(f"{script} one.scrollWidth <= one.clientWidth)"))


def text(made: Made, name: str) -> str:
    return Path(made.path(name)).read_text()


def test_a_sound_file_passes_and_the_page_agrees_with_the_command(
    made: Made, offline: Watched
) -> None:
    trust, seen = text(made, "trusted.pub"), text(made, "late.seen")
    found = Auditor(offline).check(Path(made.path("late")), trust=trust, seen=seen)
    answer = made.lethe(
        "audit", "--bundle", made.path("late"), "--checkpoint", made.path("late.seen"),
        "--trust", made.path("trusted.pub"), "--json",
    )  # fmt: skip

    assert found == {one["check"]: one["result"] for one in answer.document["checks"]}
    newest = f"{answer.document['version']}:{answer.document['digest']}"
    assert newest in offline.page.locator("#result").inner_text()
    assert not offline.complaints


def test_every_forgery_is_refused_in_the_browser(
    made: Made, offline: Watched, tmp_path: Path
) -> None:
    auditor, path, refused = Auditor(offline), tmp_path / "forged", 0
    trust, seen = text(made, "trusted.pub"), text(made, "late.seen")

    def tried(forgery: Forgery, **known: str) -> int:
        bundle = Bundle.read(Path(made.path("late")))
        forgery.forge(bundle)
        bundle.write(path)
        found = auditor.check(path, **known)
        assert found.get(forgery.check) == "FAILED", f"{forgery.name}: {found}"
        return 1

    for forgery in SIGNED_OR_NOT:
        refused += tried(forgery) + tried(forgery, trust=trust)
    refused += sum(tried(forgery, trust=trust) for forgery in SIGNED)
    refused += sum(tried(forgery, seen=seen) for forgery in SEEN)

    assert refused == FORGERIES
    assert not offline.complaints


def test_what_no_trusted_key_vouches_for_is_not_proved_in_the_headline(
    made: Made, offline: Watched, tmp_path: Path
) -> None:
    auditor, headline = Auditor(offline), offline.page.locator("#result .notice")
    for forgery in UNPROVED:
        bundle = Bundle.read(Path(made.path("late")))
        forgery.forge(bundle)
        bundle.write(tmp_path / "forged")
        found = auditor.check(tmp_path / "forged", trust=text(made, "trusted.pub"))
        assert found[forgery.check] == "NOT PROVED", forgery.name
        assert "Not proved" in headline.inner_text()
        assert "warn" in headline.get_attribute("class")
    auditor.check(Path(made.path("late")))
    assert "Not proved" in headline.inner_text()  # no key was named
    auditor.check(Path(made.path("late")), trust=text(made, "trusted.pub"))
    assert "No check failed" in headline.inner_text()


def test_every_damaged_file_is_not_read(made: Made, offline: Watched, tmp_path: Path) -> None:
    auditor, loose, path = Auditor(offline), tmp_path / "loose", tmp_path / "damaged"
    Bundle.read(Path(made.path("late"))).write(loose)
    for name, damage in UNREADABLE:
        path.write_bytes(damage(loose.read_bytes()))
        assert auditor.check(path).keys() == {NOT_READ}, name
    with path.open("wb") as sparse:
        sparse.truncate(10**8)
    assert "longer than 4194304 bytes" in auditor.check(path)[NOT_READ]
    assert not offline.complaints


def test_a_rollback_and_a_fork_with_the_right_key_are_seen_by_who_remembers(
    made: Made, offline: Watched
) -> None:
    auditor, trust = Auditor(offline), text(made, "trusted.pub")
    newest = json.loads(text(made, "late.seen"))
    for name in ("early", "fork"):
        assert "FAILED" not in auditor.check(Path(made.path(name)), trust=trust).values()
        for seen in (text(made, "late.seen"), f"{newest['version']}:{newest['digest']}"):
            found = auditor.check(Path(made.path(name)), trust=trust, seen=seen)
            failed = {check for check, result in found.items() if result == "FAILED"}
            assert failed == {"checkpoint"}, name


@pytest.mark.parametrize(
    ("trust", "seen", "said"),
    [
        ("not a key", "", "no Ed25519 public key"),
        ("", "yesterday", "neither VERSION:DIGEST"),
        ("", '{"version": 1}', "neither VERSION:DIGEST"),
    ],
)
def test_keys_and_checkpoints_that_cannot_be_read_are_said(
    made: Made, offline: Watched, trust: str, seen: str, said: str
) -> None:
    assert not Auditor(offline).check(Path(made.path("late")), trust=trust, seen=seen)
    assert said in offline.page.locator("#result").inner_text()


def test_parameters_with_preprocessing_have_the_digest_that_the_page_computes(
    offline: Watched, tmp_path: Path
) -> None:
    columns = (
        FittedColumn(name="age", step="numeric", impute=0.0, mean=0.1, deviation=3.0),
        FittedColumn(name="plain", step="numeric"),
        FittedColumn(
            name="straße", step="one-hot", categories=("x", None, True, 3), vanished=(1,),
            ignores_unknown=True,
        ),
        FittedColumn(
            name="town", step="target-encode", categories=("p", "q"), values=(0.25, 1e-7),
            otherwise=0.5,
        ),
    )  # fmt: skip
    long_history.write(tmp_path / "prepared", 50, columns=columns)
    bundle = Bundle.read(tmp_path / "prepared")
    assert Auditor(offline).check(tmp_path / "prepared")["parameters"] == "OK"

    value = base64.b64decode(bundle.parameters["value"]).replace(b'"mean":0.1', b'"mean":0.2')
    bundle.parameters["value"] = base64.b64encode(value).decode()
    bundle.write(tmp_path / "altered")
    assert Auditor(offline).check(tmp_path / "altered")["parameters"] == "FAILED"


def test_10_000_receipts_are_verified(offline: Watched, tmp_path: Path) -> None:
    """In 5 s where nothing else runs (docs/console.md); here, a machine may be busy."""
    long_history.write(tmp_path / "busy", 10_000)
    found = Auditor(offline).check(tmp_path / "busy", trust=long_history.SIGNER.public_text)

    seconds = float(offline.page.locator("#result").get_attribute("data-seconds"))
    assert set(found.values()) == {"OK", "NOT CHECKED"}
    assert found["signatures"] == found["receipt log"] == "OK"
    assert seconds < 60, seconds


@pytest.mark.parametrize("width", WIDTHS)
def test_the_page_with_its_findings_is_accessible_and_fits(
    made: Made, chromium: Any, page_file: Path, width: int
) -> None:
    with watched(chromium, width, bypass_csp=True) as seen:
        seen.page.goto(page_file.as_uri())
        Auditor(seen).check(Path(made.path("late")), trust=text(made, "trusted.pub"))
        assert not violations(seen.page)
        assert fits(seen)


@pytest.mark.parametrize("width", WIDTHS)
def test_a_linear_model_is_retrained_on_a_table_in_the_browser(
    chromium: Any, page_file: Path, tmp_path: Path, width: int
) -> None:
    rows = pd.read_parquet(write(tmp_path / "rows.parquet", logistic=False))
    with EmbeddedValkey(tmp_path / "store") as server:
        lethe = Within(server.data_dir)
        lethe("register", "m", "--data", str(tmp_path / "rows.parquet"), *FIT, "--kind", "linear")
        lethe("audit", "m", "--export", str(tmp_path / "bundle"))
        trust = lethe("key", "show", str(tmp_path / "store" / "signing-key.pem")).out
    rows.to_csv(tmp_path / "rows.csv", index=False)
    changed = rows.assign(a=np.nextafter(rows["a"], 9.0))
    changed.to_csv(tmp_path / "changed.csv", index=False)
    with watched(chromium, width, bypass_csp=True) as seen:
        seen.page.context.set_offline(True)
        seen.page.goto(page_file.as_uri())
        seen.page.get_by_text("Retrain on rows that you have").click()
        seen.page.get_by_label("Column of row ids").fill("id")
        table = seen.page.get_by_label("Table of the remaining rows")
        for name, result in (("rows.csv", "OK"), ("changed.csv", "FAILED")):
            table.set_input_files(tmp_path / name)
            found = Auditor(seen).check(tmp_path / "bundle", trust=trust)
            assert found["retraining"] == result
            assert name in seen.page.locator("[data-check=retraining]").inner_text()
        assert not violations(seen.page)
        assert fits(seen)
        assert not seen.complaints


def test_the_page_asks_no_address_for_anything(page_file: Path) -> None:
    content = page_file.read_text()
    assert "http:" not in content.replace("http-equiv", "")
    assert "https:" not in content
    assert "src=" not in content


def test_the_page_is_written_where_the_server_is_not_installed(tmp_path: Path) -> None:
    look = (
        "import sys; from lethe.consumers.server.console.offline import audit_page; audit_page();"
        "print(*{name.split('.')[0] for name in sys.modules})"
    )
    done = subprocess.run(
        [sys.executable, "-c", look],
        capture_output=True, text=True, check=True, cwd=tmp_path,
    )  # fmt: skip
    assert not {"fastapi", "starlette", "jinja2", "uvicorn"} & set(done.stdout.split())
