"""What the runbooks tell somebody to type, look for and set exists."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import Any

import click
import pytest
import yaml

from lethe.consumers.cli.main import COMMANDS, lethe
from lethe.consumers.service.configuration.settings import Settings

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "runbooks.md").read_text()
_COMMAND = rf"(?<![\w/])lethe ((?:{'|'.join(COMMANDS)})\b[^`\n]*?)(?=`|  |\n)"
TYPED = sorted(set(re.findall(_COMMAND, PAGE)))
SOURCES = "\n".join(
    path.read_text(encoding="utf-8")
    for folder in ("consumers", "engine")
    for path in (ROOT / folder).rglob("*.py")
)


def test_there_are_commands_to_check() -> None:
    assert {line.split()[0] for line in TYPED} >= {"status", "check", "refresh"}


@pytest.mark.parametrize("line", TYPED)
def test_a_command_takes_the_options_that_are_typed(line: str) -> None:
    name, *words = shlex.split(line)
    command = lethe.get_command(click.Context(lethe), name)
    assert command is not None
    known = {option for parameter in command.params for option in parameter.opts}
    assert {word for word in words if word.startswith("-")} <= known


@pytest.mark.parametrize("action", sorted(set(re.findall(r"`action=(\w+)`", PAGE))))
def test_a_line_of_the_log_that_is_looked_for_is_written(action: str) -> None:
    assert f'"{action}"' in SOURCES


@pytest.mark.parametrize("name", sorted(set(re.findall(r"`(LETHE_[A-Z_]+)`", PAGE))))
def test_a_setting_that_is_named_exists(name: str) -> None:
    assert name.removeprefix("LETHE_").lower() in Settings.model_fields


@pytest.mark.parametrize("code", sorted(set(re.findall(r"`(?!LETHE_)([A-Z]+_[A-Z_]+)`", PAGE))))
def test_a_code_that_is_named_exists(code: str) -> None:
    assert code in SOURCES


def test_a_value_of_the_chart_that_is_named_exists() -> None:
    values: dict[str, Any] = yaml.safe_load((ROOT / "deploy/helm/lethe/values.yaml").read_text())
    named = set(re.findall(r"`((?:workers|networkPolicy|monitoring|autoscaling)\.[\w.]+)`", PAGE))
    assert named
    for path in named:
        value: Any = values
        for part in path.split("."):
            assert part in value, path
            value = value[part]
