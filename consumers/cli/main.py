"""The group ``lethe``, its exit codes, and the one place where an error becomes a line.

Subcommands are imported on demand, so that ``lethe --help`` does not wait for NumPy; their one-line
summaries are kept here too, and a test compares them with the commands.
"""

from __future__ import annotations

import difflib
import errno
import importlib
import json
import os
import sys
from collections.abc import Sequence
from types import MappingProxyType
from typing import Any

import click

from lethe.consumers.cli.terminal.options import Flags, global_options

INTERRUPTED = 130  # as a shell reports SIGINT
BROKEN_PIPE = 141  # as a shell reports SIGPIPE
BUG = 70  # EX_SOFTWARE of sysexits.h

COMMANDS = MappingProxyType(
    {
        "demo": ("demo.command", "Show the main job on real data, in under a minute."),
        "sample": ("cli.maintain.sample", "Write sample data to try the commands with."),
        "register": ("cli.maintain.register", "Fit a model from a file and publish it."),
        "unregister": (
            "cli.maintain.unregister",
            "Delete a model's rows and state; its history stays.",
        ),
        "work": ("cli.run.work", "Run the workers until SIGTERM."),
        "serve": ("cli.run.serve", "Serve the HTTP API and the console until SIGTERM."),
        "delete": ("cli.send.delete", "Send one deletion request."),
        "erase": ("cli.send.erase", "Erase a person from every model."),
        "erasures": ("cli.show.erasures", "Show erasures of persons, finished or not."),
        "insert": ("cli.send.change", "Add rows to a model."),
        "correct": ("cli.send.change", "Replace rows of a model by corrected ones."),
        "reconcile": ("cli.send.reconcile", "Delete the rows that a table no longer has."),
        "status": ("cli.show.status", "Show models, errors against budgets, and lag."),
        "versions": ("cli.show.versions", "Show a model's versions, each link checked."),
        "export": ("cli.maintain.export", "Write the newest parameters to a file."),
        "mirror": (
            "cli.run.mirror",
            "Keep a model registry at the newest versions, and delete older ones.",
        ),
        "verify": ("cli.check.verify", "Compare a model with an independent refit."),
        "summary": (
            "cli.show.summary",
            "Show a linear model's standard errors, tests and intervals.",
        ),
        "receipt": ("cli.show.receipt", "Show what became of one request or erasure."),
        "disclosure": ("cli.show.disclosure", "Show what published versions disclose of rows."),
        "audit": ("cli.check.audit", "Check a model's whole published history."),
        "refresh": (
            "cli.maintain.refresh",
            "Schedule a refresh of one model, or of all that are due.",
        ),
        "dead-letters": (
            "cli.show.dead_letters",
            "Show requests that could not be read; replay them.",
        ),
        "check": ("cli.check.check", "Check servers, topics and stored invariants."),
        "recover": (
            "cli.maintain.recover",
            "Last resort: continue after the log lost commits, or a topic.",
        ),
        "key": ("cli.maintain.key", "Create keys: to sign, to seal commits, to call the HTTP API."),
    }
)
"""By command name: its module in `lethe.consumers`, which defines the command; its summary."""


class LazyGroup(click.Group):
    """A group that imports subcommands on demand."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names in the order in which a new user needs them."""
        del ctx
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import a subcommand."""
        if cmd_name not in COMMANDS:
            return None
        module = f"lethe.consumers.{COMMANDS[cmd_name][0]}"
        try:
            command = getattr(importlib.import_module(module), cmd_name.replace("-", "_"))
        except ModuleNotFoundError as error:
            if error.name is not None and module.startswith(error.name):
                raise click.UsageError(f"this install has no {module}", ctx) from error
            raise
        return command if isinstance(command, click.Command) else None

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find a command by name; for a misspelt one, suggest the closest."""
        if args[0] not in COMMANDS:
            matches = difflib.get_close_matches(args[0], COMMANDS, n=1)
            hint = f"; did you mean {matches[0]!r}?" if matches else ""
            ctx.fail(f"there is no command {args[0]!r}{hint}")
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """List the subcommands without importing them."""
        del ctx
        with formatter.section("Commands"):
            formatter.write_dl([(name, summary) for name, (_, summary) in COMMANDS.items()])

    def invoke(self, ctx: click.Context) -> Any:
        """Run; if the reader of the output has gone, exit quietly."""
        try:
            answer = super().invoke(ctx)
            sys.stdout.flush()
        except BrokenPipeError:
            # Flushing what is still buffered for stdout would fail again at exit.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            return BROKEN_PIPE
        return answer


@click.group(
    cls=LazyGroup,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)
@click.version_option(package_name="lethe-engine", prog_name="lethe")
@global_options
@click.pass_context
def lethe(ctx: click.Context) -> None:
    """Make trained models forget rows: deletion events in, checked model versions out.

    \b
    Getting started:
      lethe demo                           see it work
      lethe sample churn.csv               data to try it with
      lethe register churn --data churn.csv --id customer --target left \\
        --kind logistic --ridge 1
      lethe work                           run the workers (another terminal)
      lethe delete churn --row u17 --wait  forget one row, wait for the receipt
      lethe verify churn                   compare with retraining from scratch

    Without --kafka, the log is kept in Redis (single-node mode); without --redis, an embedded
    Valkey runs on --data-dir. Every option below may be given before or after the command, and
    every one has an environment variable.

    Exit codes: 0 success; 1 a negative result (verify failed, unhealthy, a request was rejected);
    2 wrong usage or input; 3 a required server cannot be reached.
    """  # noqa: D301 - click looks for the character
    ctx.ensure_object(Flags)


def run(arguments: Sequence[str] | None = None) -> int:
    """Run the command; return its exit code. Users never see a traceback."""
    words = sys.argv[1:] if arguments is None else list(arguments)
    as_json = "--json" in words
    try:
        answer = lethe.main(words, prog_name="lethe", standalone_mode=False)
    except click.exceptions.NoArgsIsHelpError as usage:
        click.echo(usage.format_message())
        return 0
    except click.ClickException as error:
        _say(_one_line(error))
        return _fail(as_json, error.exit_code, "USAGE", error.format_message())
    except (click.Abort, KeyboardInterrupt):
        return _interrupted(words, as_json)
    except Exception as error:  # the last place that can say something useful
        return explain(error, as_json=as_json)
    return answer if isinstance(answer, int) else 0


_SAME_FILE = (
    "a request that was sent will be processed; the same rows sent again are the same requests"
)
_AFTER_INTERRUPT = MappingProxyType(
    {
        "register": "a version is published completely or not at all: `lethe status` shows which",
        "unregister": "a model is unregistered completely or not at all: `lethe status` shows it",
        "recover": "each model is recovered completely or not at all; run it again for the others",
        "delete": "a request that was sent will be processed; sent again with its --request-id, it "
        "is answered again, but not executed again",
        "erase": "an erasure that was sent will be processed; sent again with its --erasure-id, it "
        "is answered again, but not executed again",
        "insert": _SAME_FILE,
        "dead-letters": "what was sent again will be processed",
        "correct": _SAME_FILE,
        "reconcile": "a request that was sent will be processed; run again, it sends the rest",
        "work": "committed requests stand, and the next worker reads the others again",
        "refresh": "a refresh that was scheduled will be done",
        "mirror": "a version is deleted only once the next is registered; run it again for others",
        "serve": "a request that was acknowledged will be processed",
    }
)
"""By command, what holds after it was interrupted; the others change nothing."""


def _interrupted(words: list[str], as_json: bool) -> int:
    """Report that the command stopped, and what is certain to hold."""
    command = next((word for word in words if word in COMMANDS), "")
    message = f"stopped; {_AFTER_INTERRUPT.get(command, 'nothing was changed')}"
    _say(message)
    return _fail(as_json, INTERRUPTED, "INTERRUPTED", message)


def explain(error: Exception, *, as_json: bool) -> int:
    """Say in one line what an error means, and return its exit code."""
    from lethe.engine.errors import LetheError  # noqa: PLC0415 - half a second that --help does not need

    if isinstance(error, LetheError):
        _say(str(error))
        return _fail(as_json, error.exit_code, error.code, str(error))
    if isinstance(error, OSError) and error.errno == errno.ENOSPC:
        name = error.filename or "a file"
        full = f"the disk is full: {name} could not be written; free some space"
        _say(full)
        return _fail(as_json, 2, "DISK_FULL", full)
    if os.environ.get("LETHE_LOG_LEVEL", "").upper() == "DEBUG":
        raise error
    reason = str(error).partition("\n")[0]
    message = (
        f"{type(error).__name__}: {reason}; this is a bug; run with LETHE_LOG_LEVEL=DEBUG for the "
        "traceback"
    )
    _say(message)
    return _fail(as_json, BUG, "BUG", message)


def _one_line(error: click.ClickException) -> str:
    """Return a usage error in one line, with a hint to the command's help."""
    message = " ".join(error.format_message().split())
    if isinstance(error, click.NoSuchOption) and error.possibilities:
        nearest = difflib.get_close_matches(error.option_name, error.possibilities, n=1, cutoff=0)
        message = f"there is no option {error.option_name!r}; did you mean {nearest[0]!r}?"
    context = error.ctx if isinstance(error, click.UsageError) else None
    if context is None:
        return message
    link = " See" if message.endswith("?") else "; see"
    return f"{message.rstrip('.')}{link} `{context.command_path} --help`"


def _say(message: str) -> None:
    click.echo(f"lethe: {message}", err=True)


def _fail(as_json: bool, exit_code: int, code: str, message: str) -> int:
    if as_json:
        document = {"error": {"code": code, "message": message}}
        try:
            click.echo(json.dumps(document, indent=2))
        except BrokenPipeError:
            return BROKEN_PIPE
    return exit_code
