"""The packages of `consumers` import downwards only: what stands below, and the engine."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
ORDER = (
    "demo",
    "cli",
    "server",
    "audit",
    "export",
    "subscriber",
    "workers",
    "cdc",
    "erasures",
    "registration",
    "deletions",
    "refresh",
    "versions",
    "commits",
    "suppression",
    "service",
    "contract",
    "log",
    "passes",
)
PARTS = {
    "engine/store": ("offline", "", "server", "layout"),
    "engine/preprocess": ("library", "rounded", "", "transformation", "input"),
    "consumers/commits": ("recovery", ""),
    "consumers/audit": ("health", "request", "", "published"),
    "consumers/cli": ("check", "show", "run", "maintain", "send", "", "terminal"),
    "consumers/service": ("", "telemetry", "configuration"),
}
"""By package, its parts, which import downwards as well; an empty name: its own modules."""

FILES = sorted(path for top in ("consumers", "engine") for path in (ROOT / top).rglob("*.py"))


def imported(path: Path) -> Iterator[str]:
    """Yield the dotted names that a file imports."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (one.name for one in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module is not None:
            yield from (f"{node.module}.{one.name}" for one in node.names)


def test_every_package_has_its_place() -> None:
    packages = (ROOT / "consumers").glob("*/__init__.py")
    assert {path.parent.name for path in packages} == set(ORDER)


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(ROOT)))
def test_a_package_imports_only_what_stands_below(path: Path) -> None:
    top, package = path.relative_to(ROOT).parts[:2]
    if top == "engine" or package == "__init__.py":
        return
    for name in imported(path):
        if name.startswith("lethe.consumers."):
            below = name.split(".")[2]
            assert ORDER.index(package) <= ORDER.index(below), f"{package} imports {name}"


def test_what_checks_a_history_uses_nothing_of_what_makes_one() -> None:
    """A fault of the code that decides, commits or publishes cannot hide itself from an auditor."""
    waiting = [*(ROOT / "consumers" / "audit" / "published").glob("[a-z]*.py")]
    reached: set[Path] = set()
    while waiting:
        path = waiting.pop()
        if path in reached:
            continue
        reached.add(path)
        modules = (name.split(".")[1:] for name in imported(path) if name.startswith("lethe."))
        candidates = (
            ROOT.joinpath(*parts).with_suffix(".py")
            for module in modules
            for parts in (module, module[:-1])
            if parts[:1] == ["consumers"]
        )
        waiting += [candidate for candidate in candidates if candidate.is_file()]
    places = [path.relative_to(ROOT).parts for path in reached]
    assert {place[1] for place in places} == {"audit", "subscriber", "contract", "log"}
    assert {place[2] for place in places if place[1] == "audit"} == {"published"}


def test_the_engine_imports_nothing_of_the_consumers() -> None:
    for path in (ROOT / "engine").rglob("*.py"):
        assert not any(name.startswith("lethe.consumers") for name in imported(path)), path


def test_the_mathematics_do_not_import_the_store() -> None:
    store = ROOT / "engine" / "store"
    for path in (ROOT / "engine").rglob("*.py"):
        if not path.is_relative_to(store):
            assert not any(name.startswith("lethe.engine.store") for name in imported(path)), path


@pytest.mark.parametrize("package", PARTS)
def test_the_parts_of_a_package_import_downwards(package: str) -> None:
    parts = PARTS[package]
    folder, prefix = ROOT / package, f"lethe.{package.replace('/', '.')}."
    assert {path.parent.name for path in folder.glob("*/__init__.py")} == {*parts} - {""}
    for path in folder.rglob("*.py"):
        *above, _ = path.relative_to(folder).parts
        part = above[0] if above else ""
        for name in imported(path):
            if name.startswith(prefix):
                first = name.removeprefix(prefix).split(".")[0]
                below = first if first in parts else ""
                assert parts.index(part) <= parts.index(below), f"{path} imports {name}"


def test_workers_and_commands_load_no_optional_extra() -> None:
    """They are imported where they are asked for: some take seconds, most installs lack them.

    Of OpenTelemetry, traces are meant: redis-py imports the metrics wherever they are installed.
    """
    names = (
        "workers.supervisor",
        "subscriber.subscriber",
        "cli.run.work",
        "cli.maintain.export",
        "cli.run.mirror",
    )
    modules = ", ".join(f"lethe.consumers.{name}" for name in names)
    look = f"import sys, lethe, {modules}; print(*sys.modules)"
    loaded = subprocess.run(
        [sys.executable, "-c", look], capture_output=True, text=True, check=True, cwd=ROOT
    )
    extras = {"fastapi", "mlflow", "onnx", "openlineage", "opentelemetry.sdk.trace", "skops"}
    assert not extras & set(loaded.stdout.split())


@pytest.mark.parametrize(
    "package",
    [f"engine/{name}" for name in ("fit", "deletion", "error", "preprocess", "refresh", "store")]
    + [f"{package}/{part}" for package, parts in PARTS.items() for part in parts if part]
    + [f"consumers/{name}" for name in ("commits", "service", "cli", "audit", "server")],
)
def test_a_large_package_lists_its_modules(package: str) -> None:
    """And so a reader need not open each to know what it is for."""
    files = (ROOT / package).glob("*.py")
    doc = ast.get_docstring(ast.parse((ROOT / package / "__init__.py").read_text())) or ""
    items = re.findall(r"^- ((?:`\w+`(?:, )?)+): ", doc, re.MULTILINE)
    listed = {name for item in items for name in re.findall(r"\w+", item)}
    parts = {path.parent.name for path in (ROOT / package).glob("*/__init__.py")}
    assert listed - parts == {path.stem for path in files} - {"__init__"}
    assert package not in PARTS or listed >= parts


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(ROOT)))
def test_everything_is_imported_as_lethe(path: Path) -> None:
    """By another name it would be another module, with classes of its own."""
    assert not any(name.split(".")[0] in ("consumers", "engine") for name in imported(path))
