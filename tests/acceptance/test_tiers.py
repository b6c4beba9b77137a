"""The patterns of `tests.support.tiers` name tests that exist, and leave each tier its tests."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import pytest

from tests.support import tiers
from tests.support.servers import ROOT

pytestmark = pytest.mark.xdist_group("tiers")  # what is collected serves them all

_COLLECT = """
import sys, pytest

class Listing:
    def pytest_collection_finish(self, session):
        for item in session.items:
            marks = (str(item.get_closest_marker(m) is not None) for m in ("kafka", "thorough"))
            print("listed", *marks, item.nodeid, sep="\\t")

options = ["--collect-only", "-q", "-n", "0", "-p", "no:cacheprovider", "tests"]
sys.exit(pytest.main(options, plugins=[Listing()]))
"""


class Collected(NamedTuple):
    """A test: its id, whether it needs a real Kafka, and whether `make test` leaves it out."""

    name: str
    kafka: bool
    thorough: bool


class Kind(NamedTuple):
    """Tests of one directory with a real Kafka, or without."""

    under: str
    kafka: bool = False


KEPT = (
    Kind("tests/unit/"),
    Kind("tests/integration/"),
    Kind("tests/integration/", kafka=True),
    Kind("tests/acceptance/"),
    Kind("tests/studies/"),
    Kind("tests/proof/"),
    Kind("tests/proof/properties/"),
)
"""What `make test` has some of. On a real Kafka it keeps the main paths, which are integration."""

LEFT_OUT = (
    Kind("tests/integration/"),
    Kind("tests/integration/", kafka=True),
    Kind("tests/acceptance/"),
    Kind("tests/acceptance/", kafka=True),
    Kind("tests/studies/"),
    Kind("tests/proof/"),
    Kind("tests/proof/", kafka=True),
    Kind("tests/proof/properties/"),
)
"""What only `make test-all` has more of: of all but the unit tests."""


@pytest.fixture(scope="module")
def collected() -> list[Collected]:
    """Every test, as pytest names and marks it."""
    command = [sys.executable, "-c", _COLLECT]
    run = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=300, check=True)
    listed = [line.split("\t", 3) for line in run.stdout.splitlines() if line.startswith("listed")]
    return [Collected(name, kafka == "True", mark == "True") for _, kafka, mark, name in listed]


def without_tests(collected: Sequence[Collected]) -> list[str]:
    """Return the kinds of which a tier should have tests, and has none."""
    kept, left_out = set[Kind](), set[Kind]()
    for test in collected:
        thorough = tiers.is_thorough(test.name, kafka=test.kafka)
        kinds = {kind for kind in (*KEPT, *LEFT_OUT) if test.name.startswith(kind.under)}
        (left_out if thorough else kept).update(k for k in kinds if k.kafka == test.kafka)
    return [
        *(f"make test: {kind}" for kind in KEPT if kind not in kept),
        *(f"make test-thorough: {kind}" for kind in LEFT_OUT if kind not in left_out),
    ]


def test_every_pattern_matches_a_test(collected: list[Collected]) -> None:
    patterns = {
        *tiers.THOROUGH,
        *(tiers.INTEGRATION + path for path in tiers.ON_KAFKA),
        *(tiers.ACCEPTANCE + path for path in tiers.MAIN_JOB),
    }
    names = [test.name for test in collected]
    stale = {p for p in patterns if not any(name.startswith(p) for name in names)}
    assert not stale
    properties = [name for name in names if name.startswith(tiers.PROPERTIES)]
    assert not {part for part in tiers.BATTERY if not any(part in name for name in properties)}


def test_each_tier_has_tests_of_every_kind(collected: list[Collected]) -> None:
    assert without_tests(collected) == []
    wrong = [t for t in collected if t.thorough != tiers.is_thorough(t.name, kafka=t.kafka)]
    assert wrong == []


def with_extras() -> Iterator[str]:
    """Yield the tests that need what only `make setup-all` installs, by themselves or a helper."""
    for path in sorted((ROOT / "tests").rglob("test_*.py")):
        text = path.read_text()
        needing = {
            "importorskip",
            *(["need"] if "from tests.support.extras import" in text else ()),
        }
        functions = [f for f in ast.walk(ast.parse(text)) if isinstance(f, ast.FunctionDef)]
        for _ in functions:  # a helper of a helper
            needing |= {function.name for function in functions if used_by(function) & needing}
        every = any(used_by_all(function) for function in functions if function.name in needing)
        tests = (f.name for f in functions if f.name.startswith("test_"))
        tests = (name for name in tests if every or name in needing)
        yield from (f"{path.relative_to(ROOT)}::{name}" for name in tests)


def used_by(function: ast.FunctionDef) -> set[str]:
    """Return the names of what a function calls, and of its fixtures."""
    called = [node.func for node in ast.walk(function) if isinstance(node, ast.Call)]
    return {
        *(argument.arg for argument in function.args.args),
        *(node.id for node in called if isinstance(node, ast.Name)),
        *(node.attr for node in called if isinstance(node, ast.Attribute)),
    }


def used_by_all(function: ast.FunctionDef) -> bool:
    """Return whether a function is a fixture of every test of its module."""
    return any("autouse=True" in ast.unparse(one) for one in function.decorator_list)


def test_only_thorough_tests_need_what_make_setup_does_not_install(
    collected: list[Collected],
) -> None:
    needing = set(with_extras())
    assert any(name.startswith("tests/unit/export/test_mlflow.py::") for name in needing)
    kept = {test.name.partition("[")[0] for test in collected if not test.thorough}
    assert sorted(needing & kept) == []


@pytest.mark.parametrize("patterns", ["THOROUGH", "BATTERY", "MAIN_JOB", "ON_KAFKA"])
def test_a_list_that_is_lost_leaves_a_tier_without_tests(
    collected: list[Collected], monkeypatch: pytest.MonkeyPatch, patterns: str
) -> None:
    monkeypatch.setattr(tiers, patterns, ())
    assert without_tests(collected) != []
