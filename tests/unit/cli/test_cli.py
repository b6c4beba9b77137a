"""The command line, as far as no server is asked: options, refusals, text, and the last resort."""

from __future__ import annotations

import errno
import json
import logging
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import click
import pytest
import structlog

from lethe.consumers.cli import main
from lethe.consumers.cli.maintain.register import register
from lethe.consumers.cli.show.status import error_line
from lethe.consumers.cli.terminal.options import parse_duration, parse_limit, parse_wait
from lethe.consumers.cli.terminal.output import duration, error_number, plain_table
from lethe.consumers.demo import command as demo_command

REGISTER = ("register", "m", "--id", "id", "--target", "y", "--kind", "linear")


@pytest.fixture(autouse=True)
def _logging_is_put_back(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    monkeypatch.setenv("LETHE_DATA_DIR", str(tmp_path / "data"))
    monkeypatch.delenv("LETHE_LOG_LEVEL", raising=False)
    handlers = logging.getLogger().handlers[:]
    yield
    structlog.reset_defaults()
    logging.getLogger().handlers[:] = handlers


def test_summaries_of_the_group_are_those_of_the_commands() -> None:
    context = click.Context(main.lethe)
    for name, (_, summary) in main.COMMANDS.items():
        if name == "demo":
            continue  # it says more to those who ask it
        command = main.lethe.get_command(context, name)
        assert command is not None
        assert command.get_short_help_str(200) == summary


def test_an_error_that_is_not_known_is_said_to_be_so_and_not_a_number() -> None:
    assert (error_number(None), error_number(0.00681)) == ("unknown", "0.00681")
    unknown = {"relative": None, "value": None, "bound": None, "kind": "unknown", "budget": 0.01}
    assert error_line(unknown) == (
        "unknown, which counts as over its budget of 0.01; a refresh measures it"
    )
    known = {"relative": 0.5, "value": 1.0, "bound": None, "kind": "estimate", "budget": 0.01}
    assert error_line(known) == "0.5 of a budget of 0.01 (estimate, absolute 1, bound -)"


def test_every_command_takes_the_global_options() -> None:
    context = click.Context(main.lethe)
    shared = {"--redis", "--kafka", "--data-dir", "--log-level", "--log-format", "--json"}
    for name in main.COMMANDS:
        command = main.lethe.get_command(context, name)
        assert command is not None
        if name != "demo":  # which has servers of its own
            assert shared <= {option for p in command.params for option in p.opts}, name


def test_help_of_register_lists_each_of_its_options_once_under_a_heading() -> None:
    grouped = register.get_help(click.Context(register))
    plain = click.Command("register", params=[*register.params])
    # click keeps the help option as it first made it: as -h, --help once `lethe` has called this.
    named = re.compile(r"^  (?:-h, )?(--[a-z-]+)", re.MULTILINE)
    listed = Counter(named.findall(plain.get_help(click.Context(plain))))
    assert Counter(named.findall(grouped)) == listed, grouped
    shared = ["--redis", "--kafka", "--data-dir", "--log-level", "--log-format", "--json", "--help"]
    assert named.findall(grouped.split("\n\nOptions:\n")[1]) == shared


def test_help_fits_on_a_terminal_of_80_columns(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    context = click.Context(main.lethe, info_name="lethe", max_content_width=100)
    pages = {"lethe": main.lethe.get_help(context)}
    for name in main.COMMANDS:
        command = main.lethe.get_command(context, name)
        assert command is not None
        inner = click.Context(command, context, name)
        pages[name] = command.get_help(inner)
        for part in getattr(command, "commands", {}).values():
            pages[f"{name} {part.name}"] = part.get_help(click.Context(part, inner, part.name))

    wide = [(name, line) for name, page in pages.items() for line in page.split("\n") if line[79:]]
    assert wide == []
    assert "--log-format" in pages["key issue"]


_OLDER_CLICK = """
import click
click.ParamType = type("ParamType", (click.ParamType,), {"__class_getitem__": None})
from lethe.consumers.cli import main
for name in main.COMMANDS:
    main.lethe.get_command(click.Context(main.lethe), name)
"""


def test_click_s_types_take_no_parameters_at_run_time() -> None:
    """Before its version 8.4, which pyproject.toml allows, they are not generic."""
    done = subprocess.run(
        [sys.executable, "-c", _OLDER_CLICK], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    ("text", "seconds"), [("30s", 30.0), ("15m", 900.0), ("24h", 86_400.0), ("7d", 604_800.0)]
)
def test_a_duration_is_seconds(text: str, seconds: float) -> None:
    assert parse_duration(text) == seconds


@pytest.mark.parametrize("text", ["7d", "36h", "90m", "45s", "0.5s"])
def test_a_duration_is_shown_as_it_is_written(text: str) -> None:
    assert duration(parse_duration(text)) == text


@pytest.mark.parametrize("text", ["", "30", "-1s", "0s", "1y", "1h30m", "nan s"])
def test_what_is_no_duration_is_refused(text: str) -> None:
    with pytest.raises(click.BadParameter, match="is not a duration"):
        parse_duration(text)


def test_a_limit_is_a_name_and_a_number() -> None:
    assert parse_limit("floor-rows=64") == ("floor_rows", 64.0)
    for wrong in ("floor_rows", "floor_rows=", "floor_rows=many"):
        with pytest.raises(click.BadParameter):
            parse_limit(wrong)


@pytest.mark.parametrize("text", ["soon", "0", "-1", "nan", "inf"])
def test_what_is_no_time_to_wait_is_refused(text: str) -> None:
    with pytest.raises(click.BadParameter, match="write --wait last"):
        parse_wait(text)


def test_a_plain_table_is_aligned_and_never_cut() -> None:
    wide = "x" * 300

    assert plain_table(["A", "N>"], [["a", "1"], [wide, "100"]]) == [
        f"{'A':<300}    N",
        f"{'a':<300}    1",
        f"{wide}  100",
    ]


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ((*REGISTER, "--data", "x.csv", "--ridge", "0"), "--ridge must be a finite number above 0"),
        ((*REGISTER, "--data", "x.csv", "--ridge", "nan"), "--ridge must be a finite number"),
        ((*REGISTER, "--data", "x.csv", "--ridge", "1", "--error-budget", "-1"), "--error-budget"),
        ((*REGISTER, "--data", "x.csv", "--ridge", "1", "--limit", "patience=3"), "no limit"),
        ((*REGISTER, "--data", "x.csv", "--ridge", "1", "--limit", "completions=1.5"), "whole"),
        ((*REGISTER, "--data", "x.csv", "--ridge", "1"), "x.csv: cannot be read (No such file"),
        ((*REGISTER, "--data", "x.doc", "--ridge", "1"), "must end in .parquet or .csv"),
        *(
            (
                ("register", name, *REGISTER[2:], "--data", "x.csv", "--ridge", "1"),
                "is not a valid model name",
            )
            for name in (" m", ".", "..")
        ),
        ((*REGISTER, "--data", ".", "--ridge", "1"), ".: is a directory"),
        (("delete", "m", "--row", ""), "row_ids.0: String should have at least 1 character"),
        (("delete", "m", "--row", "x" * 129), "at most 128 characters"),
        (("delete", "m", "--row", "x", "--request-id", f"erasure-{'0' * 48}"), "choose another"),
        (("delete", "m", "--rows-file", "none.txt"), "none.txt: cannot be read"),
        (("export", "m", "--out", "m.pickle"), "must end in .json, .safetensors, .npz"),
        (("status", "--redis", "redis://:sec/ret@host:port/0"), "--redis (LETHE_REDIS_URL)"),
    ],
)
def test_bad_input_is_2_and_one_line(
    capsys: pytest.CaptureFixture[str], arguments: tuple[str, ...], expected: str
) -> None:
    code = main.run([*arguments, "--json"])

    said = capsys.readouterr()
    assert code == 2
    assert said.err.startswith("lethe: ")
    assert said.err.count("\n") == 1
    assert expected in said.err
    assert expected in json.loads(said.out)["error"]["message"]
    assert "ret@" not in said.err + said.out


@pytest.mark.parametrize(
    "arguments",
    [
        ("delete", "m"),
        ("delete", "m", "--row", "a", "--subject", "s"),
        ("delete", "m", "a"),
        ("delete", "--row", "a", "--wait", "m"),
        ("refresh",),
        ("refresh", "m", "--due"),
        ("work", "everything"),
        ("work", "--min-batch", "1001"),
        ("forget",),
    ],
)
def test_wrong_usage_is_2(capsys: pytest.CaptureFixture[str], arguments: tuple[str, ...]) -> None:
    assert main.run(arguments) == 2
    said = capsys.readouterr()
    assert said.err.count("\n") == 1
    assert "--help`" in said.err
    assert said.out == ""


def test_a_bare_command_prints_its_help(capsys: pytest.CaptureFixture[str]) -> None:
    for arguments in ([], ["key"]):
        assert main.run(arguments) == 0
        said = capsys.readouterr()
        assert said.out.startswith("Usage: lethe")
        assert said.err == ""


def test_a_misspelt_command_is_asked_about(capsys: pytest.CaptureFixture[str]) -> None:
    assert main.run(["delte", "m"]) == 2
    said = capsys.readouterr().err
    assert said == "lethe: there is no command 'delte'; did you mean 'delete'? See `lethe --help`\n"


def test_a_number_that_is_none_or_missing_is_said_plainly(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main.run([*REGISTER, "--data", "x.csv"]) == 2
    assert (
        "give --ridge, or a fitted estimator with --from; 1 is a usual start; see"
        in capsys.readouterr().err
    )
    assert main.run([*REGISTER, "--data", "x.csv", "--ridge", "abc"]) == 2
    assert "'--ridge': 'abc' is not a number; see" in capsys.readouterr().err


def test_too_many_rows_are_refused_before_anything_is_sent(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    rows = tmp_path / "rows.txt"
    rows.write_text("\n".join(f"u{i}" for i in range(10_001)))

    assert main.run(["delete", "m", "--rows-file", str(rows)]) == 2
    assert "10001 rows; a request names at most 10000" in capsys.readouterr().err


def test_a_bug_is_one_line_without_a_traceback(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object, **__: object) -> None:
        raise RuntimeError("the first line\nthe second")

    monkeypatch.setattr(main.lethe, "main", broken)

    assert main.run(["status", "--json"]) == main.BUG
    said = capsys.readouterr()
    assert said.err == (
        "lethe: RuntimeError: the first line; this is a bug; run with LETHE_LOG_LEVEL=DEBUG for "
        "the traceback\n"
    )
    assert json.loads(said.out)["error"]["code"] == "BUG"
    monkeypatch.setenv("LETHE_LOG_LEVEL", "DEBUG")
    with pytest.raises(RuntimeError):
        main.run(["status"])


def test_an_interruption_is_130_and_says_what_stands(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupted(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(main.lethe, "main", interrupted)

    assert main.run(["status"]) == 130
    assert capsys.readouterr().err == "lethe: stopped; nothing was changed\n"
    assert main.run(["--json", "delete", "m", "--row", "a"]) == 130
    said = capsys.readouterr()
    assert "a request that was sent will be processed" in said.err
    assert json.loads(said.out)["error"]["code"] == "INTERRUPTED"


def test_a_full_disk_is_called_so(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def full(*_: object, **__: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device", "m.json")

    monkeypatch.setattr(main.lethe, "main", full)

    assert main.run(["export", "m"]) == 2
    assert "the disk is full: m.json could not be written" in capsys.readouterr().err


def test_sample_data_are_the_same_each_time_and_write_over_nothing(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    one, two = tmp_path / "one.csv", tmp_path / "two.csv"
    assert main.run(["sample", str(one)]) == main.run(["sample", str(two), "--json"]) == 0
    assert one.read_bytes() == two.read_bytes()
    assert len(one.read_text().splitlines()) == 2001
    printed = capsys.readouterr().out
    assert json.loads(printed[printed.index("{") :])["rows"] == 2000
    assert main.run(["sample", str(one)]) == 2
    assert "already exists; --force overwrites it" in capsys.readouterr().err
    assert main.run(["sample", str(one), "--force"]) == 0
    assert main.run(["sample", str(tmp_path / "rows.parquet")]) == 2


@pytest.mark.parametrize("position", ["before", "after"])
def test_options_reach_the_demo_wherever_they_are_written(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, position: str
) -> None:
    seen: list[tuple[Path, bool]] = []

    def perform(_console: object, directory: Path, _out: Path, *, as_json: bool) -> int:
        seen.append((directory, as_json))
        return 0

    monkeypatch.setattr(demo_command, "_perform", perform)
    options, out = ["--json", "--data-dir", str(tmp_path / "kept")], ["--out", str(tmp_path)]
    line = [*options, "demo", *out] if position == "before" else ["demo", *options, *out]

    assert main.run(line) == 0
    assert seen == [(tmp_path / "kept", True)]


def test_the_demo_takes_no_servers(capsys: pytest.CaptureFixture[str]) -> None:
    assert main.run(["--kafka", "localhost:9092", "demo"]) == 2
    assert "the demo runs on servers of its own; leave out --kafka" in capsys.readouterr().err
