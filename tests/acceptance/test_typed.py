"""The commands of the README and of two pages of the docs work as they are printed."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.servers import ROOT
from tests.support.typed import Typed, commands_of, type_all

pytestmark = [pytest.mark.redis, pytest.mark.slow]


@pytest.mark.parametrize("page", ["README.md", "docs/cli.md", "docs/last-layer.md", "docs/http.md"])
def test_the_commands_of_a_page_print_what_it_says(page: str, tmp_path: Path) -> None:
    """Given a reader who types a page from top to bottom, each command prints what the page has.

    `python -m tests.support.typed PAGE --write` puts what they print now into it.
    """
    commands = commands_of((ROOT / page).read_text(encoding="utf-8"))
    assert len(commands) >= 5

    type_all(commands, tmp_path)

    for one in commands:
        shown = "\n".join(one.printed)
        assert one.agrees, f"{page}:{one.line + 1}: {one.command} printed\n{shown}"


def test_a_command_that_prints_something_else_is_found(tmp_path: Path) -> None:
    page = """
    $ echo one 12
    one 13
    $ echo two
    three

    $ printf 'a\\nb\\n'
    ...
    b
"""
    found = commands_of(page)
    type_all(found, tmp_path)
    assert [one.agrees for one in found] == [True, False, True]
    assert isinstance(found[0], Typed)


def test_a_here_document_is_one_command_with_its_blank_lines(tmp_path: Path) -> None:
    page = """
    $ cat <<'END'
    one

      two
    END
    one

      two

    $ echo three
    four
"""
    found = commands_of(page)
    assert [one.command.count("\n") for one in found] == [4, 0]
    type_all(found, tmp_path)
    assert found[0].printed == ["one", "", "  two"]
    assert not found[1].agrees
