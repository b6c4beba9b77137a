"""``lethe key``: keys that events and requests are signed with, and those that seal commits."""

from __future__ import annotations

from pathlib import Path

import click

from lethe.consumers.cli.options import Flags, global_options
from lethe.consumers.cli.output import Output, counted
from lethe.consumers.contract.sealing import SealKeys, new_seal_file, rotate_seal_file
from lethe.consumers.contract.signatures import Signer, new_key_file, read_signer

_FILE = click.Path(dir_okay=False, path_type=Path)


@click.group(short_help="Make a key to sign with, or show its public half.")
@global_options
def key() -> None:
    """Make an Ed25519 key, or show the public half of one; make the secrets that seal commits.

    Name the file to the workers and to `lethe register` in LETHE_SIGNING_KEY; put the public key
    into the file that readers name in LETHE_TRUSTED_KEYS, one key a line. A file of secrets that
    seal commits is named in LETHE_SEAL_KEY_FILE, the same to all who work and register.

    \b
    Examples:
      lethe key new signing.pem >> trusted-keys
      lethe key show signing.pem
      lethe key new --seal seal.keys
      lethe key rotate --seal seal.keys
    """  # noqa: D301 - click looks for the character


@key.command(short_help="Make a key in a new file.")
@click.argument("file", type=_FILE)
@click.option("--seal", is_flag=True, help="A secret that seals commits, not a key to sign with.")
@global_options
@click.pass_context
def new(ctx: click.Context, /, *, file: Path, seal: bool) -> None:
    """Make a private key in the new FILE, which only you can read; print its public key.

    With --seal: a secret that commits are sealed with. A file that is there already is left as it
    is.
    """
    if seal:
        _print_seals(ctx, file, new_seal_file(file))
    else:
        _print(ctx, new_key_file(file))


@key.command(short_help="Put a new secret before the others of a file.")
@click.argument("file", type=_FILE)
@click.option("--seal", is_flag=True, required=True, help="Of the secrets that seal commits.")
@global_options
@click.pass_context
def rotate(ctx: click.Context, /, *, file: Path, seal: bool) -> None:
    """Put a new secret before the others of FILE: from now on it seals, and all of them open.

    Hand the file to every worker before the first is restarted with it: one that lacks the new
    secret halts the models whose commits are sealed with it. An old secret may go when its commits
    have expired and `lethe check` names no model that needs it.
    """
    del seal  # there is nothing else to rotate: keys to sign with are trusted by name
    _print_seals(ctx, file, rotate_seal_file(file))


@key.command(short_help="Print a key's public half.")
@click.argument("file", type=_FILE)
@global_options
@click.pass_context
def show(ctx: click.Context, /, *, file: Path) -> None:
    """Print the public key of the private key in FILE, as files of trusted keys hold it."""
    _print(ctx, read_signer(file))


def _print_seals(ctx: click.Context, file: Path, keys: SealKeys) -> None:
    out = Output(as_json=ctx.ensure_object(Flags).json)
    out.document({"file": str(file), "seals": keys.current, "opens": list(keys)})
    out.line(f"{file}: key {keys.current} seals; {counted(len(list(keys)), 'key')} in all")


def _print(ctx: click.Context, signer: Signer) -> None:
    out = Output(as_json=ctx.ensure_object(Flags).json)
    out.document({"key_id": signer.key_id, "public_key": signer.public_text})
    out.line(f"{signer.public_text}  # {signer.key_id}")
