"""``lethe key``: keys that sign events and requests, and secrets that seal commits."""

from __future__ import annotations

from pathlib import Path

import click

from lethe.consumers.cli.options import Flags, global_options
from lethe.consumers.cli.output import Output, counted
from lethe.consumers.contract.sealing import SealKeys, new_seal_file, rotate_seal_file
from lethe.consumers.contract.signatures import Signer, new_key_file, read_signer

_FILE = click.Path(dir_okay=False, path_type=Path)


@click.group(short_help="Create a signing key, or show its public half.")
@global_options
def key() -> None:
    """Create an Ed25519 key, or show its public half; create the secrets that seal commits.

    Set LETHE_SIGNING_KEY to the file for the workers and for `lethe register`; add the public key
    to the file that readers name in LETHE_TRUSTED_KEYS, one key per line. Set LETHE_SEAL_KEY_FILE
    to a file of secrets that seal commits, the same for all workers and for `lethe register`.

    \b
    Examples:
      lethe key new signing.pem >> trusted-keys
      lethe key show signing.pem
      lethe key new --seal seal.keys
      lethe key rotate --seal seal.keys
    """  # noqa: D301 - click looks for the character


@key.command(short_help="Create a key in a new file.")
@click.argument("file", type=_FILE)
@click.option("--seal", is_flag=True, help="Create a secret that seals commits, not a signing key.")
@global_options
@click.pass_context
def new(ctx: click.Context, /, *, file: Path, seal: bool) -> None:
    """Create a private key in the new FILE, readable only by you; print its public key.

    With --seal: create a secret that seals commits. A file that exists is left unchanged.
    """
    if seal:
        _print_seals(ctx, file, new_seal_file(file))
    else:
        _print(ctx, new_key_file(file))


@key.command(short_help="Put a new secret first in a file.")
@click.argument("file", type=_FILE)
@click.option("--seal", is_flag=True, required=True, help="The secrets that seal commits.")
@global_options
@click.pass_context
def rotate(ctx: click.Context, /, *, file: Path, seal: bool) -> None:
    """Put a new secret first in FILE: from now on it seals, and all of them open.

    Copy the file to every worker before restarting the first one with it: a worker without the new
    secret halts the models whose commits are sealed with it. An old secret may be removed once its
    commits have expired and `lethe check` names no model that needs it.
    """
    del seal  # nothing else can be rotated: signing keys are trusted by name
    _print_seals(ctx, file, rotate_seal_file(file))


@key.command(short_help="Print a key's public half.")
@click.argument("file", type=_FILE)
@global_options
@click.pass_context
def show(ctx: click.Context, /, *, file: Path) -> None:
    """Print the public key of the private key in FILE, in the form of a trusted-keys file."""
    _print(ctx, read_signer(file))


def _print_seals(ctx: click.Context, file: Path, keys: SealKeys) -> None:
    out = Output(as_json=ctx.ensure_object(Flags).json)
    out.document({"file": str(file), "seals": keys.current, "opens": list(keys)})
    out.line(f"{file}: key {keys.current} seals; {counted(len(list(keys)), 'key')} in all")


def _print(ctx: click.Context, signer: Signer) -> None:
    out = Output(as_json=ctx.ensure_object(Flags).json)
    out.document({"key_id": signer.key_id, "public_key": signer.public_text})
    out.line(f"{signer.public_text}  # {signer.key_id}")
