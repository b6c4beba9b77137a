"""Pictures of the console for the docs: docs/images/console-*.png, from the demo's data.

    python scripts/console_screenshots.py [--out DIRECTORY]

Needs Chromium and Playwright (make setup-all).
"""

from __future__ import annotations

import argparse
import io
import json
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from PIL import Image
from playwright.sync_api import sync_playwright

ROOT = Path(__file__).resolve().parents[1]
LETHE = Path(sys.executable).with_name("lethe")
COLOURS = 96  # a quarter of the bytes, and text looks the same

DESK, PHONE = (1280, 760), (390, 760)
PICTURES: Sequence[tuple[str, str, tuple[int, int], str]] = (
    ("requests", "requests", DESK, "light"),
    ("model", "model?id=breast-cancer", DESK, "light"),
    ("request", "request?model=diabetes&id=withdraw-24", PHONE, "light"),
    ("models", "models", PHONE, "dark"),
)
"""A picture's name, its page, its size, and the colours that the system asks for."""


@contextmanager
def served(data: Path) -> Iterator[str]:
    """Run the demo, and yield the address of a console on its data."""
    demo: list[str | Path] = [LETHE, "demo", "--data-dir", data, "--out", data, "--json"]
    subprocess.run(demo, check=True, capture_output=True)
    server = subprocess.Popen(
        [LETHE, "serve", "--data-dir", data, "--port", "0"], stdout=subprocess.PIPE, text=True
    )
    try:
        line = "" if server.stdout is None else server.stdout.readline()
        yield line.split()[2].rstrip(";")  # "serving on http://...; the console is at ..."
    finally:
        server.terminate()
        server.communicate()


def small(picture: bytes) -> bytes:
    """Return a PNG with fewer colours."""
    image = (
        Image.open(io.BytesIO(picture)).convert("RGB").quantize(COLOURS, dither=Image.Dither.NONE)
    )
    out = io.BytesIO()
    image.save(out, "PNG", optimize=True)
    return out.getvalue()


def audited(page: Any, data: Path) -> None:
    """Fill in the audit page with an export of the demo's model, and check it."""
    bundle = data / "diabetes.bundle"
    export: list[str | Path] = [
        LETHE,
        "audit",
        "diabetes",
        "--data-dir",
        data,
        "--export",
        bundle,
        "--no-bound",
    ]
    subprocess.run(export, check=True, capture_output=True)
    shown: list[str | Path] = [LETHE, "key", "show", data / "signing-key.pem"]
    key = subprocess.run(shown, check=True, capture_output=True, text=True).stdout
    page.get_by_label("Exported file").set_input_files(bundle)
    page.get_by_label("Public keys that you trust").fill(key)
    page.get_by_role("button", name="Check").click()
    page.wait_for_selector("#result .verdict")
    page.locator("#result").scroll_into_view_if_needed()


def main() -> None:
    """Take the pictures."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--out", type=Path, default=ROOT / "docs" / "images")
    out = parser.parse_args().out
    with (
        tempfile.TemporaryDirectory() as folder,
        served(Path(folder)) as url,
        sync_playwright() as p,
    ):
        chromium = p.chromium.launch(
            executable_path=shutil.which("chromium"), args=["--no-sandbox", "--disable-gpu"]
        )
        sizes = {}
        for name, address, (width, height), colours in (
            *PICTURES,
            ("audit", "audit", DESK, "light"),
        ):
            page = chromium.new_page(
                viewport={"width": width, "height": height}, color_scheme=colours
            )
            page.goto(f"{url}/console/{address}")
            page.wait_for_selector("footer:has-text('Up to date')")
            page.wait_for_timeout(300)
            if name == "audit":
                audited(page, Path(folder))
            path = out / f"console-{name}.png"
            path.write_bytes(small(page.screenshot()))
            sizes[path.name] = path.stat().st_size
            page.close()
        chromium.close()
    print(json.dumps(sizes, indent=2))


if __name__ == "__main__":
    main()
