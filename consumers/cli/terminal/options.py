"""Options shared by all commands, and the types of option values."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import click

from lethe.consumers.service.configuration.durations import seconds_of

Command = TypeVar("Command", bound=Callable[..., Any])


@dataclass
class Flags:
    """Values of the global options, wherever they were given; the last one counts."""

    json: bool = False
    settings: dict[str, Any] = field(default_factory=dict)


def parse_duration(text: str) -> float:
    """Return a span of time such as 30s, 15m, 24h or 7d, in seconds."""
    seconds = seconds_of(text)
    if text.strip()[-1:].isdigit() or not isinstance(seconds, float) or seconds == 0:
        advice = "write 30s, 15m, 24h or 7d"
        raise click.BadParameter(f"{text!r} is not a duration above zero: {advice}")
    return seconds


def parse_table(text: str) -> Path | str:
    """Return where a table is: a path, or a URL, which stays text."""
    return text if "://" in text else Path(text)


def parse_limit(text: str) -> tuple[str, float]:
    """Return NAME=VALUE, a limit of the refresh policy, as the name and the number."""
    name, equals, number = text.partition("=")
    try:
        return name.strip().replace("-", "_"), float(number)
    except ValueError:
        expected = "a number" if equals else "NAME=VALUE"
        raise click.BadParameter(f"{text!r} is not {expected}") from None


def parse_wait(text: str) -> float:
    """Return how long to wait, in seconds."""
    try:
        seconds = float(text)
    except ValueError:
        seconds = -1.0
    if not 0 < seconds < 1e7:
        raise click.BadParameter(
            f"{text!r} is not a number of seconds: write --wait last, or --wait=30"
        )
    return seconds


class Number(click.types.FloatParamType):
    """A number; `advice` is said where a required one is missing."""

    def __init__(self, advice: str | None = None) -> None:
        self._advice = advice

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        """Return the number."""
        try:
            return float(value)
        except ValueError:
            self.fail(f"{value!r} is not a number", param, ctx)

    def get_missing_message(self, param: click.Parameter, ctx: click.Context | None) -> str | None:
        """Return the advice."""
        del param, ctx
        return self._advice


class GroupedCommand(click.Command):
    """A command whose help lists its options under headings.

    ``groups``: by heading, the parameters; those of no group are listed last.
    """

    def __init__(self, *args: Any, groups: Mapping[str, Sequence[str]], **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._headings = {name: heading for heading, names in groups.items() for name in names}

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the options, a section for each heading."""
        sections: dict[str, list[tuple[str, str]]] = {
            heading: [] for heading in [*self._headings.values(), "Options"]
        }
        for parameter in self.get_params(ctx):
            record = parameter.get_help_record(ctx)
            if record is not None and not isinstance(parameter, click.Argument):
                sections[self._headings.get(parameter.name or "", "Options")].append(record)
        for heading, records in sections.items():
            with formatter.section(heading):
                formatter.write_dl(records)


def _keep(name: str) -> Callable[[click.Context, click.Parameter, Any], None]:
    def callback(ctx: click.Context, _: click.Parameter, value: Any) -> None:
        if value is not None:
            ctx.ensure_object(Flags).settings[name] = value

    return callback


def _keep_json(ctx: click.Context, _: click.Parameter, value: bool) -> None:
    if value:
        ctx.ensure_object(Flags).json = True


class _GlobalOption(click.Option):
    """An option that every command takes; `lethe --help` alone explains it."""

    def get_help_record(self, ctx: click.Context) -> tuple[str, str] | None:
        """Return what help says; that of a subcommand has one line for all of them."""
        if ctx.parent is None:
            return super().get_help_record(ctx)
        names = "--redis, --kafka, --data-dir, --log-level, --log-format"
        return (names, "As in `lethe --help`.") if self.name == "redis" else None


_GLOBAL = [
    click.option(
        "--redis",
        cls=_GlobalOption,
        metavar="URL",
        expose_value=False,
        callback=_keep("redis_url"),
        help="Redis or Valkey (redis://, rediss://, unix://; a cluster: redis+cluster://). "
        "Default: LETHE_REDIS_URL, or an embedded Valkey on the data directory.",
    ),
    click.option(
        "--kafka",
        cls=_GlobalOption,
        metavar="HOST:PORT,...",
        expose_value=False,
        callback=_keep("kafka_bootstrap_servers"),
        help="Kafka. Default: LETHE_KAFKA_BOOTSTRAP_SERVERS, or Redis Streams.",
    ),
    click.option(
        "--data-dir",
        cls=_GlobalOption,
        type=click.Path(file_okay=False, path_type=Path),
        expose_value=False,
        callback=_keep("data_dir"),
        help="Where the embedded Valkey keeps its data. Default: LETHE_DATA_DIR, or "
        "~/.local/share/lethe.",
    ),
    click.option(
        "--log-level",
        cls=_GlobalOption,
        type=click.Choice(["DEBUG", "INFO", "WARNING", "ERROR"], case_sensitive=False),
        expose_value=False,
        callback=_keep("log_level"),
        help="Lowest level of log lines on stderr. Default: LETHE_LOG_LEVEL, or INFO.",
    ),
    click.option(
        "--log-format",
        cls=_GlobalOption,
        type=click.Choice(["console", "json"]),
        expose_value=False,
        callback=_keep("log_format"),
        help="Format of log lines on stderr. Default: LETHE_LOG_FORMAT, or console.",
    ),
    click.option(
        "--json",
        "as_json",
        is_flag=True,
        expose_value=False,
        callback=_keep_json,
        help="Print one JSON document on stdout instead of text.",
    ),
]


def global_options(command: Command) -> Command:
    """Add the global options to a command; their values end up in the context's `Flags`."""
    for option in reversed(_GLOBAL):
        command = option(command)
    return command


def pass_options(command: Command) -> Command:
    """Add ``--dask``, ``--workers`` and ``--spark``, which say what computes passes over rows."""
    command = click.option(
        "--spark",
        metavar="MASTER",
        expose_value=False,
        callback=_keep("spark_master"),
        help="Read rows in files on Spark: its own name of a cluster, or local[N] (extra `spark`). "
        "Default: LETHE_SPARK_MASTER.",
    )(command)
    command = click.option(
        "--workers",
        type=click.IntRange(1, 1024),
        metavar="N",
        expose_value=False,
        callback=_keep("dask_workers"),
        help="Read rows in files with N processes of this machine (extra `dask`). Default: "
        "LETHE_DASK_WORKERS, or this process alone.",
    )(command)
    return click.option(
        "--dask",
        metavar="ADDRESS",
        expose_value=False,
        callback=_keep("dask_address"),
        help="Read rows in files on the Dask cluster of this scheduler (docs/scale.md). Default: "
        "LETHE_DASK_ADDRESS.",
    )(command)


def sign_option(command: Command) -> Command:
    """Add ``--sign``, which sets the setting ``request_signing_key``."""
    return click.option(
        "--sign",
        type=click.Path(path_type=Path),
        metavar="KEYFILE",
        expose_value=False,
        callback=_keep("request_signing_key"),
        help="Sign what is sent with this private key (PEM). Default: LETHE_REQUEST_SIGNING_KEY, "
        "or no signature.",
    )(command)


def wait_option(awaited: str, seconds: int) -> Callable[[Command], Command]:
    """Return what adds ``--wait [S]``: for ``awaited``, ``seconds`` unless another number is given.

    Its value is None if it is not given.
    """
    return click.option(
        "--wait",
        type=parse_wait,
        is_flag=False,
        flag_value=str(seconds),
        metavar="[S]",
        help=f"Wait for {awaited}, at most S seconds (default {seconds}).",
    )


def cosigned_option(command: Command) -> Command:
    """Add ``--cosigned``, files of checkpoints."""
    return click.option(
        "--cosigned",
        multiple=True,
        type=click.Path(dir_okay=False, path_type=Path),
        metavar="FILE",
        help="A checkpoint that witnesses have cosigned (C2SP).",
    )(command)


def trust_option(command: Command) -> Command:
    """Add ``--trust``, which sets the setting ``trusted_keys``."""
    return click.option(
        "--trust",
        type=click.Path(dir_okay=False, path_type=Path),
        metavar="FILE",
        expose_value=False,
        callback=_keep("trusted_keys"),
        help="Public keys whose signatures count, one per line. Default: LETHE_TRUSTED_KEYS.",
    )(command)
