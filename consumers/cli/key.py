"""``lethe key``: keys that versions, parameters and receipts, or requests, are signed with."""

from __future__ import annotations

from pathlib import Path

import click

from consumers.cli.options import Flags, global_options
from consumers.cli.output import Output
from consumers.signing import Signer, new_key_file, read_signer

_FILE = click.Path(dir_okay=False, path_type=Path)


@click.group(short_help="Make a key to sign with, or show its public half.")
@global_options
def key() -> None:
    """Make an Ed25519 key, or show the public half of one.

    Name the file to the workers and to `lethe register` in LETHE_SIGNING_KEY; put the public key
    into the file that readers name in LETHE_TRUSTED_KEYS, one key a line.

    \b
    Examples:
      lethe key new signing.pem >> trusted-keys
      lethe key show signing.pem
    """  # noqa: D301 - click looks for the character


@key.command(short_help="Make a key in a new file.")
@click.argument("file", type=_FILE)
@global_options
@click.pass_context
def new(ctx: click.Context, /, *, file: Path) -> None:
    """Make a private key in the new FILE, which only you can read; print its public key.

    A file that is there already is left as it is.
    """
    _print(ctx, new_key_file(file))


@key.command(short_help="Print a key's public half.")
@click.argument("file", type=_FILE)
@global_options
@click.pass_context
def show(ctx: click.Context, /, *, file: Path) -> None:
    """Print the public key of the private key in FILE, as files of trusted keys hold it."""
    _print(ctx, read_signer(file))


def _print(ctx: click.Context, signer: Signer) -> None:
    out = Output(as_json=ctx.ensure_object(Flags).json)
    out.document({"key_id": signer.key_id, "public_key": signer.public_text})
    out.line(f"{signer.public_text}  # {signer.key_id}")
