"""``lethe dead-letters``: records that could not be read or believed, listed, shown, sent again."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager
from typing import Any

import click

from lethe.consumers.cli.terminal.options import global_options
from lethe.consumers.cli.terminal.output import Output, counted, prepare
from lethe.consumers.contract.events import rfc3339
from lethe.consumers.deletions.dead_letters import (
    DeadLetter,
    count_letters,
    find_letter,
    last_letters,
    replay_message,
)
from lethe.consumers.log.base import Log, Reader
from lethe.consumers.service.connect import open_runtime

_COLUMNS = ("NUMBER>", "AT", "CODE", "CAME FROM", "WHY")


@click.group(name="dead-letters", short_help="Show requests that could not be read; replay them.")
@global_options
def dead_letters() -> None:
    """Show requests that could not be read or believed, and send them again.

    The deletion that was meant is not made. Tell the producer what is wrong with them; replay what
    was refused because of a fault on this side, such as a public key that workers did not have.

    \b
    Examples:
      lethe dead-letters list
      lethe dead-letters show 3
      lethe dead-letters replay 3 4
    """  # noqa: D301 - click looks for the character


@dead_letters.command(name="list", short_help="List the newest ones, the newest first.")
@click.option(
    "--limit", type=click.IntRange(1, 100_000), default=20, show_default=True,
    help="How many to list.",
)  # fmt: skip
@global_options
@click.pass_context
def list_letters(ctx: click.Context, /, *, limit: int) -> None:
    """List the newest dead letters: when, where they came from, and why they were refused."""
    with _opened(ctx) as (out, _, reader):
        count = count_letters(reader)
        letters = list(last_letters(reader, limit))[::-1]
    out.document({"kept": count.kept, "dead_letters": [facts_of(one) for one in letters]})
    if not letters:
        out.line("no dead letter")
        return
    rows = [
        (str(one.record.offset), rfc3339(one.at), one.code, place_of(one), one.detail)
        for one in letters
    ]
    out.table(_COLUMNS, rows)
    if count.kept > len(letters):
        out.line(f"{count.kept} in all; --limit shows more")


@dead_letters.command(short_help="Show one with its bytes.")
@click.argument("number", type=int)
@global_options
@click.pass_context
def show(ctx: click.Context, /, *, number: int) -> None:
    """Show dead letter NUMBER as its sender wrote it, which may name rows and persons."""
    with _opened(ctx) as (out, _, reader):
        letter = find_letter(reader, number)
    value = (letter.record.value or b"").decode("utf-8", errors="replace")
    headers = {name: content.decode("utf-8", errors="replace") for name, content in letter.headers}
    key = (letter.record.key or b"").decode("utf-8", errors="replace")
    out.document(facts_of(letter) | {"key": key, "headers": headers, "value": value})
    out.facts(
        {
            "refused": f"{rfc3339(letter.at)}: {letter.code}: {letter.detail}",
            "came from": place_of(letter),
            "key": key,
            **{f"header {name}": content for name, content in headers.items()},
            "value" if letter.whole else "digest": value,
        }
    )


@dead_letters.command(short_help="Send them again as they came.")
@click.argument("numbers", type=int, nargs=-1, required=True)
@global_options
@click.pass_context
def replay(ctx: click.Context, /, *, numbers: tuple[int, ...]) -> None:
    """Send the records of dead letters NUMBERS again, byte for byte, to the topic they came from.

    What is still wrong with them makes new dead letters. Each is processed once, however often it
    is sent. Nothing is sent unless all of them can be: the values of inserts and corrections are in
    no dead letter, and lethe.row-changes keeps them for hours.
    """
    with _opened(ctx) as (out, log, reader), closing(log.producer()) as producer:
        messages = [replay_message(reader, find_letter(reader, number)) for number in numbers]
        producer.publish(messages)
    out.document({"replayed": list(numbers), "topics": [one.topic for one in messages]})
    topics = ", ".join(sorted({one.topic for one in messages}))
    out.line(f"{counted(len(messages), 'record')} sent again to {topics}")


@contextmanager
def _opened(ctx: click.Context) -> Iterator[tuple[Output, Log, Reader]]:
    settings, out = prepare(ctx)
    with open_runtime(settings) as runtime, closing(runtime.log.reader()) as reader:
        yield out, runtime.log, reader


def facts_of(letter: DeadLetter) -> dict[str, Any]:
    """Return a letter as JSON, without what its sender wrote."""
    return {
        "number": letter.record.offset,
        "at": rfc3339(letter.at),
        "code": letter.code,
        "detail": letter.detail,
        "source": letter.source and letter.source.model_dump(),
    }


def place_of(letter: DeadLetter) -> str:
    """Return where a letter's record came from, in words."""
    source = letter.source
    return "?" if source is None else f"{source.topic}/{source.partition} at offset {source.offset}"
