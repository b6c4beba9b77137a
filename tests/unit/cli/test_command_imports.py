"""A command loads no package that it does not need: some take longer than what it does."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from lethe.consumers.cli.main import COMMANDS
from tests.support.command_imports import FORBIDDEN, forbidden_imports


def test_every_command_has_its_place_in_the_table() -> None:
    listed = [f"cli.{module}" for modules in FORBIDDEN for module in modules]
    assert len(listed) == len(set(listed))
    assert {module for module, _ in COMMANDS.values()} - {"demo.command"} <= set(listed)


@pytest.mark.parametrize("modules", FORBIDDEN, ids=lambda modules: modules[0])
def test_commands_import_no_package_that_the_table_forbids(modules: Sequence[str]) -> None:
    assert forbidden_imports(modules, FORBIDDEN[tuple(modules)]) == []


def test_the_chain_that_led_to_a_package_is_named() -> None:
    (chain,) = forbidden_imports(["maintain.key"], ["structlog"])
    first, *between, last = chain.split(" > ")
    assert (first, last) == ("lethe.consumers.cli.maintain.key", "structlog")
    assert "lethe.consumers.cli.terminal.output" in between
